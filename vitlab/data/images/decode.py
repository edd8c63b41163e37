"""Pictures of any kind that Pillow opens -> uint8 (C, H, W), resized to cover the target and cropped to its centre.

Resizing is bilinear, antialiased where images shrink.
"""

import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

from vitlab.config import first_line

PAPER = "white"  # seen through transparent pixels
HUGE = 32_000_000  # pixels: what has more is reduced before it is copied; Pillow holds four bytes of each
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # twice as many are an error


def read(path: str | Path | BinaryIO, size: tuple[int, int], channels: int) -> np.ndarray:
    """The image of a file, upright, resized to cover `size` (height, width) and cropped: uint8 (channels, *size).

    Of a file with several frames the first. Raises whatever Pillow raises for a file it cannot read.
    """
    with Image.open(path) as image:
        image.draft(None, (2 * max(size),) * 2)  # a JPEG is decoded at a fraction of its size, twice ours or more
        return convert(image, size, channels)


def explain(error: Exception) -> str:
    """The first line of what Pillow says of a file that it cannot read, in plainer words where it knows no kind."""
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6} million pixels; shrink it"
    text = first_line(error)
    return "it is not an image" if text.startswith("cannot identify image file") else text


def convert(image: Image.Image, size: tuple[int, int], channels: int) -> np.ndarray:
    """uint8 (channels, *size) of an opened image, which is turned upright in place."""
    mode, stored = ("L", "L") if channels == 1 else ("RGB", "RGBX")
    image = upright(image, mode, 4 * max(size))
    # Pillow stores a colour in four bytes: there is nothing to pack, and torch resizes four channels faster than three
    pixels = np.frombuffer(image.tobytes("raw", stored), dtype=np.uint8)
    return cover(pixels.reshape(image.height, image.width, -1), size)[:channels]


def upright(image: Image.Image, mode: str, least: int) -> Image.Image:
    """An opened image, which is turned in place, in mode L or RGB; a huge one reduced, to `least` pixels or more."""
    ImageOps.exif_transpose(image, in_place=True)
    factor = min(image.size) // least
    if factor > 1 and image.width * image.height > HUGE and image.mode in ("L", "RGB", "RGBA"):
        left, top = (side % factor // 2 for side in image.size)
        width, height = (side // factor * factor for side in image.size)
        image = image.reduce(factor, (left, top, left + width, top + height))
    return to_mode(image, mode)


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


def cover(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 (h, w, C) of one picture -> uint8 (C, *size): its largest central box of that aspect, in whole pixels.

    torch's kernel for bytes gives what Pillow's resize does within one grey level, in a third of its time.
    """
    height, width = pixels.shape[:2]
    if (height, width) == size:
        return pixels.transpose(2, 0, 1)
    import torch  # not at the top: `vitlab data` resizes nothing

    inner = min(height, max(1, round(width * size[0] / size[1]))), min(width, max(1, round(height * size[1] / size[0])))
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    box = pixels[top : top + inner[0], left : left + inner[1]].copy()
    values = torch.from_numpy(box)[None].permute(0, 3, 1, 2)  # in this order its strides say channels_last
    return torch.nn.functional.interpolate(values, size, mode="bilinear", antialias=True)[0].numpy()
