"""Numbers in words: what is said of them, what is held out."""

import pytest

from vitlab.config import load
from vitlab.data.text.corpora import draw_numbers, read, spell


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (13, "thirteen"), (40, "forty"), (704, "seven hundred four"), (90_011, "ninety thousand eleven")],
)
def test_numbers_are_spelled(number, words):
    assert spell(number) == words


def test_every_number_is_spelled_in_its_own_way():
    assert len({spell(number) for number in range(0, 1_000_000, 37)}) == len(range(0, 1_000_000, 37))


def test_held_out_numbers_are_new_and_of_every_length():
    corpus = read(load("data", {"name": "numbers", "count": 3000}))
    (words, digits), (_, held) = corpus.train.parts, corpus.test.parts
    assert [spell(int(number)) for number in digits] == words
    assert not set(digits) & set(held)
    assert len(digits) + len(held) == 3000
    assert {len(number) for number in held} >= {3, 4, 5, 6}
    assert sorted(draw_numbers(1_000_000)) == list(range(1_000_000))
