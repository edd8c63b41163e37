"""Copies among pictures: planted ones are found, and others are not taken for copies."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.unit.data.drawn import KINDS, copy, draw_many, encode
from vitlab.data import look
from vitlab.data.look import Picture, find_pairs, shrink

WAYS = ("encoded", "resized", "brighter", "mirrored")
COUNT = 80


def read(contents, digests=None):
    thumbnails = [shrink(Image.open(io.BytesIO(content))) for content in contents]
    digests = digests or range(len(thumbnails))
    return [Picture("", digest=digest, thumbnail=one) for digest, one in zip(digests, thumbnails, strict=True)]


@pytest.fixture(scope="module")
def originals():
    return [image for kind in KINDS for image in draw_many(kind, COUNT)]


@pytest.mark.parametrize("way", WAYS)
def test_90_percent_of_planted_copies_and_under_2_percent_others(originals, way):
    count = len(originals)
    contents = [*map(encode, originals), *(copy(image, way) for image in originals)]
    pairs = find_pairs(read(contents), [0] * count + [1] * count)
    found = [pair for pair in pairs if pair.second - pair.first == count]
    assert not any(pair.identical for pair in pairs)
    for place in range(len(KINDS)):
        of_kind = [pair for pair in found if pair.first // COUNT == place]
        assert len(of_kind) >= 0.9 * COUNT, KINDS[place]
    assert len(pairs) - len(found) < 0.02 * len(pairs)


def test_plain_grounds_are_copies_only_by_their_bytes():
    grounds = [Image.new("RGB", (64, 64), (level,) * 3) for level in (0, 0, 127, 128, 255)]
    contents = list(map(encode, grounds))
    assert find_pairs(read(contents), [0] * 5) == []
    (pair,) = find_pairs(read(contents, [7, 7, 1, 2, 3]), [0] * 5)
    assert (pair.first, pair.second, pair.likeness, pair.identical) == (0, 1, 1, True)


def test_a_shape_of_another_colour_or_place_is_no_copy():
    def square(left, colour):
        image = Image.new("RGB", (96, 96), "white")
        image.paste(colour, (left, 30, left + 36, 66))
        return encode(image)

    looks = [square(30, "red"), square(30, "green"), square(30, "black"), square(34, "red"), square(30, (255, 60, 60))]
    assert find_pairs(read(looks), [0] * 5) == []


def test_a_picture_is_paired_once_with_the_first_split_that_has_a_copy(originals, monkeypatch):
    image = originals[0]
    other = encode(originals[1])
    contents = [other, encode(image), copy(image, "resized"), encode(image, 91), encode(image, 93)]
    for block in (1, 2, 256):
        monkeypatch.setattr(look, "BLOCK", block)
        pairs = find_pairs(read(contents), [0, 0, 0, 1, 1])
        assert {pair.second for pair in pairs[:2]} == {3, 4}, "across splits first"
        assert [pair.second for pair in pairs[2:]] == [2]
        assert {pair.first for pair in pairs} == {1}, "in training, though 3 and 4 are closer to each other"


def test_skies_of_other_colours_and_other_exposures_of_one_scene_are_no_copies():
    ramp, noise = np.linspace(0, 1, 96)[:, None, None], np.random.default_rng(0).normal(0, 3, (96, 96, 3))
    skies = [(60, 120, 200), (100, 120, 200), (60, 160, 200), (60, 120, 240)]
    grounds = [np.array(sky) + 40 * ramp + noise for sky in skies]
    looks = [Image.fromarray(ground.clip(0, 255).astype(np.uint8)) for ground in [*grounds, 0.5 * grounds[0]]]
    assert find_pairs(read(map(encode, looks)), [0] * 5) == []


def test_one_picture_and_none():
    assert find_pairs([], []) == []
    assert find_pairs([Picture("", thumbnail=np.zeros((16, 16, 3), np.float16))], [0]) == []
