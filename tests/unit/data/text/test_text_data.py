"""Text as tokens in the cache: encoded once, whole or not at all, and what each data set of text holds out."""

import shutil
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from tests.unit.data.conftest import assert_divided
from tests.unit.data.text.test_text_files import items
from vitlab import config, data
from vitlab.config import UserError
from vitlab.data.base import list_arrays
from vitlab.data.text import corpora, tokenization

MODULE = """
    import time
    from pathlib import Path
    from vitlab.data.base import Corpus, Examples

    CALLS = Path(__file__).with_name("calls")
    WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]

    def text(n):
        return " ".join(WORDS[d % 11] for d in range(n % 7 + 1)) + f" {n}" if n % 29 else ""

    def read(config):
        with CALLS.open("a") as file:
            file.write("read\\n")
        time.sleep(config.pause)
        rows = {"train": range(1, 202), "test": range(202, 255)}
        made = {}
        for part, numbers in rows.items():
            texts = [text(n) for n in numbers]
            if config.shape == "tags":
                made[part] = Examples(([t.split() for t in texts],), tags=[[n % 3] * len(t.split()) for n, t in
                                                                             zip(numbers, texts)])
            elif config.shape == "pairs":
                made[part] = Examples((texts, texts[::-1]), labels=[n % 3 for n in numbers])
            elif config.shape == "number":
                made[part] = Examples((texts,), targets=[n / 4 for n in numbers])
            else:
                made[part] = Examples((texts,))
        return Corpus(made["train"], made["test"], ("a", "b", "c") if config.shape in ("tags", "pairs") else ())
"""


@pytest.fixture
def toy(write_set):
    return write_set(MODULE, modality="text", vocabulary=307, pause=0.0, shape="plain")


def everything(found):
    return {
        f"{split}_{name}": np.array(values)
        for split, texts in found.splits.items()
        for name, values in list_arrays(texts).items()
    }


def assert_same(one, other):
    a, b = everything(one), everything(other)
    assert a.keys() == b.keys()
    for name, values in a.items():
        assert np.array_equal(values, b[name]), name
        assert values.dtype == b[name].dtype, name
    assert one.tokenizer.inner.to_str() == other.tokenizer.inner.to_str()
    assert (one.name, one.classes, one.length) == (other.name, other.classes, other.length)
    assert [split.size for split in one.splits.values()] == [split.size for split in other.splits.values()]


@pytest.mark.parametrize("shape", ["plain", "pairs", "number", "tags"])
def test_the_cache_holds_what_was_encoded_and_reads_it_no_second_time(toy, shape):
    cold = data.load(toy(shape=shape))
    warm = data.load(toy(shape=shape, length=31, sizes=[3], cache="always", task="classification"))
    assert toy.calls() == 1
    assert len(toy.entries()) == 1
    assert warm.length == 31
    never = data.load(toy(shape=shape, cache="never"))
    assert toy.calls() == 2
    assert_same(cold, never)
    for name, values in everything(warm).items():
        assert np.array_equal(values, everything(cold)[name])
    assert warm.shape == {"length": 31, "vocabulary": cold.tokenizer.size}


def test_tokens_labels_and_sizes_are_those_of_the_texts(toy):
    found = data.load(toy(shape="pairs"))
    texts = [(toy_text(n), toy_text(202 - n), "abc"[n % 3]) for n in range(1, 202)]
    kept = [row for row in texts if row[0] and row[1]]  # those of a part without a token are left out
    assert 0 < len(kept) < len(texts)
    assert_divided(kept, items(found, "train"), items(found, "validation"))
    for split, part in found.splits.items():
        assert part.size == sum(len(a) + len(b) for a, b, _ in items(found, split))
    assert found.classes == ("a", "b", "c")
    assert (found.train.labels.dtype, found.train.parts[0].values.dtype) == (np.int64, np.int32)
    assert found.train.parts[0].starts.dtype == np.int64


def toy_text(n):
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    return " ".join(words[d % 11] for d in range(n % 7 + 1)) + f" {n}" if n % 29 else ""


def test_the_tokenizer_has_seen_no_held_out_text(toy):
    source = toy.source.read_text()
    toy.source.write_text(source.replace("return Corpus(", "made['test'] = Examples((['one~'],)); return Corpus("))
    found = data.load(toy(tokenizer="characters"))
    assert found.tokenizer.unknown not in found.train.parts[0].values
    assert (found.test.parts[0].values == found.tokenizer.unknown).tolist() == [False, False, False, True]


def test_what_changes_tokens_makes_another_entry(toy):
    for change in ({}, {"vocabulary": 299}, {"lowercase": True}, {"tokenizer": "characters"}, {"pause": 0.001}):
        data.load(toy(**change))
    assert len(toy.entries()) == 5


def test_a_tokenizers_file_is_part_of_the_key(toy, tmp_path):
    file = tmp_path / "own" / "tokenizer.json"
    for texts in ("one two three", "four five six"):
        tokenization.train([texts], "characters", 270).save(file)
        for path in (file, file.parent):
            assert data.load(toy(tokenizer=str(path))).tokenizer.size == 7 + len(set(texts))
    assert toy.calls() == 2


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Some packages of Python's library in the place of all."""
    source, folder = Path(sysconfig.get_paths()["stdlib"]), tmp_path_factory.mktemp("library")
    for name in ("asyncio", "email", "http", "logging", "xml"):
        shutil.copytree(source / name, folder / name)
    for tests in (folder / "test", folder / "email" / "test"):
        tests.mkdir()
        (tests / "some.py").write_text('"""What a test says is left out."""')
    corpora.read_docstrings.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pydoc_data.topics.topics", {name: topics[name] for name in sorted(topics)[:30]})
        patch.setattr(corpora.sysconfig, "get_paths", lambda: {"stdlib": str(folder)})
        yield
    corpora.read_docstrings.cache_clear()


NUMBERS = {"name": "numbers", "count": 900}
SMALLER = {"docstrings": {"classes": 4}, "facts": {"count": 400}, "numbers": NUMBERS}
SMALLER["mixture"] = {"parts": {"numbers": NUMBERS, "summarize": "summaries"}}


def without_path(name):
    try:
        return config.load("data", name).modality == "text"
    except UserError:  # a path is missing
        return False


@pytest.mark.parametrize("name", [name for name in config.names("data") if without_path(name)])
def test_every_text_set_without_a_path_loads(library, name):
    node = config.load("data", {"name": name, "vocabulary": 400, **SMALLER.get(name, {})})
    found = data.load(node)
    assert_same(found, data.load(node))
    for split in found.splits.values():
        assert len(split) >= 10
        assert min(part.lengths.min() for part in split.parts) > 0
        assert max(part.values.max() for part in split.parts) < found.tokenizer.size
        answered = {1} if split.tags is not None else set(range(max(1, len(found.classes))))
        assert set(split.labels.tolist()) == answered


def test_no_more_classes_than_packages_with_docstrings(library):
    with pytest.raises(UserError, match=r"^data\.classes=500: give from 2 to \d, the packages"):
        data.load(config.load("data", {"name": "docstrings", "classes": 500}))


def test_summaries_are_the_first_lines_of_their_docstrings(library):
    corpus = corpora.read(config.load("data", {"name": "summaries", "test_share": 0.15}))
    whole = {text for _, text in corpora.read_docstrings()}
    assert "What a test says is left out." not in whole
    held = set()
    for examples in (corpus.train, corpus.test):
        bodies, lines = examples.parts
        assert len(bodies) > 30
        assert all("\n" not in line for line in lines)
        assert sum(f"{line}\n\n{body}" in whole for body, line in zip(bodies, lines, strict=True)) > 0.9 * len(bodies)
        assert not held & {*bodies, *lines}
        held |= {*bodies, *lines}


def test_pairs_are_half_and_half_and_tell_nothing_apart_from_the_fit(library):
    node = config.load("data", {"name": "docstrings", "pairs": True})
    read = corpora.read(node)
    assert read.classes == ("other", "own")
    whole = {text for _, text in corpora.read_docstrings()}
    spaced = {"".join(text.split()) for text in whole}
    summaries, bodies = [], []
    for split in (read.train, read.test):
        labels = np.array(split.labels)
        assert abs((labels == 1).sum() - (labels == 0).sum()) <= 1
        for summary, body, label in zip(*split.parts, split.labels, strict=True):
            assert ("".join((summary + body).split()) in spaced) == bool(label)
        summaries += split.parts[0]
        bodies += split.parts[1]
    assert len(set(summaries)) == len(summaries)
    assert len(set(bodies)) == len(bodies)
    assert corpora.read(node).train.labels == read.train.labels
