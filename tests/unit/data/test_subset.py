"""Nested stratified subsets and their sizes."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.configurations import problem
from vitlab.config import UserError
from vitlab.data.base import Split
from vitlab.data.split import (
    divide,
    long_tail,
    nested_order,
    redraw_labels,
    resolve_size,
    size_problems,
    subset,
    training_items,
)

COUNTS = (211, 97, 31, 13, 2)  # images per class, far from balanced


def labels(counts=COUNTS):
    return np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize(
    ("value", "expected"), [(17, 17), (1, 1), ("all", 1000), (0.1, 100), (0.25, 250), (1e-9, 1), (1.0, 1000)]
)
def test_sizes_are_counts_shares_up_to_all_or_all(value, expected):
    assert resolve_size(value, 1000) == expected


def test_every_prefix_holds_every_class_and_its_share_of_each():
    y = labels()
    order, total, classes = nested_order(y, seed=5), sum(COUNTS), len(COUNTS)
    assert set(y[order[:classes]]) == set(range(classes))
    for size in range(classes, total + 1):
        held = np.bincount(y[order[:size]], minlength=classes)
        exact = size * np.array(COUNTS) / total
        # one image more for rounding, and the classes' first images, which come early
        assert np.abs(held - exact).max() < 1 + classes, size


def test_a_balanced_set_is_split_evenly_at_each_multiple_of_the_classes():
    y = np.arange(7 * 11) % 7
    order = nested_order(y, seed=1)
    for size in range(7, 78, 7):
        assert set(np.bincount(y[order[:size]])) == {size // 7}


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_subsets_are_nested_and_depend_on_the_seed_alone(seed):
    y = labels()
    smaller = subset(y, 5, seed)
    for size in (6, 53, 0.5, 353, "all"):
        larger = subset(y, size, seed)
        assert set(smaller) < set(larger)
        assert np.array_equal(larger, np.sort(larger))
        assert np.array_equal(larger, subset(y, size, seed))
        smaller = larger
    assert not np.array_equal(subset(y, 53, seed), subset(y, 53, seed + 1))


@pytest.mark.parametrize(("counts", "factor"), [((50, 50, 50, 50), 10), (COUNTS, 4), (COUNTS, 1)])
def test_the_classes_of_a_long_tail_fall_by_its_factor_and_keep_their_order(counts, factor):
    whole = Split(labels(counts), lambda rows: rows)
    tail = long_tail(whole, factor)
    kept = np.bincount(tail.labels)
    assert np.array_equal(whole.labels[tail.read(np.arange(len(tail)))], tail.labels)
    if factor == 1:
        assert tail is whole
        return
    shares = factor ** -np.linspace(0, 1, len(counts))
    assert np.abs(kept - (np.array(counts) / shares).min() * shares).max() <= 1
    assert set(subset(tail.labels, 9, 0)) < set(subset(tail.labels, 11, 0))


def test_wrong_labels_are_of_other_classes_alike_in_all_subsets_and_grow_with_their_share():
    y = labels((997,) * 5)
    few, many, other = (redraw_labels(y, share, 5, seed) for share, seed in ((0.2, 3), (0.6, 3), (0.2, 4)))
    assert np.mean(few != y) == pytest.approx(0.2, abs=0.02)
    assert np.bincount((few - y)[few != y] % 5, minlength=5)[1:].min() > 200, "each of the others as often"
    assert np.array_equal(few[few != y], many[few != y])
    assert not np.array_equal(few, other)
    assert np.array_equal(redraw_labels(y, 0, 5, 3), y)


def test_an_own_order_chooses_the_first_items_and_a_wrong_one_is_one_line(monkeypatch):
    own = SimpleNamespace(order=lambda split, seed: np.arange(len(split))[::-1])
    monkeypatch.setitem(sys.modules, "own.subset", own)
    monkeypatch.setitem(sys.modules, "own", own)
    assert training_items(split(100), 7, 0, "own.subset").tolist() == list(range(93, 100))
    own.order = lambda split, seed: np.zeros(len(split))
    with pytest.raises(UserError, match=r"subset=own.subset: its order\(split, seed\) must hold each of 0 to 99 once"):
        training_items(split(100), 7, 0, "own.subset")
    assert (
        problem("subset=random") == "subset=random: give nested, or PACKAGE.MODULE with a function order(split, seed)"
    )


@pytest.mark.parametrize("names", [None, [*map(str, range(sum(COUNTS)))]])
def test_what_is_held_out_and_what_is_left_are_sorted(names):
    train, held = divide(labels(), 88, names, every_class=True)
    for rows in (train, held):
        assert np.array_equal(rows, np.sort(rows))
        assert set(labels()[rows]) == set(range(len(COUNTS)))
    assert sorted([*train, *held]) == list(range(sum(COUNTS)))


def split(count):
    return Split(np.zeros(count, dtype=np.int64), None)


def test_size_problems_are_all_reported_with_value_and_limit():
    found = size_problems([10, 50_000, "all", 32_000, 0.5, 0.001, "x"], split(32_000), range(36), name="glyphs")
    assert found == [
        "sizes=10: glyphs has 36 classes; give at least 36, one image of each",
        "sizes=50000: glyphs has 32000 training images; give at most 32000 or all",
        "sizes=32000: the same 32000 images as sizes=all; give only one of them",
        "sizes=0.001 (32 images): glyphs has 36 classes; give at least 36, one image of each",
        "sizes=x: a size is a whole number of examples, a share of them up to 1.0, or all",
    ]
    assert size_problems([36, 500, "all"], split(32_000), [str(i) for i in range(36)]) == []
    one = "sizes=1: a single image; give 2 or more, or all for all of them"
    assert [size_problems([0.5, 1], split(100), classes) for classes in ("", "ab")] == [[one]] * 2
    assert size_problems([1.0], split(100), "") == size_problems([1], split(1), "") == []
    assert size_problems([7], split(5), "ab", key="train_size")[0].startswith("train_size=7: ")


def test_sizes_in_tokens_are_whole_sequences():
    y = labels()
    whole = Split(y, None, unit="token", per_item=17)
    assert whole.total == 17 * len(y)
    for size, count in ((17, 1), (33, 1), (34, 2), (17 * 53 + 5, 53), ("all", len(y))):
        assert np.array_equal(training_items(whole, size, seed=3), subset(y, count, seed=3))
    (line,) = size_problems([16], whole, ())
    assert line == "sizes=16: less than one sequence; give at least 17, the tokens of one"
    (line,) = size_problems([33, 34, 52, 50], whole, ())
    assert line == "sizes=50: 2 whole sequences, as many as sizes=34; give only one of them"


def test_sizes_in_documents_take_all_items_of_each():
    groups = np.repeat(np.arange(29), np.arange(1, 30))
    whole = Split(np.zeros(len(groups), dtype=np.int64), None, unit="document", groups=groups)
    assert whole.total == 29
    smaller = set()
    for size in (1, 5, 13, 29):
        items = training_items(whole, size, seed=7)
        documents = set(groups[items].tolist())
        assert len(documents) == size
        assert smaller <= documents
        assert len(items) == sum(d + 1 for d in documents)
        smaller = documents
    assert "has 29 training documents" in size_problems([30], whole, ())[0]
