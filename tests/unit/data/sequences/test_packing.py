"""Sequences from texts: streams, blocks, pairs."""

import numpy as np
import pytest

from tests.texts import END, SEPARATOR, START, STOP, counting, ragged
from vitlab.data.sequences import FOLLOWS, IGNORE_INDEX, RANDOM, pack_texts, pair_segments

DOCUMENTS = [[10, 11, 12], [20, 21, 22, 23, 24, 25, 26], [30]]


def read(split):
    return split.read(np.arange(len(split))).tolist()


def test_a_stream_joins_all_texts():
    split = pack_texts(ragged(DOCUMENTS), STOP, 4, within_texts=False)
    assert read(split) == [[10, 11, 12, STOP], [20, 21, 22, 23], [24, 25, 26, STOP]]
    assert (split.unit, split.per_item, split.total) == ("token", 4, 12)
    whole = pack_texts(ragged(DOCUMENTS), STOP, 4, within_texts=False, whole=False)
    assert read(whole)[3] == [30, STOP, IGNORE_INDEX, IGNORE_INDEX]


def test_blocks_do_not_cross_texts_and_count_documents():
    split = pack_texts(ragged(DOCUMENTS), STOP, 4, within_texts=True, ahead=1)
    assert read(split) == [
        [10, 11, 12, STOP, IGNORE_INDEX],
        [20, 21, 22, 23, 24],
        [24, 25, 26, STOP, IGNORE_INDEX],
        [30, STOP, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX],
    ]
    assert (split.unit, split.total, split.groups.tolist()) == ("document", 3, [0, 1, 1, 2])


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("length", [3, 7, 64])
def test_every_token_is_predicted_once(within, length):
    rows = counting(17)
    split = pack_texts(ragged(rows), STOP, length, within_texts=within, ahead=1, whole=False)
    predicted = split.read(np.arange(len(split)))[:, 1:]
    stream = np.concatenate([[*row, STOP] for row in rows])
    expected = np.concatenate([[*row[1:], STOP] for row in rows]) if within else stream[1:]
    assert predicted[predicted != IGNORE_INDEX].tolist() == expected.tolist()


def test_pairs_are_framed_with_their_segments():
    texts = ragged([np.arange(100 * text, 100 * text + len(row)) for text, row in enumerate(counting(29), 1)])
    split = pair_segments(texts, (START, SEPARATOR, END), length=17)
    for i, (tokens, segments) in enumerate(split.read(np.arange(len(split)))):
        kept = tokens[tokens != IGNORE_INDEX]
        first = kept.tolist().index(SEPARATOR) - 1
        assert (kept[0], kept[-1]) == (START, END)
        assert segments[: len(kept)].tolist() == [0] * (first + 2) + [1] * (len(kept) - first - 2)
        assert tokens[len(kept) :].tolist() == [IGNORE_INDEX] * (17 - len(kept))
        a, b = kept[1 : first + 1].tolist(), kept[first + 2 : -1].tolist()
        assert a == list(range(a[0], a[-1] + 1))
        assert b == list(range(b[0], b[-1] + 1))
        if split.labels[i] == FOLLOWS:
            assert b[0] == a[-1] + 1
        else:
            assert b[0] // 100 != a[0] // 100


def test_half_of_the_second_segments_follow():
    split = pair_segments(ragged(counting(900)), (START, SEPARATOR, END), length=12)
    assert len(split) > 4_500
    assert abs((split.labels == RANDOM).mean() - 0.5) < 0.02
