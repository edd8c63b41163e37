"""Which digit does the arrow in a row point to: near digits are a matter of a few pixels, far ones of the whole row.

A picture is a row of cells. One has an arrow, whose angle says how many cells to the left or to the right the digit is
that names the class. In some pictures that digit is alone, in the others up to all other cells have digits as well.
"""

from dataclasses import dataclass

import numpy as np

from vitlab.config import UserError, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData
from vitlab.data.images import drawing
from vitlab.data.images.drawing import between
from vitlab.data.images.pointer import ARROW, CLASSES, NUMBERS

VERSION = 1  # of the pictures below


def fingerprint(config: ImageDataConfig) -> list:
    return [VERSION, drawing.VERSION, *drawing.list_versions()]


def load(config: ImageDataConfig) -> ImageData:
    """`train_images`, and `test_images` twice: for validation and test. Nothing is drawn before it is read."""
    height, width = size = extent(config.image_size)
    problems = [*drawing.check_drawing(config, len(CLASSES))]
    if height < 1 or width % height or width < 3 * height:
        problems.append(f"data.image_size={config.image_size}: needs a row of 3 square cells or more, such as [8, 72]")
    elif not 1 <= config.reach < width // height:
        problems.append(f"data.reach={config.reach}: give 1 to {width // height - 1} cells")
    elif config.rotation > np.pi / (2 * config.reach - 1) / 2:
        most = np.pi / (2 * config.reach - 1) / 2
        problems.append(f"data.rotation={config.rotation}: above {most:.2f} an arrow points to other digits")
    if not 0 <= config.alone <= 1:
        problems.append(f"data.alone={config.alone}: a share of the pictures; give 0 to 1")
    if problems:
        raise UserError(problems)
    options = (config.seed, size, config.reach, config.alone, config.rotation, config.shift, tuple(config.scale))
    splits = drawing.make_splits(config, len(CLASSES), lambda first: Drawing(first, *options, config.noise))
    return ImageData(config.name, CLASSES, size, 1, **splits)


@dataclass(frozen=True)
class Drawing:
    """Draws images by index: int64 (B,) -> uint8 (B, 1, H, W). Angles in radians; see configs/data/arrow.yaml."""

    first: int
    seed: int
    size: tuple[int, int]
    reach: int
    alone: float
    rotation: float
    shift: float
    scale: tuple[float, float]
    noise: float

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        side, count = self.size[0], self.size[1] // self.size[0]
        images, cells = np.arange(len(indices)), np.arange(count)
        chosen, grain = drawing.draw_numbers(
            self.seed, self.first, indices, 6 + (1 + NUMBERS) * count, self.size, self.noise
        )
        place, choice, alone, others, back, front = chosen[:, :6].T
        order, per_cell = chosen[:, 6 : 6 + count].copy(), chosen[:, 6 + count :]
        symbol, font, angle, right, down, scale = per_cell.reshape(-1, NUMBERS).T
        arrow = (place * count).astype(np.int64)
        away = np.abs(cells - arrow[:, None])
        near = (away > 0) & (away <= self.reach)
        # the k-th of the cells within reach, k uniform
        target = (near.cumsum(axis=1) > (choice * near.sum(axis=1)).astype(np.int64)[:, None]).argmax(axis=1)
        symbol = (symbol * len(CLASSES)).astype(np.int64).reshape(-1, count)
        symbol[images, target] = np.asarray(indices) % len(CLASSES)
        symbol[images, arrow] = len(CLASSES)
        order[images, target], order[images, arrow] = -1, -2
        drawn = np.where(alone < self.alone, 2, 3 + (others * (count - 2)).astype(np.int64))
        visible = order.argsort(axis=1).argsort(axis=1) < drawn[:, None]
        # from the left over the top to the right; the 2 * reach targets are as far apart as they can be
        step = target - arrow
        turn = np.pi + (step + self.reach - (step > 0)) * np.pi / (2 * self.reach - 1)
        angle = between(angle, -self.rotation, self.rotation).reshape(-1, count)
        angle[images, arrow] += turn
        masters = drawing.draw_masters(side, (*CLASSES, ARROW))
        shapes = drawing.draw_characters(
            masters[(font * len(masters)).astype(np.int64), symbol.ravel()],
            (side, side),
            angle=angle.ravel(),
            right=self.shift * between(right, -1, 1),
            down=self.shift * between(down, -1, 1),
            scale=between(scale, *self.scale),
        ).reshape(-1, count, side, side)
        shapes = (shapes * visible[:, :, None, None]).swapaxes(1, 2).reshape(-1, 1, *self.size)
        return drawing.shade(shapes.astype(np.float32), back, front, grain)
