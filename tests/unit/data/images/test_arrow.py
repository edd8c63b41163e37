"""Arrow: the digit of a row that the arrow's angle names."""

import numpy as np
import pytest

from tests.unit.data.images.test_pointer import draw_turned, find_nearest
from vitlab import config
from vitlab.config import UserError
from vitlab.data.images import drawn
from vitlab.data.images.drawn import ARROW, DIGITS

PLAIN = {"noise": 0.0, "rotation": 0.0, "shift": 0.0, "scale": [0.75, 0.75]}
SIDE = 32


def load(**changes):
    return drawn.load(config.load("data", {"name": "arrow", "train_images": 600, "test_images": 90, **changes}))


@pytest.mark.parametrize(("cells", "reach"), [(9, 4), (4, 3)])
def test_the_class_is_the_digit_that_the_angle_names(cells, reach):
    """Read without the drawing's own numbers: each cell is the character whose master it is most like."""
    data = load(**PLAIN, image_size=[SIDE, cells * SIDE], reach=reach, alone=0)
    images = data.train.read(np.arange(250)).astype(float)
    shown = images.reshape(250, SIDE, cells, SIDE).swapaxes(1, 2).reshape(250, cells, -1)
    turns = 2 * (2 * reach - 1)
    symbols = read_characters(shown, turns)
    for number, picture in enumerate(symbols):
        pointing = [(cell, turn) for cell, (character, turn) in enumerate(picture) if character == len(DIGITS)]
        (cell, turn), *more = pointing
        assert not more
        step = (turn - turns // 2) % turns - reach  # -reach at the left
        target = cell + step + (step >= 0)
        assert picture[target][0] == data.train.labels[number]


def read_characters(cells, turns):
    """(character, turn) of each cell, (-1, 0) of an empty one: what it correlates with most; digits do not turn."""
    characters, templates, names = (*DIGITS, ARROW), [], []
    for number in range(len(characters)):
        drawn = draw_turned(characters, number, turns if number == len(DIGITS) else 1)
        templates.append(drawn.reshape(-1, SIDE * SIDE))
        names += [(number, turn) for turn in range(drawn.shape[1])] * len(drawn)
    nearest = find_nearest(cells, np.concatenate(templates))
    empty = cells.std(axis=-1) < 8  # grey levels
    return [
        [(-1, 0) if void else names[k] for void, k in zip(*row, strict=True)]
        for row in zip(empty, nearest, strict=True)
    ]


def test_half_of_the_digits_are_alone():
    whole = load(noise=0.0).train.read(np.arange(600))
    cells = whole.reshape(600, 8, 9, 8).swapaxes(1, 2).reshape(600, 9, -1)
    drawn = (cells.max(axis=-1) > cells.min(axis=(1, 2))[:, None] + 20).sum(axis=1)
    assert 0.44 < (drawn == 2).mean() < 0.56
    assert set(drawn) == set(range(2, 10))


def test_mistakes_are_reported_with_what_fits():
    with pytest.raises(UserError, match=r"^data\.reach=9: give 1 to 8 cells$"):
        load(reach=9)
    with pytest.raises(UserError, match=r"data\.image_size=24: needs a row of 3 square cells or more"):
        load(image_size=24)
