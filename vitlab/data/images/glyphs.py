"""Letters and digits of the DejaVu fonts that matplotlib ships, drawn at random angles, places and sizes.

Image i of a seed is always the same picture: all that is random in it comes from a counter-based generator keyed by
(seed, i). So the number of images, the order and the batch in which they are drawn change nothing.
"""

import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from vitlab.config import UserError, extent
from vitlab.data.base import ImageData, Split

VERSION = 1  # of the drawing below
CLASSES = tuple(string.ascii_uppercase + string.digits)
HELD_OUT = 2**63  # held-out images count from here, where no training set reaches
BACKGROUND = (0.1, 0.2)  # grey levels in 0..1
FOREGROUND = (0.7, 1.0)  # always the lighter: with random polarity a small ViT stays at chance
RASTER = 256  # pixels at which a font is drawn before it is reduced to a master
LARGEST_MASTER = 160


def fingerprint(config: DictConfig) -> list:
    """The drawing's version and the libraries that rasterise, sample and draw random numbers."""
    from importlib.metadata import version

    return [VERSION, *(version(name) for name in ("matplotlib", "numpy", "pillow", "torch"))]


def load(config: DictConfig) -> ImageData:
    """`train_images` and `test_images` pictures, the classes in turn. Nothing is drawn before it is read."""
    problems = list(check_options(config))
    if problems:
        raise UserError(problems)
    splits, size = {}, extent(config.image_size)
    for part, count, first in (("train", config.train_images, 0), ("test", config.test_images, HELD_OUT)):
        labels = np.arange(count, dtype=np.int64) % len(CLASSES)
        draw = Drawing(first, config.seed, size, config.rotation, config.shift, tuple(config.scale), config.noise)
        splits[part] = Split(labels, draw)
    return ImageData(config.name, CLASSES, size, 1, **splits)


def check_options(config: DictConfig) -> Iterator[str]:
    for key in ("train_images", "test_images"):
        if config[key] < len(CLASSES):
            yield f"data.{key}={config[key]}: give at least {len(CLASSES)}, one image of each class"
    for key in ("seed", "rotation", "shift", "noise"):
        if not 0 <= config[key] < math.inf:
            yield f"data.{key}={config[key]}: must be 0 or more"
    scale = list(config.scale)
    if len(scale) != 2 or not 0 < scale[0] <= scale[1] < math.inf:
        yield f"data.scale={scale}: give [smallest, largest], both above 0"


@dataclass(frozen=True)
class Drawing:
    """Draws images by index: int64 (B,) -> uint8 (B, 1, H, W). Angles in radians; see configs/data/glyphs.yaml."""

    first: int
    seed: int
    size: tuple[int, int]
    rotation: float
    shift: float
    scale: tuple[float, float]
    noise: float

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        import torch  # not at the top: a warm cache draws nothing

        H, W = self.size
        B = len(indices)
        chosen = np.empty((B, 7))
        grain = np.zeros((B, 1, H, W), dtype=np.float32)
        for row, index in enumerate(indices):
            key = np.array([self.seed, self.first + int(index)], dtype=np.uint64)
            generator = np.random.Generator(np.random.Philox(key=key))
            chosen[row] = generator.random(7)
            if self.noise:
                generator.standard_normal(out=grain[row], dtype=np.float32)
        font, angle, right, down, scale, back, front = chosen.T
        glyphs, reach = draw_masters(min(LARGEST_MASTER, round(1.5 * min(H, W))))
        which = (font * glyphs.shape[0]).astype(np.int64), np.asarray(indices) % len(CLASSES)
        grid = self.grid(between(angle, -self.rotation, self.rotation), right, down, between(scale, *self.scale))
        glyph = torch.nn.functional.grid_sample(glyphs[which], torch.from_numpy(grid * reach), align_corners=False)
        back, front = (
            between(level, *ends).astype(np.float32)[:, None, None, None]
            for level, ends in ((back, BACKGROUND), (front, FOREGROUND))
        )
        grey = back + (front - back) * glyph.numpy() + np.float32(self.noise) * grain
        return np.rint(grey.clip(0, 1) * 255).astype(np.uint8)

    def grid(self, angle: np.ndarray, right: np.ndarray, down: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Where in the glyph's square, -1..1 either way, each pixel looks: float32 (B, H, W, 2) of x and y."""
        H, W = self.size
        x = np.arange(W) + 0.5 - W / 2 - self.shift * between(right, -1, 1)[:, None] * W / 2
        y = np.arange(H) + 0.5 - H / 2 - self.shift * between(down, -1, 1)[:, None] * H / 2
        x, y = x[:, None, :], y[:, :, None]
        half = scale * min(H, W) / 2
        cos, sin = (np.cos(angle) / half)[:, None, None], (np.sin(angle) / half)[:, None, None]
        return np.stack([cos * x + sin * y, cos * y - sin * x], axis=-1).astype(np.float32)


def between(share: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * share


@cache
def draw_masters(side: int):
    """Every class in every font: float32 (fonts, classes, 1, M, M), 0 outside the glyph and 1 inside; and side / M.

    A glyph's larger side has `side` pixels, and the rest is an empty border.
    """
    import torch
    from PIL import Image, ImageDraw, ImageFont

    canvas = side + 4
    drawn = []
    for path in find_fonts():
        font = ImageFont.truetype(path, RASTER)
        for character in CLASSES:
            left, top, right, bottom = font.getbbox(character)
            glyph = Image.new("L", (right - left, bottom - top))
            ImageDraw.Draw(glyph).text((-left, -top), character, fill=255, font=font)
            glyph = glyph.crop(glyph.getbbox())
            shrink = side / max(glyph.size)
            width, height = (max(1, round(shrink * s)) for s in glyph.size)
            master = Image.new("L", (canvas, canvas))
            glyph = glyph.resize((width, height), Image.Resampling.BOX)
            master.paste(glyph, ((canvas - width) // 2, (canvas - height) // 2))
            drawn.append(np.asarray(master))
    stack = torch.from_numpy(np.stack(drawn)).float().div_(255)
    return stack.view(-1, len(CLASSES), 1, canvas, canvas), side / canvas


def find_fonts() -> list[Path]:
    """matplotlib's DejaVu fonts that have every class, sorted; its other fonts are for formulas."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    paths = []
    for path in sorted(folder.glob("DejaVu*.ttf")):
        # the display cuts hold a few symbols and no letters
        if {ord(c) for c in CLASSES} <= FT2Font(str(path)).get_charmap().keys():
            paths.append(path)
    if not paths:
        raise UserError(f"data=glyphs: matplotlib's DejaVu fonts are not in {folder}; reinstall matplotlib")
    return paths
