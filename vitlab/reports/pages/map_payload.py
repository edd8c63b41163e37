"""Attention over images in the form that the scripts of pages read: images as PNG, maps and the colour map as bytes."""

import io
from typing import Any

import numpy as np
from PIL import Image

from vitlab.config import printable
from vitlab.reports.figures.cells import SHADES, to_pixels
from vitlab.reports.pages.quantize import encode_bytes, quantize_rows
from vitlab.reports.pages.render import data_address
from vitlab.studies.results import AttentionMaps

STOPS = 9  # of the legend's gradient


def count_fitting(most: int, *arrays: np.ndarray) -> int:
    """How many images fit: the arrays (B, ...) take one byte per value and at most `most` bytes; at least one image."""
    return max(1, min(len(arrays[0]), most // sum(array[0].size for array in arrays)))


def encode_pictures(maps: AttentionMaps, count: int) -> list[dict[str, str]]:
    """`{"src", "name"}` of the first images."""
    return [
        {"src": encode_png(image), "name": printable(name)}
        for image, name in zip(maps.pictures[:count], maps.names[:count], strict=True)
    ]


def encode_png(image: np.ndarray) -> str:
    """An image uint8 (C, Y, X) as a data URL; a single channel as a greyscale file, which is a third as large."""
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else to_pixels(image)).save(file, format="PNG", optimize=True)
    return data_address(file.getvalue(), "image/png")


def quantize_maps(maps: np.ndarray) -> dict[str, Any]:
    """Maps (..., gy, gx), each scaled by its own largest value."""
    return quantize_rows(maps.reshape(*maps.shape[:-2], -1))


def encode_shades() -> str:
    """The colour map: 256 colours, three bytes each (RGB), in base64."""
    return encode_bytes(SHADES.round().astype(np.uint8))


def format_gradient() -> str:
    """The colour map as a CSS gradient."""
    colours = SHADES[np.linspace(0, 255, STOPS).round().astype(int)].round().astype(int)
    return f"linear-gradient(to right, {', '.join('rgb({} {} {})'.format(*colour) for colour in colours)})"
