"""An empty cache for each test, and data sets in modules that a user wrote."""

import textwrap
from dataclasses import replace

import pytest

from vitlab import config


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Its folder, which is not there yet."""
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def uncarved(monkeypatch):
    """Nothing is carved for validation: the tests are of what a module reads. Those of carving override this."""
    monkeypatch.setattr("vitlab.data.split.carve_images", lambda data: replace(data, validation=data.train))
    monkeypatch.setattr(
        "vitlab.data.text.corpus.carve_texts", lambda corpus, _: replace(corpus, validation=corpus.train)
    )


@pytest.fixture
def write_set(tmp_path, monkeypatch, cache):
    """Writes the module of a data set: (source, its options) -> a function that gives its configuration."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / f"toyset_{tmp_path.name.replace('-', '_')}"

    def write(source, **options):
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "toy.py").write_text(textwrap.dedent(source))

        def make(**changes):
            return config.load("data", {"name": "toy", "kind": f"{package.name}.toy", **options, **changes})

        make.source, make.cache = package / "toy.py", cache
        make.calls = lambda: len((package / "calls").read_text().splitlines())
        make.entries = lambda: sorted(path.name for path in cache.glob("*") if not path.name.endswith(".lock"))
        return make

    return write
