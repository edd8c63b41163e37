"""Letters and digits of the DejaVu fonts, drawn at random angles, places and sizes (vitlab.data.images.drawing)."""

import string
from dataclasses import dataclass
from functools import partial

import numpy as np

from vitlab.config import UserError, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData
from vitlab.data.images import drawing
from vitlab.data.images.drawing import between

CLASSES = tuple(string.ascii_uppercase + string.digits)


def fingerprint(config: ImageDataConfig) -> list:
    return [drawing.VERSION, *drawing.list_versions()]


def load(config: ImageDataConfig) -> ImageData:
    """`train_images`, and `test_images` twice: for validation and test. Nothing is drawn before it is read."""
    problems = list(drawing.check_drawing(config, len(CLASSES)))
    if problems:
        raise UserError(problems)
    splits = drawing.make_splits(config, len(CLASSES), partial(Drawing, config))
    return ImageData(config.name, CLASSES, extent(config.image_size), 1, **splits)


@dataclass(frozen=True)
class Drawing:
    """Draws images by index: int64 (B,) -> uint8 (B, 1, H, W). Angles in radians; see configs/data/glyphs.yaml."""

    config: ImageDataConfig
    first: int

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, size = self.config, extent(self.config.image_size)
        chosen, grain = drawing.draw_numbers(config.seed, self.first, indices, 7, size, config.noise)
        font, angle, right, down, scale, back, front = chosen.T
        masters = drawing.draw_masters(min(size), CLASSES)
        glyphs = masters[(font * len(masters)).astype(np.int64), np.asarray(indices) % len(CLASSES)]
        shapes = drawing.draw_characters(
            glyphs,
            size,
            angle=between(angle, -config.rotation, config.rotation),
            right=config.shift * between(right, -1, 1),
            down=config.shift * between(down, -1, 1),
            scale=between(scale, *config.scale),
        )
        return drawing.shade(shapes, back, front, grain)
