"""Two or more characters in a row or a column, described in words: "a large 7 above a small K".

The description is the only one: characters are named from the left or from the top, and sizes leave a gap between small
and large.
"""

import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vitlab.config import UserError, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData
from vitlab.data.images import drawing
from vitlab.data.images.drawing import between

VERSION = 1  # of the pictures and the captions below
CHARACTERS = tuple(string.ascii_uppercase + string.digits)
RELATIONS = ("left of", "above")
SIZES = ("small", "large")
NUMBERS = 7  # random numbers of a character
CHUNK = 1024  # captions made at a time


def fingerprint(config: ImageDataConfig) -> list:
    return [VERSION, drawing.VERSION, *drawing.list_versions()]


def load(config: ImageDataConfig) -> ImageData:
    """`train_images`, and `test_images` twice: for validation and test. Nothing is drawn before it is read."""
    problems = [*drawing.check_drawing(config, 1), *check_glyphs(config)]
    if problems:
        raise UserError(problems)
    splits = drawing.make_splits(config, 1, lambda first: Drawing.of(config, first))
    return ImageData(config.name, (), extent(config.image_size), 1, **splits)


def captions(config: ImageDataConfig) -> dict[str, list[tuple[str, ...]]]:
    """The one caption of each picture of each split."""
    counts = {part: config.train_images if part == "train" else config.test_images for part in drawing.FIRSTS}
    drawings = {part: Drawing.of(config, first) for part, first in drawing.FIRSTS.items()}
    chunks = {part: np.array_split(np.arange(count), -(-count // CHUNK)) for part, count in counts.items()}
    return {
        part: [(caption,) for rows in chunks[part] for caption in drawings[part].describe(rows)] for part in drawings
    }


def check_glyphs(config: ImageDataConfig) -> Iterator[str]:
    counts = list(config.glyphs)
    if not counts or not all(isinstance(count, int) and count >= 1 for count in counts):
        yield f"data.glyphs={counts}: give how many characters a picture may have, for example [2,3]"
        return
    small, large = (list(vars(config)[key]) for key in ("scale", "large"))
    if len(large) != 2 or not 0 < large[0] <= large[1]:
        yield f"data.large={large}: give [smallest, largest], both above 0"
    elif large[1] * max(counts) > 1:
        room = f"{max(counts)} such characters are larger than the picture"
        yield f"data.large={large}: {room}; give at most {1 / max(counts):.2f}"
    elif len(small) == 2 and small[1] >= large[0]:
        yield f"data.large={large}: a large character must be larger than small ones, data.scale={small}"


class Scene(NamedTuple):
    """What pictures show, B of them with up to G characters: relation (B,), count (B,), symbol and size (B, G)."""

    relation: np.ndarray
    count: np.ndarray
    symbol: np.ndarray
    size: np.ndarray


@dataclass(frozen=True)
class Drawing:
    """Draws pictures by index: int64 (B,) -> uint8 (B, 1, H, W); see configs/data/captioned_glyphs.yaml."""

    first: int
    seed: int
    image_size: tuple[int, int]
    counts: tuple[int, ...]
    rotation: float
    shift: float
    small: tuple[float, float]
    large: tuple[float, float]
    noise: float

    @classmethod
    def of(cls, config: ImageDataConfig, first: int) -> "Drawing":
        sizes = tuple(config.scale), tuple(config.large)
        options = (config.seed, extent(config.image_size), tuple(config.glyphs), config.rotation, config.shift)
        return cls(first, *options, *sizes, config.noise)

    def draw_numbers(
        self, indices: np.ndarray, image_size: tuple[int, int], noise: float
    ) -> tuple[Scene, np.ndarray, ...]:
        """The scenes, the grey levels (2, B), the other numbers of each character (5, B, G), and the noise."""
        chosen, grain = drawing.draw_numbers(
            self.seed, self.first, indices, 4 + NUMBERS * max(self.counts), image_size, noise
        )
        relation, count, *levels = chosen[:, :4].T
        symbol, size, *others = chosen[:, 4:].reshape(len(indices), -1, NUMBERS).transpose(2, 0, 1)
        scene = Scene(
            (relation * len(RELATIONS)).astype(np.int64),
            np.asarray(self.counts)[(count * len(self.counts)).astype(np.int64)],
            (symbol * len(CHARACTERS)).astype(np.int64),
            (size * len(SIZES)).astype(np.int64),
        )
        return scene, np.stack(levels), np.stack(others), grain

    def describe(self, indices: np.ndarray) -> list[str]:
        """The caption of each picture."""
        scene = self.draw_numbers(indices, (0, 0), 0)[0]
        return [
            f" {RELATIONS[relation]} ".join(
                f"a {SIZES[size]} {CHARACTERS[symbol]}"
                for symbol, size in zip(symbols[:count], sizes[:count], strict=True)
            )
            for relation, count, symbols, sizes in zip(*scene, strict=True)
        ]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        scene, levels, (font, angle, scale, along, across), grain = self.draw_numbers(
            indices, self.image_size, self.noise
        )
        scale = np.where(scene.size, between(scale, *self.large), between(scale, *self.small))
        count, place = scene.count[:, None], np.arange(scene.symbol.shape[1])
        # of the room that a character has in its cell only half, so that neighbours are never nearly diagonal
        room = np.clip(1 / count - scale, 0, None) / 2
        along = (2 * place + 1) / count - 1 + room * between(along, -1, 1)
        across = self.shift * between(across, -1, 1)
        in_column = (scene.relation == RELATIONS.index("above"))[:, None]
        shown = place < count
        masters = drawing.draw_masters(round(self.large[1] * min(self.image_size)), CHARACTERS)
        drawn = drawing.draw_characters(
            masters[(font * len(masters)).astype(np.int64), scene.symbol][shown],
            self.image_size,
            angle=between(angle, -self.rotation, self.rotation)[shown],
            right=np.where(in_column, across, along)[shown],
            down=np.where(in_column, along, across)[shown],
            scale=scale[shown],
        )
        shapes = np.zeros((*shown.shape, *drawn.shape[1:]), dtype=np.float32)
        shapes[shown] = drawn
        return drawing.shade(shapes.max(axis=1), *levels, grain)
