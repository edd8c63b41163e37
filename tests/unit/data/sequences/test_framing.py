"""Framed texts: known sequences, planes that fit each other."""

import pickle
from types import SimpleNamespace

import numpy as np

from tests.texts import ragged
from vitlab.data.base import Texts
from vitlab.data.sequences import IGNORE_INDEX, frame_texts
from vitlab.data.text import NO_TAG

GPT = SimpleNamespace(pad=0, start=1, separator=2, end=3, size=29)
BERT = SimpleNamespace(pad=0, start=1, separator=2, end=2, size=29)
X = IGNORE_INDEX


def texts(*parts, tags=None, targets=None):
    labels = np.arange(len(parts[0]), dtype=np.int64) % 3
    return Texts(tuple(map(ragged, parts)), labels, targets, tags, size=0)


def read(*parts, length, tokenizer=GPT, tags=None, **options):
    split = frame_texts(texts(*parts, tags=tags), tokenizer, length, **options)
    found = split.read(np.arange(len(split)))
    assert found.dtype == np.int64
    return found.tolist()


def test_a_text_stands_between_start_and_end():
    assert read([[11, 12, 13], [14], []], length=7) == [
        [[1, 11, 12, 13, 3, X, X], [0] * 7],
        [[1, 14, 3, X, X, X, X], [0] * 7],
        [[1, 3, X, X, X, X, X], [0] * 7],
    ]


def test_a_long_text_loses_its_end_and_the_end_token_stays():
    assert read([[11, 12, 13, 14, 15]], length=5) == [[[1, 11, 12, 13, 3], [0] * 5]]
    assert read([[11, 12, 13]], length=5) == [[[1, 11, 12, 13, 3], [0] * 5]]


def test_a_pair_has_a_separator_and_segments():
    pair = [[11, 12], [13]], [[21], [22, 23, 24]]
    assert read(*pair, length=8) == [
        [[1, 11, 12, 2, 21, 3, X, X], [0, 0, 0, 0, 1, 1, 0, 0]],
        [[1, 13, 2, 22, 23, 24, 3, X], [0, 0, 0, 1, 1, 1, 1, 0]],
    ]
    assert read(*pair, length=8, tokenizer=BERT)[0][0] == [1, 11, 12, 2, 21, 2, X, X]


def test_each_choice_is_a_pair_with_the_text():
    found = read([[11, 12], [13]], [[21], [22]], [[23, 24], [25]], [[26], []], length=7)
    assert np.shape(found) == (2, 3, 2, 7)
    assert [sequence[0] for sequence in found[0]] == [
        [1, 11, 12, 2, 21, 3, X],
        [1, 11, 12, 2, 23, 24, 3],
        [1, 11, 12, 2, 26, 3, X],
    ]
    assert found[1][2] == [[1, 13, 2, 3, X, X, X], [0, 0, 0, 1, 0, 0, 0]]


def test_both_orders_are_two_sequences():
    (found,) = read([[11, 12]], [[21]], length=7, both_orders=True)
    assert found == [
        [[1, 11, 12, 2, 21, 3, X], [0, 0, 0, 0, 1, 1, 0]],
        [[1, 21, 2, 11, 12, 3, X], [0, 0, 0, 1, 1, 1, 0]],
    ]


def test_tags_stand_below_their_tokens():
    rows, tags = [[11, 12, 13], [14, 15, 16, 17]], ragged([[5, NO_TAG, 6], [7, 8, NO_TAG, 9]])
    assert read(rows, length=5, tags=tags) == [
        [[1, 11, 12, 13, 3], [0] * 5, [X, 5, X, 6, X]],
        [[1, 14, 15, 16, 3], [0] * 5, [X, 7, 8, X, X]],
    ]


def test_a_split_has_the_labels_counts_texts_and_travels_to_other_processes():
    split = frame_texts(texts([[11, 12], [13]], targets=np.array([0.5, 2.0], dtype=np.float32)), GPT, 5)
    assert (len(split), split.total, split.unit) == (2, 2, "text")
    assert split.labels.tolist() == [0, 1]
    assert split.targets.tolist() == [0.5, 2.0]
    copy = pickle.loads(pickle.dumps(split))
    rows = np.arange(2)
    assert np.array_equal(copy.read(rows), split.read(rows))
