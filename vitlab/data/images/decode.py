"""Decoding pictures of FORMATS to uint8 (C, H, W), resized to cover the target and cropped to its centre.

Resizing is bilinear, antialiased where images shrink. Grey levels of more than 8 bits run from black, 0, to white,
2^bits - 1: `data.bits`, the same for all pictures of a run. A value outside is an error, for no other value is right.
"""

import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

from vitlab.config import first_line
from vitlab.files import check_regular

# of the endings that are read. Pillow knows more, by a file's content: for an EPS it starts Ghostscript
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
PAPER = "white"  # seen through transparent pixels
BITS = 16  # of grey levels of more than 8 bits, where nobody says which
HUGE = 32_000_000  # pixels: what has more is reduced before it is copied; Pillow holds four bytes of each
BAND = 4_000_000  # pixels that are copied at a time
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # twice as many are an error


def open_image(file: str | Path | BinaryIO) -> Image.Image:
    """Open a user's picture without decoding it. Raises whatever Pillow raises for a file that it cannot read."""
    if isinstance(file, str | Path):
        check_regular(file, str(file))
    return Image.open(file, formats=FORMATS)


def name_mode(image: Image.Image) -> str:
    """Return Pillow's mode of an opened image; RGB;16 for colors of 16 bits, whose upper 8 it reads."""
    return f"{image.mode};16" if not image.mode.startswith("I") and ";16" in str(image.tile[:1]) else image.mode


def read(file: str | Path | BinaryIO, size: tuple[int, int], channels: int, bits: int = BITS) -> np.ndarray:
    """Read a file's image, upright, resized to cover `size` (height, width) and cropped: uint8 (channels, *size).

    It reads the first of several frames. Raises as `open_image`, and ValueError for levels outside of `bits`.
    """
    with open_image(file) as image:
        image.draft(None, (2 * max(size),) * 2)  # a JPEG is decoded at a fraction of its size, twice ours or more
        return convert(image, size, channels, bits)


def explain(error: Exception) -> str:
    """Explain why Pillow cannot read a file: its message's first line, or plainer words if it knows no such format."""
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6} million pixels; shrink it"
    text = first_line(error)
    return "it is not an image" if text.startswith("cannot identify image file") else text


def convert(image: Image.Image, size: tuple[int, int], channels: int, bits: int = BITS) -> np.ndarray:
    """Convert an opened image, which is turned upright in place, to uint8 (channels, *size)."""
    mode, stored = ("L", "L") if channels == 1 else ("RGB", "RGBX")
    image = flatten(upright(image, 4 * max(size), bits), mode)
    # Pillow stores a colour in four bytes: there is nothing to pack, and torch resizes four channels faster than three
    pixels = np.frombuffer(image.tobytes("raw", stored), dtype=np.uint8)
    return cover(pixels.reshape(image.height, image.width, -1), size)[:channels]


def upright(image: Image.Image, least: int, bits: int = BITS) -> Image.Image:
    """Turn an opened image upright in place and `resolve` it; a HUGE one is reduced, to a shorter side of `least` or
    more, in bands, so that the whole is never copied.
    """
    if bits != BITS and image.mode.startswith("RGB") and name_mode(image) != image.mode:
        raise ValueError("of 16 bits a color the upper 8 are read, whatever data.bits; convert the file to 8 bits")
    ImageOps.exif_transpose(image, in_place=True)
    factor = min(image.size) // least
    if factor < 2 or image.width * image.height <= HUGE:
        return resolve(image, bits)
    left, top = (side % factor // 2 for side in image.size)
    right, bottom = (place + side // factor * factor for place, side in zip((left, top), image.size, strict=True))
    step = factor * max(1, BAND // (image.width * factor))
    rows = ((row, min(row + step, bottom)) for row in range(top, bottom, step))
    bands = [resolve(image.crop((left, first, right, last)), bits).reduce(factor) for first, last in rows]
    return Image.fromarray(np.concatenate([np.asarray(band) for band in bands]))


def resolve(image: Image.Image, bits: int = BITS) -> Image.Image:
    """Convert an image to mode L, LA, RGB or RGBA: palettes resolved, more than 8 bits brought to 8."""
    if image.mode.startswith("I"):  # grey of 16 bits (I;16, I;16B) or 32
        grey, white = np.asarray(image).astype(np.int64), 2**bits - 1
        if grey.min() < 0 or grey.max() > white:
            outside = f"its grey levels, {grey.min():,} to {grey.max():,}, leave 0 to {white:,} (data.bits={bits})"
            more = "give more bits for all pictures, or " if grey.min() >= 0 else ""
            raise ValueError(f"{outside}; {more}convert it to 8 bits")
        return Image.fromarray(((grey * 255 + white // 2) // white).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range; convert the file to 8 or 16 bits")
    if image.has_transparency_data:
        return image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")


def flatten(image: Image.Image, mode: str) -> Image.Image:
    """Convert a resolved image to mode L or RGB, on white where it is transparent."""
    if image.mode in ("LA", "RGBA"):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, PAPER), image)
    return image if image.mode == mode else image.convert(mode)


def cover(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Crop a picture, uint8 (h, w, C), to its largest central box of the size's aspect and resize it: uint8 (C, *size).

    torch's kernel for bytes is within one grey level of Pillow's resize, in a third of its time.
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
