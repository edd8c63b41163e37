"""Text as tokens in the cache: encoded once, whole or not at all, and what each data set of text holds out."""

import itertools
import sys
import textwrap

import numpy as np
import pytest

from vitlab import config, data
from vitlab.commands.list import read_about
from vitlab.config import UserError
from vitlab.data.text import corpus, pydoc, stdlib, tokenization
from vitlab.data.text.types import NO_TAG

MODULE = """
    import time
    from pathlib import Path
    from vitlab.data.text.types import Corpus, Examples

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
def toy(tmp_path, monkeypatch):
    """The configuration of a data set that the user wrote, in a module of its own, and an empty cache."""
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"toytext_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "texts.py").write_text(textwrap.dedent(MODULE))

    def make(**changes):
        own = {"modality": "text", "vocabulary": 307, "pause": 0.0, "shape": "plain"}
        return config.load("data", {"name": "toy", "kind": f"{name}.texts", **own, **changes})

    make.calls = lambda: len((tmp_path / name / "calls").read_text().splitlines())
    make.source = tmp_path / name / "texts.py"
    make.cache = tmp_path / "cache"
    return make


def entries(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock")) if folder.exists() else []


def everything(found):
    return {
        f"{split}_{name}": np.array(values)
        for split in ("train", "test")
        for name, values in corpus.list_arrays(getattr(found, split)).items()
    }


def assert_same(one, other):
    a, b = everything(one), everything(other)
    assert a.keys() == b.keys()
    for name, values in a.items():
        assert np.array_equal(values, b[name]), name
        assert values.dtype == b[name].dtype, name
    assert one.tokenizer.inner.to_str() == other.tokenizer.inner.to_str()
    assert (one.name, one.classes, one.length) == (other.name, other.classes, other.length)
    assert [split.size for split in (one.train, one.test)] == [split.size for split in (other.train, other.test)]


@pytest.mark.parametrize("shape", ["plain", "pairs", "number", "tags"])
def test_the_cache_holds_what_was_encoded_and_reads_it_no_second_time(toy, shape):
    cold = data.load(toy(shape=shape))
    warm = data.load(toy(shape=shape, length=31, sizes=[3], cache="always", task="classification"))
    assert toy.calls() == 1
    assert len(entries(toy.cache)) == 1
    assert warm.length == 31
    never = data.load(toy(shape=shape, cache="never"))
    assert toy.calls() == 2
    assert_same(cold, never)
    for name, values in everything(warm).items():
        assert np.array_equal(values, everything(cold)[name])
    assert warm.shape == {"length": 31, "vocabulary": cold.tokenizer.size}


def test_tokens_labels_and_sizes_are_those_of_the_texts(toy):
    found = data.load(toy(shape="pairs"))
    texts = [(toy_text(n), toy_text(202 - n), n % 3) for n in range(1, 202)]
    kept = [row for row in texts if row[0] and row[1]]  # those of a part without a token are left out
    assert 0 < len(kept) < len(texts)
    assert [found.tokenizer.decode(found.train.parts[0][row]) for row in range(len(kept))] == [a for a, _, _ in kept]
    assert [found.tokenizer.decode(found.train.parts[1][row]) for row in range(len(kept))] == [b for _, b, _ in kept]
    assert found.train.labels.tolist() == [label for _, _, label in kept]
    assert found.train.size == sum(len(a) + len(b) for a, b, _ in kept)
    assert found.classes == ("a", "b", "c")
    assert (found.train.labels.dtype, found.train.parts[0].values.dtype) == (np.int64, np.int32)
    assert found.train.parts[0].starts.dtype == np.int64


def toy_text(n):
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    return " ".join(words[d % 11] for d in range(n % 7 + 1)) + f" {n}" if n % 29 else ""


def test_numbers_stay_with_their_texts(toy):
    found = data.load(toy(shape="number"))
    kept = [n for n in range(1, 202) if n % 29]
    assert found.train.targets.tolist() == [n / 4 for n in kept]
    assert found.train.targets.dtype == np.float32
    assert found.train.labels.tolist() == [0] * len(kept)
    assert found.train.tags is None


@pytest.mark.parametrize("kind", tokenization.KINDS)
def test_the_first_token_of_a_word_carries_its_tag(toy, kind):
    found = data.load(toy(shape="tags", tokenizer=kind))
    kept = [n for n in range(1, 202) if n % 29]
    for row, n in enumerate(kept):
        tags, ids = found.train.tags[row], found.train.parts[0][row]
        assert len(tags) == len(ids)
        words = toy_text(n).split()
        assert (tags != NO_TAG).sum() == len(words)
        assert set(tags.tolist()) - {NO_TAG} == {n % 3}
        starts = [*np.flatnonzero(tags != NO_TAG), len(ids)]
        spelt = [found.tokenizer.decode(ids[a:b]).strip() for a, b in itertools.pairwise(starts)]
        assert spelt == words


def test_the_tokenizer_has_seen_no_held_out_text(toy):
    toy.source.write_text(toy.source.read_text() + "\nWORDS[9] = 'ninety'\n")
    node = toy(tokenizer="characters")
    assert data.load(node).test.parts[0].values.max() != data.load(node).tokenizer.unknown
    toy.source.write_text(
        toy.source.read_text() + "\nplain = text\ndef text(n):\n    return plain(n) + ('~' if n > 201 else '')\n"
    )
    sys.modules.pop(node.kind)
    found = data.load(toy(tokenizer="characters"))
    assert found.tokenizer.unknown not in found.train.parts[0].values
    assert (found.test.parts[0].values == found.tokenizer.unknown).sum() == 53


@pytest.mark.parametrize(
    "change", [{"vocabulary": 299}, {"lowercase": True}, {"tokenizer": "characters"}, {"pause": 0.001}]
)
def test_what_changes_tokens_makes_another_entry(toy, change):
    data.load(toy())
    data.load(toy(**change))
    assert len(entries(toy.cache)) == 2


def test_a_tokenizers_file_is_part_of_the_key(toy, tmp_path):
    file = tmp_path / "own" / "tokenizer.json"
    tokenization.train(["one two three"], "bpe", 270).save(file)
    first = data.load(toy(tokenizer=str(file)))
    assert first.tokenizer.size <= 270
    again = data.load(toy(tokenizer=str(file.parent)))
    assert again.tokenizer.size == first.tokenizer.size
    calls = toy.calls()
    data.load(toy(tokenizer=str(file)))
    assert toy.calls() == calls
    tokenization.train(["four five six"], "characters", 270).save(file)
    assert data.load(toy(tokenizer=str(file))).tokenizer.size == 7 + len(set("four five six"))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("train_part0_values.npy", damage) for damage in ("gone", "cut", "other")),
        *((file, "cut") for file in ("train_part0_starts.npy", "test_labels.npy", "tokenizer.json", "data.json")),
    ],
)
def test_a_damaged_entry_is_built_again(toy, file, damage):
    before = data.load(toy())
    (name,) = entries(toy.cache)
    path = toy.cache / name / file
    kept = path.read_bytes()
    expected = everything(before)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(kept[: len(kept) // 2] if damage == "cut" else b"{}")
    after = data.load(toy())
    assert toy.calls() == 2
    assert path.read_bytes() == kept
    for array, values in everything(after).items():
        assert np.array_equal(values, expected[array])


def test_progress_counts_every_text_once(toy):
    seen = []
    data.load(toy(shape="pairs"), lambda *values: seen.append(values))
    assert seen[:3] == [("reading toy", 0, 1), ("reading toy", 1, 1), ("encoding toy", 0, 508)]
    assert seen[-1] == ("encoding toy", 508, 508)
    assert [done for _, done, _ in seen[2:]] == sorted(done for _, done, _ in seen[2:])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("made['test'] = Examples(([],))", "data=toy: no held-out texts found in what was read; give more texts there"),
        (
            "made['test'] = Examples((['', ''],))",
            "data=toy: the held-out texts in what was read have no tokens with data.tokenizer=bpe",
        ),
        (
            "made['test'] = Examples((['a', 'b'],), labels=[0])",
            "data=toy: 1 labels for 2 test texts",
        ),
        (
            "made['test'] = Examples((['a', 'b'],), labels=[0, 1])",
            "data=toy: a test label is not one of the 0 classes",
        ),
        (
            "made['test'] = Examples((['a', 'b' + chr(0xd800)],))",
            "data=toy: test text 1 has an invalid Unicode surrogate",
        ),
        (
            "made['test'] = Examples(([['a', 'b']],), tags=[[0]])",
            "data=toy: test text 0 has 2 words and 1 tags of 0 classes",
        ),
    ],
)
def test_what_no_training_can_take(toy, lines, expected):
    source = toy.source.read_text()
    toy.source.write_text(source.replace("    return Corpus(", f"    {lines}\n    return Corpus("))
    with pytest.raises(UserError) as caught:
        data.load(toy())
    assert caught.value.problems == [expected]
    assert entries(toy.cache) == []


def test_an_unknown_tokenizer_is_said_before_anything_is_read(toy):
    for name, expected in (
        ("bpee", "data.tokenizer=bpee: unknown kind; did you mean 'bpe'?"),
        ("no/such.json", "data.tokenizer=no/such.json: no such file"),
    ):
        for cache in ("auto", "never"):
            with pytest.raises(UserError) as caught:
                data.load(toy(tokenizer=name, cache=cache))
            assert caught.value.problems[0].startswith(expected)
    assert not toy.source.with_name("calls").exists()


def test_list_says_what_each_set_is():
    texts = {"pydoc", "docstrings", "textfile", "csv", "tsv", "conll", "huggingface"}
    assert texts <= set(config.names("data"))
    assert all(len(read_about("data", name)) > 30 for name in texts)


# -- Python's own documentation


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def own(name):
    node = config.load("data", name)
    return node if node.modality == "text" and "???" not in config.resolved(node).values() else None


@pytest.mark.parametrize("name", [name for name in config.names("data") if own(name)])
def test_every_text_set_without_a_path_loads(name, shared_cache, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(shared_cache))
    node = config.load("data", name)
    found = data.load(node)
    again = data.load(node)
    assert_same(found, again)
    for split in (found.train, found.test):
        assert len(split) > 30
        assert min(part.lengths.min() for part in split.parts) > 0
        assert max(part.values.max() for part in split.parts) < found.tokenizer.size
        assert set(split.labels.tolist()) == set(range(max(1, len(found.classes))))
    sizes = [size for size in node.sizes if isinstance(size, int)]
    total = len(found.train) if found.classes else int(found.train.parts[0].lengths.sum())
    assert max(sizes, default=1) <= total


def test_documents_held_out_are_disjoint_and_stable():
    node = config.load("data", "pydoc")
    first, second = pydoc.read(node), pydoc.read(node)
    assert list(first.train.parts[0]) == list(second.train.parts[0])
    assert list(first.test.parts[0]) == list(second.test.parts[0])
    assert not set(first.train.parts[0]) & set(first.test.parts[0])
    share = len(first.test) / (len(first.test) + len(first.train))
    assert share == pytest.approx(0.1, abs=0.002)


def test_no_paragraph_of_the_reference_is_in_many_chapters():
    chapters = stdlib.read_topics()
    assert "compound" in chapters  # all compound statements
    assert not {"if", "for", "while", "try"} & chapters.keys()  # its sections
    assert "assert" in chapters
    assert all(text == text.strip() and text for text in chapters.values())


def test_docstrings_are_in_the_order_of_the_sources_and_once():
    found = stdlib.read_docstrings()
    assert len({docstring.text for docstring in found}) == len(found)
    of = [docstring.text for docstring in found if docstring.module == "textwrap"]
    assert of[0].startswith("Text wrapping and filling.")
    assert of[1].startswith("Object for wrapping/filling text.")
    assert not {d.package for d in found} & {"test", "idlelib", "site-packages"}


def test_pairs_are_half_and_half_and_tell_nothing_apart_from_the_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path))
    from vitlab.data.text import docstrings

    node = config.load("data", {"name": "docstrings", "pairs": True})
    read = docstrings.read(node)
    assert read.classes == ("other", "own")
    whole = {docstring.text for docstring in stdlib.read_docstrings()}
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
    assert docstrings.read(node).train.labels == read.train.labels


def test_packages_have_no_text_in_both_splits():
    from vitlab.data.text import docstrings

    read = docstrings.read(config.load("data", {"name": "docstrings", "classes": 7, "test_share": 0.25}))
    assert len(read.classes) == 7
    assert "tkinter" in read.classes
    assert not set(read.train.parts[0]) & set(read.test.parts[0])
    train, test = (np.bincount(split.labels, minlength=7) for split in (read.train, read.test))
    assert np.abs(test - 0.25 * (train + test)).max() <= 0.5


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("docstrings", {"classes": 1}, "data.classes=1: give from 2 to "),
        ("docstrings", {"classes": 9999}, "data.classes=9999: give from 2 to "),
    ],
)
def test_bad_options_of_pythons_documentation(name, change, expected):
    with pytest.raises(UserError) as caught:
        data.load(config.load("data", {"name": name, "cache": "never", **change}))
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(expected)
