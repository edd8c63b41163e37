"""Make vitlab/data/images/characters.npz: the characters of the drawn datasets in the twelve text fonts of DejaVu.

    uv run --with matplotlib python scripts/draw_characters.py

matplotlib ships the fonts (license: vitlab/data/images/DEJAVU_LICENSE.txt). Each character is drawn 256 pixels high
and cropped; the array of one is FONT/CHARACTER, such as DejaVuSans-Bold/A, uint8.
"""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont

from vitlab.data.images import drawn

RASTER = 256  # pixels
CHARACTERS = sorted({*drawn.CHARACTERS, drawn.ARROW})


def main() -> None:
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    arrays = {}
    for path in sorted(folder.glob("DejaVu*.ttf")):
        if {ord(character) for character in CHARACTERS} <= FT2Font(str(path)).get_charmap().keys():
            font = ImageFont.truetype(path, RASTER)
            arrays |= {f"{path.stem}/{character}": draw(font, character) for character in CHARACTERS}
    np.savez_compressed(drawn.MASTERS, **arrays)
    print(f"{len(arrays)} characters, {drawn.MASTERS.stat().st_size / 1e6:.2f} MB: {drawn.MASTERS}")


def draw(font: ImageFont.FreeTypeFont, character: str) -> np.ndarray:
    """uint8 (Y, X), without empty rows and columns around it."""
    left, top, right, bottom = font.getbbox(character)
    image = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(image).text((-left, -top), character, fill=255, font=font)
    return np.asarray(image.crop(image.getbbox()))


if __name__ == "__main__":
    main()
