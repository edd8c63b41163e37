"""Which digit does the arrow point to: a class that only two distant places together decide.

A picture is a grid of cells with an arrow in the middle one and a digit in each other one. The class is the digit that
is `reach` cells from the arrow in one of eight directions; the other digits distract.
"""

import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from vitlab.config import UserError, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData
from vitlab.data.images import drawing
from vitlab.data.images.drawing import between

VERSION = 1  # of the pictures below
CLASSES = tuple(string.digits)
ARROW = "\N{RIGHTWARDS ARROW}"
# (rows, columns) from the arrow, clockwise from the right
DIRECTIONS = np.array([(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)])
NUMBERS = 6  # random numbers of a cell


def fingerprint(config: ImageDataConfig) -> list:
    return [VERSION, drawing.VERSION, *drawing.list_versions()]


def load(config: ImageDataConfig) -> ImageData:
    """`train_images`, and `test_images` twice: for validation and test. Nothing is drawn before it is read."""
    problems = [*drawing.check_drawing(config, len(CLASSES)), *check_cells(config)]
    if problems:
        raise UserError(problems)
    splits = drawing.make_splits(config, len(CLASSES), partial(Drawing, config))
    return ImageData(config.name, CLASSES, extent(config.image_size), 1, **splits)


def check_cells(config: ImageDataConfig) -> Iterator[str]:
    size, cell, reach = extent(config.image_size), config.cell, config.reach
    if cell < 1 or reach < 1:
        yield from (
            f"data.{key}={vars(config)[key]}: must be at least 1" for key in ("cell", "reach") if vars(config)[key] < 1
        )
        return
    if any(side % (2 * cell) != cell for side in size):
        near = min(2 * round((side / cell - 1) / 2) + 1 for side in size) * cell
        needs = f"needs an odd number of cells of {cell} pixels, the arrow's in the middle"
        yield f"data.image_size={config.image_size}: {needs}; give data.image_size={near}"
    elif min(size) < (2 * reach + 1) * cell:
        whole = (2 * reach + 1) * cell
        yield f"data.reach={reach}: no digit is {reach} cells from the arrow; give data.image_size={whole}"
    if config.rotation > np.pi / len(DIRECTIONS):
        yield f"data.rotation={config.rotation}: above {np.pi / len(DIRECTIONS):.2f} an arrow points to other digits"


@dataclass(frozen=True)
class Drawing:
    """Draws images by index: int64 (B,) -> uint8 (B, 1, H, W). Angles in radians; see configs/data/pointer.yaml."""

    config: ImageDataConfig
    first: int

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, size = self.config, extent(self.config.image_size)
        rows, columns = (side // config.cell for side in size)
        count, images = rows * columns, np.arange(len(indices))
        chosen, grain = drawing.draw_numbers(config.seed, self.first, indices, 3 + NUMBERS * count, size, config.noise)
        direction, back, front = chosen[:, :3].T
        direction = (direction * len(DIRECTIONS)).astype(np.int64)
        symbol, *looks = chosen[:, 3:].reshape(-1, rows, columns, NUMBERS).transpose(3, 0, 1, 2)
        symbol, turn = (symbol * len(CLASSES)).astype(np.int64), np.zeros(symbol.shape)
        down_by, right_by = config.reach * DIRECTIONS[direction].T
        symbol[images, rows // 2 + down_by, columns // 2 + right_by] = np.asarray(indices) % len(CLASSES)
        symbol[:, rows // 2, columns // 2] = len(CLASSES)
        turn[:, rows // 2, columns // 2] = direction * 2 * np.pi / len(DIRECTIONS)
        return drawing.shade(draw_cells(config, config.cell, symbol, looks, turn), back, front, grain)


def draw_cells(
    config: ImageDataConfig, side: int, symbol: np.ndarray, looks: list[np.ndarray], turn: np.ndarray
) -> np.ndarray:
    """A grid of digits and arrows: float32 (B, 1, rows * side, columns * side), 0 outside a character and 1 inside.

    symbol (B, rows, columns): a digit, 10 the arrow, -1 nothing. looks: font, angle, place to the right and down, and
    scale of each in 0..1. turn: clockwise, in radians, beside the random angle.
    """
    font, angle, right, down, scale = (look.ravel() for look in looks)
    masters = drawing.draw_masters(side, (*CLASSES, ARROW))
    cells = drawing.draw_characters(
        masters[(font * len(masters)).astype(np.int64), symbol.ravel()],
        (side, side),
        angle=between(angle, -config.rotation, config.rotation) + turn.ravel(),
        right=config.shift * between(right, -1, 1),
        down=config.shift * between(down, -1, 1),
        scale=between(scale, *config.scale),
    )
    images, rows, columns = symbol.shape
    cells = cells.reshape(images, rows, columns, side, side) * (symbol >= 0)[..., None, None].astype(np.float32)
    return cells.swapaxes(2, 3).reshape(images, 1, rows * side, columns * side)
