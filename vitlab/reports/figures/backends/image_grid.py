"""Small pictures side by side, drawn by matplotlib, and how numbers become such pictures."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas

from vitlab.config import printable
from vitlab.reports.figures.spec import Tiles

SHADES = matplotlib.colormaps["viridis"]  # read by the colour-blind too
LARGEST, WIDEST = 0.95, 9.0  # inches: the longer side of a tile at most, and of all of them together
SPACE = 0.06  # of a tile, between two
TITLE, BAR, EDGE = 0.42, 0.9, 0.12  # inches: height of the title, width of the scale, margin
LETTER = 0.068  # inches of a letter of a label
LABEL_SIDE = 0.16  # inches: a tile with less has no room for its label


def draw(figure: Tiles) -> Canvas:
    """The tiles as one sharp picture in a grid, their labels left and above, the scale on the right."""
    rows, columns, tall, wide = figure.images.shape[:4]
    unit = min(LARGEST / max(tall, wide), WIDEST / (columns * wide), WIDEST / (rows * tall))  # inches of a pixel
    gap = SPACE * max(tall, wide) * unit
    across, down = columns * (wide * unit + gap) - gap, rows * (tall * unit + gap) - gap
    named = [printable(label) for label in figure.rows] if tall * unit >= LABEL_SIDE else []
    left = EDGE + (LETTER * max(map(len, named)) + 0.08 if named else 0) + (0.2 if figure.y else 0)
    above = TITLE + (0.2 if figure.columns else 0) + (0.2 if figure.x else 0)
    right = BAR if figure.scale else EDGE
    width = max(left + across + right, left + LETTER * len(figure.x) + right, 0.2 + 0.092 * len(figure.title))
    height = above + down + EDGE
    canvas = Canvas(figsize=(width, height))
    FigureCanvasAgg(canvas)
    canvas.text(0.1 / width, 1 - 0.1 / height, figure.title, va="top", fontsize=10.5, fontweight="bold")
    for row in range(rows):
        for column in range(columns):
            place = (left + column * (wide * unit + gap), EDGE + down - tall * unit - row * (tall * unit + gap))
            axes = canvas.add_axes((place[0] / width, place[1] / height, wide * unit / width, tall * unit / height))
            axes.imshow(figure.images[row, column], interpolation="nearest", aspect="auto")
            axes.set_axis_off()
            if row == 0 and figure.columns and wide * unit >= LABEL_SIDE:
                label = printable(figure.columns[column])
                axes.set_title(label, loc="center", fontsize=7.5, pad=3)
            if column == 0 and named:
                axes.text(-0.08 / (wide * unit), 0.5, named[row], transform=axes.transAxes, ha="right", va="center")
    if figure.x:
        middle = max(left + across / 2, EDGE + LETTER * len(figure.x) / 2)
        canvas.text(middle / width, 1 - (TITLE + 0.02) / height, figure.x, ha="center", va="center")
    if figure.y:
        canvas.text(0.14 / width, (EDGE + down / 2) / height, figure.y, ha="center", va="center", rotation=90)
    if figure.scale:
        tallest = min(down, 2.1)
        bar = canvas.add_axes(
            ((left + across + 0.15) / width, (EDGE + down - tallest) / height, 0.12 / width, tallest / height)
        )
        canvas.colorbar(ScalarMappable(Normalize(*figure.ends), SHADES), cax=bar, label=figure.scale)
        bar.grid(False)
    return canvas


def shaded(values: np.ndarray, ends: tuple[float, float] | None = None) -> np.ndarray:
    """uint8 (..., 3) of values (Y, X) or more; without `ends` from their least to their largest."""
    return (255 * SHADES(scaled(values, ends))[..., :3]).round().astype(np.uint8)


def scaled(values: np.ndarray, ends: tuple[float, float] | None = None) -> np.ndarray:
    """Values as shares in 0..1 between the ends, by default their least and their largest; alike ones are 0."""
    low, high = (float(values.min()), float(values.max())) if ends is None else ends
    return np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values, dtype=float)


def pixels(image: np.ndarray) -> np.ndarray:
    """uint8 (Y, X, 3) of an image uint8 (C, Y, X); of other than 3 channels their mean, in grey."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True).round().astype(np.uint8), 3, axis=0)
    return np.moveaxis(image, 0, -1)


def wrapped(images: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Pictures (Y, X, 3) as (rows, columns, Y, X, 3), as even rows as can be; missing ones are white."""
    rows = -(-len(images) // most)
    columns = -(-len(images) // rows)
    missing = [np.full_like(images[0], 255)] * (rows * columns - len(images))
    return np.stack([*images, *missing]).reshape(rows, columns, *images[0].shape)
