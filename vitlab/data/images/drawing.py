"""Characters of the DejaVu fonts, drawn in batches on noisy pictures.

Image i of a seed is always the same picture: all that is random in it comes from a counter-based generator keyed by
(seed, i). So the number of images, the order and the batch in which they are drawn change nothing.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import Split

VERSION = 2  # of the drawing below, and of the characters
MASTERS = Path(__file__).with_name("characters.npz")  # by scripts/draw_characters.py, 256 pixels high
FIRSTS = {"train": 0, "validation": 2**62, "test": 2**63}  # where each split counts from: none reaches the next
BACKGROUND = (0.1, 0.2)  # grey levels in 0..1
FOREGROUND = (0.7, 1.0)  # always the lighter: with random polarity a small ViT stays at chance
LARGEST_MASTER = 160
BORDER = 4  # empty pixels of a master


def list_versions() -> list[str]:
    """The libraries that scale, sample and draw random numbers: another version may draw other pictures."""
    from importlib.metadata import version

    return [version(name) for name in ("numpy", "pillow", "torch")]


def check_drawing(config: ImageDataConfig, classes: int) -> Iterator[str]:
    """What is wrong with the keys that all drawn data sets have, one line each."""
    for key in ("train_images", "test_images"):
        if vars(config)[key] < classes:
            yield f"data.{key}={vars(config)[key]}: give at least {classes}, one image of each class"
    for key in ("seed", "rotation", "shift", "noise"):
        if not 0 <= vars(config)[key] < math.inf:
            yield f"data.{key}={vars(config)[key]}: must be 0 or more"
    scale = list(config.scale)
    if len(scale) != 2 or not 0 < scale[0] <= scale[1] < math.inf:
        yield f"data.scale={scale}: give [smallest, largest], both above 0"


def make_splits(config: ImageDataConfig, classes: int, draw: Callable[[int], Callable]) -> dict[str, Split]:
    """Each split by its name, the classes in turn; there are as many images for validation as for the test.

    `draw(first)` gives what draws images by index from the image `first` on.
    """
    counts = {part: config.train_images if part == "train" else config.test_images for part in FIRSTS}
    labels = {part: np.arange(count, dtype=np.int64) % classes for part, count in counts.items()}
    return {part: Split(labels[part], draw(first)) for part, first in FIRSTS.items()}


def between(share: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * share


def draw_numbers(
    seed: int, first: int, indices: np.ndarray, count: int, size: tuple[int, int], noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """All that is random in the images from `first` on: float64 (B, count) in 0..1, and their noise (B, 1, H, W)."""
    chosen = np.empty((len(indices), count))
    grain = np.zeros((len(indices), 1, *size), dtype=np.float32)
    for row, index in enumerate(indices):
        key = np.array([seed, first + int(index)], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key))
        chosen[row] = generator.random(count)
        if noise:
            generator.standard_normal(out=grain[row], dtype=np.float32)
    return chosen, np.float32(noise) * grain


def draw_characters(
    masters, size: tuple[int, int], angle: np.ndarray, right: np.ndarray, down: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Masters (B, 1, M, M), 0 outside and 1 inside -> float32 (B, 1, H, W).

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
    """Shapes (B, 1, H, W) in 0..1 as uint8 pictures, their grey levels chosen by `back` and `front` (B,) in 0..1."""
    back, front = (
        between(level, *ends).astype(np.float32)[:, None, None, None]
        for level, ends in ((back, BACKGROUND), (front, FOREGROUND))
    )
    return np.rint((back + (front - back) * shapes + grain).clip(0, 1) * 255).astype(np.uint8)


@cache
def draw_masters(side: int, characters: tuple[str, ...]):
    """Every character in every font: float32 (fonts, characters, 1, M, M), 0 outside the character and 1 inside.

    A character's larger side has 1.5 times `side` pixels, as far as LARGEST_MASTER, and the rest is an empty border.
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
