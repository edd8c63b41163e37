"""Which digit does the arrow point to: a class that only two distant places together decide.

A picture is a grid of cells with an arrow in the middle one and a digit in each other one. The class is the digit that
is `reach` cells from the arrow in one of eight directions; the other digits distract.
"""

import string
from collections.abc import Iterator
from dataclasses import dataclass

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
    size = extent(config.image_size)
    options = (config.seed, size, config.cell, config.reach, config.rotation, config.shift, tuple(config.scale))
    splits = drawing.make_splits(config, len(CLASSES), lambda first: Drawing(first, *options, config.noise))
    return ImageData(config.name, CLASSES, size, 1, **splits)


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

    first: int
    seed: int
    size: tuple[int, int]
    cell: int
    reach: int
    rotation: float
    shift: float
    scale: tuple[float, float]
    noise: float

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        rows, columns = (side // self.cell for side in self.size)
        count, images = rows * columns, np.arange(len(indices))
        chosen, grain = drawing.draw_numbers(self.seed, self.first, indices, 3 + NUMBERS * count, self.size, self.noise)
        direction, back, front = chosen[:, :3].T
        symbol, font, angle, right, down, scale = chosen[:, 3:].reshape(-1, NUMBERS).T
        direction = (direction * len(DIRECTIONS)).astype(np.int64)
        symbol = (symbol * len(CLASSES)).astype(np.int64).reshape(-1, rows, columns)
        down_by, right_by = self.reach * DIRECTIONS[direction].T
        symbol[images, rows // 2 + down_by, columns // 2 + right_by] = np.asarray(indices) % len(CLASSES)
        symbol[:, rows // 2, columns // 2] = len(CLASSES)
        angle = between(angle, -self.rotation, self.rotation).reshape(symbol.shape)
        angle[:, rows // 2, columns // 2] += direction * 2 * np.pi / len(DIRECTIONS)
        masters = drawing.draw_masters(self.cell, (*CLASSES, ARROW))
        cells = drawing.draw_characters(
            masters[(font * len(masters)).astype(np.int64), symbol.ravel()],
            (self.cell, self.cell),
            angle=angle.ravel(),
            right=self.shift * between(right, -1, 1),
            down=self.shift * between(down, -1, 1),
            scale=between(scale, *self.scale),
        )
        shapes = cells.reshape(-1, rows, columns, self.cell, self.cell).swapaxes(2, 3).reshape(-1, 1, *self.size)
        return drawing.shade(shapes, back, front, grain)
