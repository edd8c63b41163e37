"""What a study's training sets look like: some of the images or texts that each size adds to the one before."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vitlab.data.base import CaptionData, Split
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
CAPTIONED = 6  # images with captions per size
CAPTION_FONT, CAPTION_LETTERS, CAPTION_LINES = 22, 28, 3  # a caption stands right of its image
CAPTION_WIDTH = CAPTION_LETTERS * CAPTION_FONT // 2
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
    chosen = choose_added(task.train, sizes, seed, CAPTIONED if isinstance(data, CaptionData) else IMAGES)
    strips = {size: task.train.read(rows) for size, rows in chosen.items()}
    captions = None
    if isinstance(data, CaptionData):
        first = data.train.targets[:, 0]
        captions = {
            size: [data.tokenizer.decode(first[r][first[r] >= 0]) for r in rows] for size, rows in chosen.items()
        }
    write_contact_sheet(strips, folder / "samples.png", captions)


def choose_added(split: Split, sizes: Sequence[int], seed: int, count: int) -> dict[int, np.ndarray]:
    """Up to `count` items that each size adds to the one before, as mixed as they come."""
    if split.keys is None:
        order = nested_order(split.labels, seed)
        return {
            size: order[start : min(start + count, size)] for start, size in zip([0, *sizes[:-1]], sizes, strict=True)
        }
    chosen, before = {}, np.empty(0, dtype=np.int64)
    for size in sizes:
        items = training_items(split, size, seed)
        chosen[size] = np.random.default_rng(seed).permutation(np.setdiff1d(items, before, assume_unique=True))[:count]
        before = items
    return chosen


def read_excerpts(task: Task, data: TextData, items: np.ndarray) -> list[str]:
    """Items as text again, each up to LETTERS of it."""
    if not len(items):
        return []
    if task.shape["head"] == "seq2seq" and len(data.train.parts) == 2:
        pairs = ([data.tokenizer.decode(part[item]).strip() for part in data.train.parts] for item in items)
        return ["\n\u2192 ".join(cut(text) for text in pair) for pair in pairs]
    inputs = task.inputs(task.prepare(Items(task.train).__getitems__(items.tolist())))
    is_word = inputs.mask & ~inputs.special
    texts = [
        data.tokenizer.decode(row[keep].tolist()).strip() for row, keep in zip(inputs.tokens, is_word, strict=True)
    ]
    return [cut(text) for text in texts]


def cut(text: str) -> str:
    return f"{text[:LETTERS]} ..." if len(text) > LETTERS else text


def write_contact_sheet(
    strips: dict[int, np.ndarray], path: str | Path, captions: Mapping[int, Sequence[str]] | None = None
) -> None:
    """Write a PNG with, for each size in ascending order, its label and its images, uint8 (n, C, H, W), C 1 or 3.

    With `captions` each image has its own on its right. The background is transparent. Grey images give a grey file,
    which is a third as large.
    """
    strips = {size: strip for size, strip in sorted(strips.items()) if len(strip)}
    assert strips, "no images"
    for size, strip in strips.items():
        assert strip.dtype == np.uint8, f"{size}: {strip.dtype}"
        assert strip.ndim == 4, f"{size}: {strip.shape}"
        assert strip.shape[1] in (1, 3), f"{size}: {strip.shape}"
    sheets = {size: tile(strip, None if captions is None else captions[size]) for size, strip in strips.items()}
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


def tile(strip: np.ndarray, captions: Sequence[str] | None = None) -> Image.Image:
    """(n, C, H, W) -> rows of at most COLUMNS images, as even as they can be; the space between them transparent.

    With captions, rows of two.
    """
    count, channels = strip.shape[:2]
    rows = -(-count // (COLUMNS if captions is None else 2))
    columns = -(-count // rows)
    height, width, method = scale_of(*strip.shape[2:])
    beside = 0 if captions is None else SPACE + CAPTION_WIDTH
    mode = "LA" if channels == 1 else "RGBA"
    sheet = Image.new(mode, (columns * (width + beside + SPACE) - SPACE, rows * (height + SPACE) - SPACE))
    draw, font, ink = ImageDraw.Draw(sheet), ImageFont.load_default(CAPTION_FONT), (*[LABEL] * (len(mode) - 1), 255)
    for i, image in enumerate(strip):
        row, column = divmod(i, columns)
        x, y = column * (width + beside + SPACE), row * (height + SPACE)
        tile = Image.fromarray(image[0] if channels == 1 else image.transpose(1, 2, 0)).resize((width, height), method)
        sheet.paste(tile.convert(mode), (x, y))
        if captions is not None:
            lines = textwrap.wrap(captions[i], CAPTION_LETTERS, max_lines=CAPTION_LINES, placeholder=" ...")
            draw.text((x + width + 2 * SPACE, y), "\n".join(lines), font=font, fill=ink, spacing=0)
    return sheet


def scale_of(height: int, width: int) -> tuple[int, int, Image.Resampling]:
    """Small images by a whole factor, so that pixels stay sharp squares; large ones reduced."""
    longer = max(height, width)
    if longer <= 1.5 * CELL:
        factor = max(1, round(CELL / longer))
        return factor * height, factor * width, Image.Resampling.NEAREST
    factor = 1.5 * CELL / longer
    return max(1, round(factor * height)), max(1, round(factor * width)), Image.Resampling.LANCZOS
