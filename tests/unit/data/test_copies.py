"""Copies among pictures: planted ones are found, and others are not taken for copies."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.unit.data.drawn import KINDS, copy, draw_many, encode
from vitlab.data import look
from vitlab.data.look import find_pairs, shrink

WAYS = ("encoded", "resized", "brighter")
COUNT = 120


def thumbnail(content):
    return shrink(Image.open(io.BytesIO(content)))


def stack(contents):
    return np.stack([thumbnail(content) for content in contents])


def numbers(count):
    return np.arange(count, dtype=np.uint64)


@pytest.fixture(scope="module")
def originals():
    return [image for kind in KINDS for image in draw_many(kind, COUNT)]


@pytest.mark.parametrize("way", WAYS)
def test_95_percent_of_planted_copies_and_under_2_percent_others(originals, way):
    count = len(originals)
    thumbnails = np.concatenate([stack(map(encode, originals)), stack(copy(image, way) for image in originals)])
    pairs = find_pairs(thumbnails, numbers(2 * count), np.repeat([0, 1], count))
    found = [pair for pair in pairs if pair.second - pair.first == count]
    assert not any(pair.identical for pair in pairs)
    for place in range(len(KINDS)):
        of_kind = [pair for pair in found if pair.first // COUNT == place]
        assert len(of_kind) >= 0.95 * COUNT, KINDS[place]
    assert len(pairs) - len(found) < 0.02 * len(pairs)


def test_pictures_of_one_kind_are_no_copies(originals):
    pairs = find_pairs(stack(map(encode, originals)), numbers(len(originals)), np.zeros(len(originals), int))
    assert len(pairs) < 0.02 * len(originals)


def test_plain_grounds_are_copies_only_by_their_bytes():
    grounds = [Image.new("RGB", (64, 64), (level,) * 3) for level in (0, 0, 127, 128, 255)]
    thumbnails = stack(map(encode, grounds))
    assert find_pairs(thumbnails, numbers(5), np.zeros(5, int)) == []
    (pair,) = find_pairs(thumbnails, np.array([7, 7, 1, 2, 3], np.uint64), np.zeros(5, int))
    assert (pair.first, pair.second, pair.likeness, pair.identical) == (0, 1, 1, True)


def test_a_shape_of_another_colour_or_place_is_no_copy():
    def square(left, colour):
        image = Image.new("RGB", (96, 96), "white")
        image.paste(colour, (left, 30, left + 36, 66))
        return encode(image)

    looks = [square(30, "red"), square(30, "green"), square(30, "black"), square(34, "red"), square(30, (255, 60, 60))]
    assert find_pairs(stack(looks), numbers(5), np.zeros(5, int)) == []


def test_a_picture_is_paired_once_with_the_first_split_that_has_a_copy(originals, monkeypatch):
    image = originals[0]
    other = encode(originals[1])
    contents = [other, encode(image), copy(image, "resized"), encode(image, 91), encode(image, 93)]
    for block in (1, 2, 256):
        monkeypatch.setattr(look, "BLOCK", block)
        pairs = find_pairs(stack(contents), numbers(5), np.array([0, 0, 0, 1, 1]))
        assert [pair.second for pair in pairs] == [2, 3, 4]
        assert {pair.first for pair in pairs} == {1}, "in training, though 3 and 4 are closer to each other"


def test_one_picture_and_none():
    assert find_pairs(np.zeros((0, 16, 16, 3), np.uint8), numbers(0), np.zeros(0, int)) == []
    assert find_pairs(np.zeros((1, 16, 16, 3), np.uint8), numbers(1), np.zeros(1, int)) == []
