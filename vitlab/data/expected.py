"""A data set that is not here, as its configuration says it is: enough to plan with, nothing to read.

`data.expected` holds `train` and `test`, the images of each, `classes`, how many, and if known `bytes`, of the files.
"""

from typing import Any

import numpy as np

from vitlab.config import UserError, extent
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.images.webdataset import ShardImages
from vitlab.data.split import MAX_VAL_ITEMS, VAL_FRACTION

KEYS = ("train", "test", "classes")
FORM = "data.expected={train: 1281167, test: 50000, classes: 1000}"


def expect(config: DataConfig) -> ImageData:
    """The data set of `data.expected`, RGB, with a part of its training images for validation. Raises UserError."""
    expected = config.expected
    problems = [f"data.expected.{key} is missing: give a number, such as {FORM}" for key in KEYS if key not in expected]
    problems += [
        f"data.expected.{key}={expected[key]}: expected a whole number above 1"
        for key in (*KEYS, "bytes")
        if key in expected and not is_count(expected[key])
    ]
    if problems:
        raise UserError(problems)
    held_out = min(MAX_VAL_ITEMS, max(1, round(VAL_FRACTION * expected["train"])))
    sizes = {"train": int(expected["train"]) - held_out, "validation": held_out, "test": int(expected["test"])}
    classes = tuple(map(str, range(int(expected["classes"]))))
    splits = {part: Split(np.broadcast_to(np.int64(0), size), read_nothing) for part, size in sizes.items()}
    return ImageData(config.name, classes, extent(config.image_size), 3, **splits)


def is_count(value: Any) -> bool:
    return isinstance(value, int | float) and value >= 2 and value % 1 == 0


def read_nothing(indices: np.ndarray) -> np.ndarray:
    raise UserError("these data are not here: data.expected only says what to plan with")


def is_expected(data: Any) -> bool:
    """Whether the data are not here."""
    return data.train.read is read_nothing


def count_bytes(data: Any, config: DataConfig) -> int | None:
    """What the images take on disk, in shards or decoded in the cache; none where that is not known."""
    if is_expected(data):
        return config.expected.get("bytes")
    splits = (data.train, data.validation, data.test)
    if all(isinstance(split.read, ShardImages) for split in splits):
        return sum(int(split.read.samples["sizes"].sum(dtype="int64")) for split in splits)
    if config.modality == "image" and data.cached:
        return sum(map(len, splits)) * data.channels * data.image_size[0] * data.image_size[1]
    return None
