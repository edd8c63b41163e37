"""Pointer: the digit that the arrow points to."""

import numpy as np
import pytest

from tests.configurations import refused
from vitlab import config
from vitlab.config import UserError
from vitlab.data.images import drawn

PLAIN = {"noise": 0.0, "rotation": 0.0, "shift": 0.0, "scale": [0.75, 0.75], "cell": 32}


def load(**changes):
    node = config.load("data", {"name": "pointer", "train_images": 240, "test_images": 90, **changes})
    return drawn.load(node)


@pytest.mark.parametrize(("reach", "size"), [(1, 160), (2, [160, 224])])
def test_the_class_is_the_digit_that_the_arrow_points_to(reach, size):
    """Read without the drawing's own numbers: each cell is the character whose master it is most like."""
    data = load(**PLAIN, reach=reach, image_size=size)
    rows, columns = (side // 32 for side in data.image_size)
    images = data.train.read(np.arange(240)).astype(float)
    cells = images.reshape(240, rows, 32, columns, 32).swapaxes(2, 3).reshape(240, rows, columns, -1)
    digits = read_cells(cells, drawn.DIGITS, turns=1)
    middle = cells[:, rows // 2, columns // 2]
    direction = read_cells(middle, (drawn.ARROW,), turns=8)
    # clockwise from the right: the unit circle, rounded
    down, right = (np.rint(f(direction * np.pi / 4)).astype(int) * reach for f in (np.sin, np.cos))
    found = digits[np.arange(240), rows // 2 + down, columns // 2 + right]
    assert (found == data.train.labels).mean() > 0.97
    assert np.bincount(direction, minlength=8).min() > 15  # all directions
    others = np.delete(digits.reshape(240, -1), rows * columns // 2, axis=1)
    assert np.abs(np.bincount(others.ravel(), minlength=10) / others.size - 0.1).max() < 0.03


def read_cells(cells, characters, turns):
    """The number of the character and its turn, turns * character + turn, that a cell correlates with most."""
    templates = np.stack([draw_turned(characters, number, turns) for number in range(len(characters))], axis=1)
    return find_nearest(cells, templates.reshape(-1, cells.shape[-1])) % (len(characters) * turns)


def draw_turned(characters, number, turns):
    """One of the characters in every font and turn: (fonts, turns, 1024) pixels."""
    masters = drawn.draw_masters(32, characters)[:, number]
    still = np.zeros(len(masters))
    angles = 2 * np.pi * np.arange(turns) / turns
    turned = [drawn.draw_characters(masters, (32, 32), still + angle, still, still, still + 0.75) for angle in angles]
    return np.stack([pictures.reshape(len(masters), -1) for pictures in turned], axis=1)


def find_nearest(cells, templates):
    """The place of the template (T, pixels) that each cell (..., pixels) correlates with most."""
    centred = templates - templates.mean(axis=1, keepdims=True)
    return (cells @ (centred / np.linalg.norm(centred, axis=1, keepdims=True)).T).argmax(axis=-1)


def test_pictures_of_another_reach_differ_in_the_digits_pointed_to_alone():
    near, far = (load(reach=reach, image_size=40) for reach in (1, 2))
    assert np.array_equal(near.train.labels, far.train.labels)
    images = [data.train.read(np.arange(50)).reshape(50, 5, 8, 5, 8) for data in (near, far)]
    differ = (images[0] != images[1]).any(axis=(0, 2, 4))
    assert not differ[2, 2]
    assert not differ[[0, 0, 1, 1, 3, 3, 4, 4], [1, 3, 0, 4, 0, 4, 1, 3]].any()  # in no direction


def test_mistakes_are_reported_at_once_with_the_size_that_fits():
    assert refused(load, test_images=3, image_size=36) == [
        "data.test_images=3: give at least 10, one image of each class",
        "data.image_size=36: needs an odd number of cells of 8 pixels, the arrow's in the middle; "
        "give data.image_size=40",
    ]
    with pytest.raises(UserError, match=r"data\.reach=2: .* give data\.image_size=40"):
        load(reach=2)
