"""Attention over pictures as the scripts of pages take it: pictures as PNG, maps as bytes, the shades as a table."""

import io
from typing import Any

import numpy as np
from PIL import Image

from vitlab.config import printable
from vitlab.reports.figures.backends.image_grid import SHADES, pixels
from vitlab.reports.pages.quantize import encoded, packed
from vitlab.reports.pages.render import data_address
from vitlab.reports.results.run_results import AttentionMaps

STOPS = 9  # of the gradient that stands for the shades in a legend


def fitting(most: int, *arrays: np.ndarray) -> int:
    """Of how many pictures these arrays (B, ...) take no more than so many bytes in all; at least one."""
    return max(1, min(len(arrays[0]), most // sum(array[0].size for array in arrays)))


def pictures(maps: AttentionMaps, count: int) -> list[dict[str, str]]:
    """`{"src", "name"}` of the first pictures."""
    return [
        {"src": png(image), "name": printable(name)}
        for image, name in zip(maps.pictures[:count], maps.names[:count], strict=True)
    ]


def png(image: np.ndarray) -> str:
    """A picture uint8 (C, Y, X) as a data address; of one channel as a grey file, which is a third as large."""
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else pixels(image)).save(file, format="PNG", optimize=True)
    return data_address(file.getvalue(), "image/png")


def rows_of(maps: np.ndarray) -> dict[str, Any]:
    """Maps (..., gy, gx), each of them packed by itself, row by row."""
    return packed(maps.reshape(*maps.shape[:-2], -1))


def shade_table() -> str:
    """The 256 shades as bytes, red, green and blue of each, in base64."""
    return encoded((255 * SHADES(np.arange(256))[:, :3]).round().astype(np.uint8))


def shade_gradient() -> str:
    """The shades from 0 to the largest value, as a gradient of CSS."""
    colours = (255 * SHADES(np.linspace(0, 1, STOPS))[:, :3]).round().astype(int)
    return f"linear-gradient(to right, {', '.join('rgb({} {} {})'.format(*colour) for colour in colours)})"
