"""One picture of any kind that Pillow opens -> uint8 (C, H, W)."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

from vitlab.config import first_line
from vitlab.data.images.resize import cover

PAPER = "white"  # seen through transparent pixels


def read(path: str | Path | BinaryIO, size: tuple[int, int], channels: int) -> np.ndarray:
    """The image of a file, upright, resized to cover `size` (height, width) and cropped: uint8 (channels, *size).

    Of a file with several frames the first. Raises whatever Pillow raises for a file it cannot read.
    """
    with Image.open(path) as image:
        image.draft(None, (2 * max(size),) * 2)  # a JPEG is decoded at a fraction of its size, twice ours or more
        return convert(image, size, channels)


def explain(error: Exception) -> str:
    """The first line of what Pillow says of a file that it cannot read, in plainer words where it knows no kind."""
    text = first_line(error)
    return "it is not an image" if text.startswith("cannot identify image file") else text


def convert(image: Image.Image, size: tuple[int, int], channels: int) -> np.ndarray:
    """uint8 (channels, *size) of an opened image, which is turned upright in place."""
    ImageOps.exif_transpose(image, in_place=True)
    mode, stored = ("L", "L") if channels == 1 else ("RGB", "RGBX")
    image = to_mode(image, mode)
    # Pillow stores a colour in four bytes: there is nothing to pack, and torch resizes four channels faster than three
    pixels = np.frombuffer(image.tobytes("raw", stored), dtype=np.uint8)
    return cover(pixels.reshape(image.height, image.width, -1), size)[:channels]


def to_mode(image: Image.Image, mode: str) -> Image.Image:
    """The image in mode L or RGB: palettes resolved, 16 bits brought to 8, transparency on white."""
    if image.mode.startswith("I"):  # 16-bit grey: I;16, I;16B, and I of older Pillows
        grey = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray(((grey + 128) // 257).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range; convert the file to 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, PAPER), image)
    return image if image.mode == mode else image.convert(mode)
