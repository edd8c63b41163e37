"""What a study's training sets look like, for its report: some of what each size adds to the one before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.data.loader import Items
from vitlab.data.subset import nested_order, training_items
from vitlab.data.text.types import TextData
from vitlab.files import write_json
from vitlab.reports.figures.contact_sheet import save_samples
from vitlab.tasks.base import Task

IMAGES = 12  # per size
TEXTS = 2
LETTERS = 400  # of a text


def write_samples(task: Task, data: Any, sizes: Sequence[int], seed: int, folder: Path) -> None:
    """Write samples.png of images, or samples.json of texts: [{"size", "texts"}, ...], sizes in ascending order."""
    if isinstance(data, TextData):
        found, before = [], np.empty(0, dtype=np.int64)
        for size in sizes:
            items = training_items(task.train, size, seed)
            found.append({"size": size, "texts": excerpts(task, data, np.setdiff1d(items, before)[:TEXTS])})
            before = items
        write_json(folder / "samples.json", found)
        return
    order = nested_order(task.train.labels, seed)
    starts = [0, *sizes[:-1]]
    strips = {
        size: task.train.read(order[start : min(start + IMAGES, size)])
        for start, size in zip(starts, sizes, strict=True)
    }
    save_samples(strips, folder / "samples.png")


def excerpts(task: Task, data: TextData, items: np.ndarray) -> list[str]:
    """Items as text again, each up to LETTERS of it."""
    if not len(items):
        return []
    inputs = task.inputs(task.prepare(Items(task.train).__getitems__(items.tolist())))
    kept = inputs.mask & ~inputs.special
    texts = [data.tokenizer.decode(row[keep].tolist()).strip() for row, keep in zip(inputs.tokens, kept, strict=True)]
    return [f"{text[:LETTERS]} ..." if len(text) > LETTERS else text for text in texts]
