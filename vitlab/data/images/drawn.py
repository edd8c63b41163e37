"""Data sets of drawn characters: glyphs, pointer, arrow and captioned_glyphs. No download, any number of images.

Pictures show characters of the DejaVu fonts, with noise. A counter-based generator keyed by (seed, i) draws image i,
so neither the number of images nor their order or batch changes it. Angles are in radians; GlyphsConfig says what each
key means.
"""

import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vitlab.config import extent, raise_all
from vitlab.config.schema.data import GlyphsConfig
from vitlab.data.base import ImageData, Split

VERSION = 2  # of the drawing that all sets share, and of the characters
VERSIONS = {"glyphs": 0, "pointer": 1, "arrow": 1, "captioned_glyphs": 1}  # of each set's pictures
MASTERS = Path(__file__).with_name("characters.npz")  # by scripts/make.py, 256 pixels high
FIRSTS = {"train": 0, "validation": 2**62, "test": 2**63}  # where each split counts from: none reaches the next
BACKGROUND = (0.1, 0.2)  # grey levels in 0..1
FOREGROUND = (0.7, 1.0)  # always the lighter: with random polarity a small ViT stays at chance
LARGEST_MASTER = 160
BORDER = 4  # empty pixels of a master
CHARACTERS = tuple(string.ascii_uppercase + string.digits)
DIGITS = tuple(string.digits)
ARROW = "\N{RIGHTWARDS ARROW}"
# (rows, columns) from the arrow, clockwise from the right
DIRECTIONS = np.array([(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)])
RELATIONS = ("left of", "above")
SIZES = ("small", "large")


def load(config: GlyphsConfig) -> ImageData:
    """Make splits: `train_images` for train, `test_images` each for validation and test. Reading an image draws it."""
    drawing = DRAWINGS[config.kind]
    classes = max(1, len(drawing.classes))
    counts = {"train": config.train_images, "validation": config.test_images, "test": config.test_images}
    problems = [
        f"data.{key}={vars(config)[key]}: give at least {classes}, one image of each class"
        for key in ("train_images", "test_images")
        if vars(config)[key] < classes
    ]
    raise_all([*problems, *drawing.problems(config)])
    splits = {}
    for part, count in counts.items():
        read = drawing(config, FIRSTS[part])
        splits[part] = Split(np.arange(count, dtype=np.int64) % classes, read, targets=read.describe(count))
    return ImageData(config.name, drawing.classes, extent(config.image_size), 1, **splits)


def fingerprint(config: GlyphsConfig) -> list:
    """Return the versions of the drawing, and of the libraries that scale, sample and draw random numbers."""
    from importlib.metadata import version

    return [VERSIONS[config.kind], VERSION, *map(version, ("numpy", "pillow", "torch"))]


@dataclass(frozen=True)
class Drawing:
    """A reader that draws the images from `first` on by index: int64 (B,) -> uint8 (B, 1, H, W).

    An image's class is its index modulo the number of classes.
    """

    config: GlyphsConfig
    first: int
    classes: ClassVar[tuple[str, ...]] = DIGITS

    @staticmethod
    def problems(config: GlyphsConfig) -> Iterator[str]:
        """Yield problems of the set's own keys, one line each."""
        return iter(())

    def describe(self, count: int) -> np.ndarray | None:
        """Return the captions of the first images, if they have any: UTF-8 (count, 1)."""
        return None

    def draw_numbers(
        self, indices: np.ndarray, count: int, size: tuple[int, int], noise: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw all random numbers of images: float64 (B, count) in 0..1, and their noise (B, 1, *size)."""
        chosen = np.empty((len(indices), count))
        grain = np.zeros((len(indices), 1, *size), dtype=np.float32)
        for row, index in enumerate(indices):
            key = np.array([self.config.seed, self.first + int(index)], dtype=np.uint64)
            generator = np.random.Generator(np.random.Philox(key=key))
            chosen[row] = generator.random(count)
            if noise:
                generator.standard_normal(out=grain[row], dtype=np.float32)
        return chosen, np.float32(noise) * grain

    def draw_symbols(
        self, characters: tuple[str, ...], symbol: np.ndarray, size: tuple[int, int], looks: Any, turn: Any = 0.0
    ) -> np.ndarray:
        """Draw one character a picture, float32 (B, 1, *size): `symbol` int (B,) says which.

        looks: font, angle, place to the right and down, and scale of each in 0..1. turn: clockwise, in radians, beside
        the random angle.
        """
        config, masters = self.config, draw_masters(min(size), characters)
        font, angle, right, down, scale = looks
        return draw_characters(
            masters[choose(font, len(masters)), symbol],
            size,
            angle=between(angle, -config.rotation, config.rotation) + turn,
            right=config.shift * between(right, -1, 1),
            down=config.shift * between(down, -1, 1),
            scale=between(scale, *config.scale),
        )

    def draw_cells(self, side: int, symbol: np.ndarray, looks: list[np.ndarray], turn: np.ndarray) -> np.ndarray:
        """Draw a grid of digits and arrows: float32 (B, 1, rows * side, columns * side), 1 within a character, else 0.

        symbol (B, rows, columns): a digit, 10 the arrow, -1 nothing. looks, turn: as in `draw_symbols`.
        """
        looks = [look.ravel() for look in looks]
        cells = self.draw_symbols((*DIGITS, ARROW), symbol.ravel(), (side, side), looks, turn.ravel())
        images, rows, columns = symbol.shape
        cells = cells.reshape(images, rows, columns, side, side) * (symbol >= 0)[..., None, None].astype(np.float32)
        return cells.swapaxes(2, 3).reshape(images, 1, rows * side, columns * side)


class Glyphs(Drawing):
    """Letters and digits at random angles, places and sizes."""

    classes = CHARACTERS

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, size = self.config, extent(self.config.image_size)
        chosen, grain = self.draw_numbers(indices, 7, size, config.noise)
        *looks, back, front = chosen.T
        shapes = self.draw_symbols(CHARACTERS, np.asarray(indices) % len(CHARACTERS), size, looks)
        return shade(shapes, back, front, grain)


class Pointer(Drawing):
    """Pictures of an arrow that points to a digit: two distant places together decide the class.

    A picture is a grid of cells with an arrow in the middle one and a digit in each other one. The class is the digit
    that is `reach` cells from the arrow in one of eight directions; the other digits distract.
    """

    @staticmethod
    def problems(config: GlyphsConfig) -> Iterator[str]:
        size, cell, reach = extent(config.image_size), config.cell, config.reach
        if any(side % (2 * cell) != cell for side in size):
            near = min(2 * round((side / cell - 1) / 2) + 1 for side in size) * cell
            needs = f"needs an odd number of cells of {cell} pixels, the arrow's in the middle"
            yield f"data.image_size={config.image_size}: {needs}; give data.image_size={near}"
        elif min(size) < (2 * reach + 1) * cell:
            whole = (2 * reach + 1) * cell
            yield f"data.reach={reach}: no digit is {reach} cells from the arrow; give data.image_size={whole}"

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, size = self.config, extent(self.config.image_size)
        rows, columns = (side // config.cell for side in size)
        images = np.arange(len(indices))
        chosen, grain = self.draw_numbers(indices, 3 + 6 * rows * columns, size, config.noise)
        direction, back, front = chosen[:, :3].T
        direction = choose(direction, len(DIRECTIONS))
        symbol, *looks = chosen[:, 3:].reshape(-1, rows, columns, 6).transpose(3, 0, 1, 2)
        symbol, turn = choose(symbol, len(DIGITS)), np.zeros(symbol.shape)
        down_by, right_by = config.reach * DIRECTIONS[direction].T
        symbol[images, rows // 2 + down_by, columns // 2 + right_by] = np.asarray(indices) % len(DIGITS)
        symbol[:, rows // 2, columns // 2] = len(DIGITS)
        turn[:, rows // 2, columns // 2] = direction * 2 * np.pi / len(DIRECTIONS)
        return shade(self.draw_cells(config.cell, symbol, looks, turn), back, front, grain)


class Arrow(Drawing):
    """Pictures of an arrow in a row that points to a digit: near digits take a few pixels, far ones a whole row.

    A picture is a row of cells. One cell has an arrow, whose angle says how many cells to the left or to the right lies
    the digit that names the class. In some pictures that digit is alone, in others up to all other cells have digits.
    """

    @staticmethod
    def problems(config: GlyphsConfig) -> Iterator[str]:
        height, width = extent(config.image_size)
        if height < 1 or width % height or width < 3 * height:
            yield f"data.image_size={config.image_size}: needs a row of 3 square cells or more, such as [8, 72]"
        elif not 1 <= config.reach < width // height:
            yield f"data.reach={config.reach}: give 1 to {width // height - 1} cells"

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, reach = self.config, self.config.reach
        side, width = size = extent(config.image_size)
        count, images = width // side, np.arange(len(indices))
        chosen, grain = self.draw_numbers(indices, 6 + 7 * count, size, config.noise)
        place, choice, alone, others, back, front = chosen[:, :6].T
        order, per_cell = chosen[:, 6 : 6 + count], chosen[:, 6 + count :]
        symbol, *looks = per_cell.reshape(-1, count, 6).transpose(2, 0, 1)
        arrow = choose(place, count)
        away = np.abs(np.arange(count) - arrow[:, None])
        near = (away > 0) & (away <= reach)
        # the k-th of the cells within reach, k uniform
        target = (near.cumsum(axis=1) > choose(choice, near.sum(axis=1))[:, None]).argmax(axis=1)
        order[images, target], order[images, arrow] = -1, -2
        drawn = np.where(alone < config.alone, 2, 3 + choose(others, count - 2))
        visible = order.argsort(axis=1).argsort(axis=1) < drawn[:, None]
        symbol, turn = np.where(visible, choose(symbol, len(DIGITS)), -1), np.zeros(symbol.shape)
        symbol[images, target] = np.asarray(indices) % len(DIGITS)
        symbol[images, arrow] = len(DIGITS)
        # from the left over the top to the right; the 2 * reach targets are as far apart as they can be
        step = target - arrow
        turn[images, arrow] = np.pi + (step + reach - (step > 0)) * np.pi / (2 * reach - 1)
        return shade(self.draw_cells(side, symbol[:, None], looks, turn), back, front, grain)


class CaptionedGlyphs(Drawing):
    """Two or more characters in a row or a column, described in words: "a large 7 above a small K".

    The description is the only one: characters are named from the left or from the top, and sizes leave a gap between
    small and large.
    """

    classes = ()

    def draw_scenes(
        self, indices: np.ndarray, size: tuple[int, int], noise: float
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray, np.ndarray]:
        """Draw the scenes of B pictures with up to G characters: relation and count (B,), symbol and size (B, G); the
        grey levels (2, B), the other numbers of each character (5, B, G), and the noise.
        """
        counts = np.asarray(self.config.glyphs)
        chosen, grain = self.draw_numbers(indices, 4 + 7 * counts.max(), size, noise)
        relation, count, *levels = chosen[:, :4].T
        symbol, large, *others = chosen[:, 4:].reshape(len(indices), -1, 7).transpose(2, 0, 1)
        relation, count = choose(relation, len(RELATIONS)), counts[choose(count, len(counts))]
        scene = relation, count, choose(symbol, len(CHARACTERS)), choose(large, len(SIZES))
        return scene, np.stack(levels), np.stack(others), grain

    def describe(self, count: int) -> np.ndarray:
        captions = []
        for relation, several, *each in zip(*self.draw_scenes(np.arange(count), (0, 0), 0)[0], strict=True):
            named = [f"a {SIZES[size]} {CHARACTERS[symbol]}" for symbol, size in zip(*each, strict=True)]
            captions.append([f" {RELATIONS[relation]} ".join(named[:several]).encode()])
        return np.array(captions)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        config, size = self.config, extent(self.config.image_size)
        scene, levels, (font, angle, scale, along, across), grain = self.draw_scenes(indices, size, config.noise)
        relation, count, symbol, large = scene
        scale = np.where(large, between(scale, *config.large), between(scale, *config.scale))
        count, place = count[:, None], np.arange(symbol.shape[1])
        # use half of a character's room in its cell, so that neighbours are never nearly diagonal
        room = np.clip(1 / count - scale, 0, None) / 2
        along = (2 * place + 1) / count - 1 + room * between(along, -1, 1)
        across = config.shift * between(across, -1, 1)
        in_column = (relation == RELATIONS.index("above"))[:, None]
        shown = place < count
        masters = draw_masters(round(config.large[1] * min(size)), CHARACTERS)
        drawn = draw_characters(
            masters[choose(font, len(masters)), symbol][shown],
            size,
            angle=between(angle, -config.rotation, config.rotation)[shown],
            right=np.where(in_column, across, along)[shown],
            down=np.where(in_column, along, across)[shown],
            scale=scale[shown],
        )
        shapes = np.zeros((*shown.shape, *drawn.shape[1:]), dtype=np.float32)
        shapes[shown] = drawn
        return shade(shapes.max(axis=1), *levels, grain)


DRAWINGS = {"glyphs": Glyphs, "pointer": Pointer, "arrow": Arrow, "captioned_glyphs": CaptionedGlyphs}


def choose(share: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """Turn shares in 0..1 into int64 from 0 to count - 1."""
    return (share * count).astype(np.int64)


def between(share: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * share


def draw_characters(
    masters, size: tuple[int, int], angle: np.ndarray, right: np.ndarray, down: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Place masters (B, 1, M, M), 0 outside and 1 inside, on pictures: float32 (B, 1, H, W).

    angle: clockwise, in radians. right, down: from the picture's middle, as shares of half of it. scale: the larger
    side of the character against the picture's smaller one.
    """
    import torch  # not at the top: a warm cache draws nothing

    H, W = size
    x = (np.arange(W) + 0.5 - W / 2 - right[:, None] * W / 2)[:, None, :]
    y = (np.arange(H) + 0.5 - H / 2 - down[:, None] * H / 2)[:, :, None]
    half = scale * min(H, W) / 2
    cos, sin = (np.cos(angle) / half)[:, None, None], (np.sin(angle) / half)[:, None, None]
    # where in the master's square, -1..1 either way, each pixel looks: (B, H, W, 2) of x and y
    grid = np.stack([cos * x + sin * y, cos * y - sin * x], axis=-1).astype(np.float32)
    filled = (masters.shape[-1] - BORDER) / masters.shape[-1]
    return torch.nn.functional.grid_sample(masters, torch.from_numpy(grid * filled), align_corners=False).numpy()


def shade(shapes: np.ndarray, back: np.ndarray, front: np.ndarray, grain: np.ndarray) -> np.ndarray:
    """Shade shapes (B, 1, H, W) in 0..1 as uint8 pictures; `back` and `front` (B,) in 0..1 choose their grey levels."""
    back, front = (
        between(level, *ends).astype(np.float32)[:, None, None, None]
        for level, ends in ((back, BACKGROUND), (front, FOREGROUND))
    )
    return np.rint((back + (front - back) * shapes + grain).clip(0, 1) * 255).astype(np.uint8)


@cache
def draw_masters(side: int, characters: tuple[str, ...]):
    """Draw every character in every font: float32 (fonts, characters, 1, M, M), 0 outside the character and 1 inside.

    A character's larger side has 1.5 times `side` pixels, at most LARGEST_MASTER, and the rest is an empty border.
    """
    import torch
    from PIL import Image

    side = min(LARGEST_MASTER, round(1.5 * side))
    canvas = side + BORDER
    masters = []
    with np.load(MASTERS) as arrays:
        fonts = list(dict.fromkeys(name.partition("/")[0] for name in arrays))
        for name in (f"{font}/{character}" for font in fonts for character in characters):
            character = Image.fromarray(arrays[name])
            shrink = side / max(character.size)
            width, height = (max(1, round(shrink * pixels)) for pixels in character.size)
            master = Image.new("L", (canvas, canvas))
            character = character.resize((width, height), Image.Resampling.BOX)
            master.paste(character, ((canvas - width) // 2, (canvas - height) // 2))
            masters.append(np.asarray(master))
    stack = torch.from_numpy(np.stack(masters)).float().div_(255)
    return stack.view(-1, len(characters), 1, canvas, canvas)
