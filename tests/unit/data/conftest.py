"""An empty cache for each test, data sets in modules that a user wrote, and a check of how items are divided."""

import heapq
import textwrap

import pytest

from vitlab import config


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Its folder, which is not there yet."""
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def assert_divided(source, *parts):
    """Assert that the parts have the items of `source`, once each and in its order, and that no part is empty."""
    assert all(parts)
    assert list(heapq.merge(*parts, key=source.index)) == source


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
