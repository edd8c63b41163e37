"""What a study's training sets look like: some of the images or texts that each size adds to the one before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitlab.data.loader import Items
from vitlab.data.subset import nested_order, training_items
from vitlab.data.text.types import TextData
from vitlab.files import replacing, write_json
from vitlab.formatting import plural
from vitlab.tasks.base import Task

IMAGES = 12  # per size
TEXTS = 2
LETTERS = 400  # of a text
CELL = 64  # pixels: the side of an image on the sheet, about
COLUMNS = 12  # images beside each other at most, so that the sheet stays readable on a narrow page
SPACE, BELOW = 4, 18  # pixels between images, and between two sizes
FONT = 26
LABEL = 122  # a grey with a contrast of 4 to 1 with white paper and with black: the sheet has no background


def write_samples(task: Task, data: Any, sizes: Sequence[int], seed: int, folder: Path) -> None:
    """Write samples.png of images, or samples.json of texts: [{"size", "texts"}, ...], sizes in ascending order."""
    if isinstance(data, TextData):
        samples, before = [], np.empty(0, dtype=np.int64)
        for size in sizes:
            items = training_items(task.train, size, seed)
            samples.append({"size": size, "texts": read_excerpts(task, data, np.setdiff1d(items, before)[:TEXTS])})
            before = items
        write_json(folder / "samples.json", samples)
        return
    order = nested_order(task.train.labels, seed)
    starts = [0, *sizes[:-1]]
    strips = {
        size: task.train.read(order[start : min(start + IMAGES, size)])
        for start, size in zip(starts, sizes, strict=True)
    }
    write_contact_sheet(strips, folder / "samples.png")


def read_excerpts(task: Task, data: TextData, items: np.ndarray) -> list[str]:
    """Items as text again, each up to LETTERS of it."""
    if not len(items):
        return []
    if task.shape["head"] == "seq2seq" and len(data.train.parts) == 2:
        pairs = ([data.tokenizer.decode(part[item]).strip() for part in data.train.parts] for item in items)
        return ["\n\u2192 ".join(cut(text) for text in pair) for pair in pairs]
    inputs = task.inputs(task.prepare(Items(task.train).__getitems__(items.tolist())))
    kept = inputs.mask & ~inputs.special
    texts = [data.tokenizer.decode(row[keep].tolist()).strip() for row, keep in zip(inputs.tokens, kept, strict=True)]
    return [cut(text) for text in texts]


def cut(text: str) -> str:
    return f"{text[:LETTERS]} ..." if len(text) > LETTERS else text


def write_contact_sheet(strips: dict[int, np.ndarray], path: str | Path) -> None:
    """Write a PNG with, for each size in ascending order, its label and its images, uint8 (n, C, H, W), C 1 or 3.

    The background is transparent. Grey images give a grey file, which is a third as large.
    """
    strips = {size: strip for size, strip in sorted(strips.items()) if len(strip)}
    assert strips, "no images"
    for size, strip in strips.items():
        assert strip.dtype == np.uint8, f"{size}: {strip.dtype}"
        assert strip.ndim == 4, f"{size}: {strip.shape}"
        assert strip.shape[1] in (1, 3), f"{size}: {strip.shape}"
    sheets = {size: tile(strip) for size, strip in strips.items()}
    font = ImageFont.load_default(FONT)
    label_height = FONT + 8
    width = max(CELL * 4, *(sheet.width for sheet in sheets.values()))
    height = sum(label_height + sheet.height + BELOW for sheet in sheets.values()) - BELOW
    colour = any(strip.shape[1] == 3 for strip in strips.values())
    page = Image.new("RGBA" if colour else "LA", (width, height))
    draw = ImageDraw.Draw(page)
    y = 0
    for size, sheet in sheets.items():
        draw.text(
            (0, y), plural(size, "example"), font=font, fill=(LABEL, LABEL, LABEL, 255) if colour else (LABEL, 255)
        )
        page.paste(sheet.convert(page.mode), (0, y + label_height))
        y += label_height + sheet.height + BELOW
    with replacing(path) as file:
        page.save(file, format="PNG", optimize=True)


def tile(strip: np.ndarray) -> Image.Image:
    """(n, C, H, W) -> rows of at most COLUMNS images, as even as they can be; the space between them transparent."""
    count, channels = strip.shape[:2]
    rows = -(-count // COLUMNS)
    columns = -(-count // rows)
    height, width, method = scale_of(*strip.shape[2:])
    mode = "LA" if channels == 1 else "RGBA"
    sheet = Image.new(mode, (columns * (width + SPACE) - SPACE, rows * (height + SPACE) - SPACE))
    for i, image in enumerate(strip):
        row, column = divmod(i, columns)
        tile = Image.fromarray(image[0] if channels == 1 else image.transpose(1, 2, 0)).resize((width, height), method)
        sheet.paste(tile.convert(mode), (column * (width + SPACE), row * (height + SPACE)))
    return sheet


def scale_of(height: int, width: int) -> tuple[int, int, Image.Resampling]:
    """Small images by a whole factor, so that pixels stay sharp squares; large ones reduced."""
    longer = max(height, width)
    if longer <= 1.5 * CELL:
        factor = max(1, round(CELL / longer))
        return factor * height, factor * width, Image.Resampling.NEAREST
    factor = 1.5 * CELL / longer
    return max(1, round(factor * height)), max(1, round(factor * width)), Image.Resampling.LANCZOS
