"""Which digit does the arrow in a row point to: near digits are a matter of a few pixels, far ones of the whole row.

A picture is a row of cells. One has an arrow, whose angle says how many cells to the left or to the right the digit is
that names the class. In some pictures that digit is alone, in the others up to all other cells have digits as well.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from vitlab.config import UserError, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData
from vitlab.data.images import drawing
from vitlab.data.images.pointer import CLASSES, NUMBERS, draw_cells

VERSION = 1  # of the pictures below


def fingerprint(config: ImageDataConfig) -> list:
    return [VERSION, drawing.VERSION, *drawing.list_versions()]


def load(config: ImageDataConfig) -> ImageData:
    """`train_images`, and `test_images` twice: for validation and test. Nothing is drawn before it is read."""
    height, width = extent(config.image_size)
    problems = list(drawing.check_drawing(config, len(CLASSES)))
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
    splits = drawing.make_splits(config, len(CLASSES), partial(Drawing, config))
    return ImageData(config.name, CLASSES, (height, width), 1, **splits)


@dataclass(frozen=True)
class Drawing:
    """Draws images by index: int64 (B,) -> uint8 (B, 1, H, W). Angles in radians; see configs/data/arrow.yaml."""

    config: ImageDataConfig
    first: int

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, reach = self.config, self.config.reach
        side, width = size = extent(config.image_size)
        count, images = width // side, np.arange(len(indices))
        chosen, grain = drawing.draw_numbers(
            config.seed, self.first, indices, 6 + (1 + NUMBERS) * count, size, config.noise
        )
        place, choice, alone, others, back, front = chosen[:, :6].T
        order, per_cell = chosen[:, 6 : 6 + count], chosen[:, 6 + count :]
        symbol, *looks = per_cell.reshape(-1, count, NUMBERS).transpose(2, 0, 1)
        arrow = (place * count).astype(np.int64)
        away = np.abs(np.arange(count) - arrow[:, None])
        near = (away > 0) & (away <= reach)
        # the k-th of the cells within reach, k uniform
        target = (near.cumsum(axis=1) > (choice * near.sum(axis=1)).astype(np.int64)[:, None]).argmax(axis=1)
        order[images, target], order[images, arrow] = -1, -2
        drawn = np.where(alone < config.alone, 2, 3 + (others * (count - 2)).astype(np.int64))
        visible = order.argsort(axis=1).argsort(axis=1) < drawn[:, None]
        symbol, turn = np.where(visible, (symbol * len(CLASSES)).astype(np.int64), -1), np.zeros(symbol.shape)
        symbol[images, target] = np.asarray(indices) % len(CLASSES)
        symbol[images, arrow] = len(CLASSES)
        # from the left over the top to the right; the 2 * reach targets are as far apart as they can be
        step = target - arrow
        turn[images, arrow] = np.pi + (step + reach - (step > 0)) * np.pi / (2 * reach - 1)
        shapes = draw_cells(config, side, symbol[:, None], looks, turn)
        return drawing.shade(shapes, back, front, grain)
