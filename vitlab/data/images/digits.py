"""scikit-learn's 1,797 handwritten digits of 8x8 pixels (UCI optical recognition), resized."""

import numpy as np

from vitlab.config import UserError, choices_text, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Rows, Split
from vitlab.data.images.resize import Resized
from vitlab.data.subset import hold_out

PROPERTIES = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "above 4": (5, 6, 7, 8, 9), "loop": (0, 6, 8, 9)}
VERSION = 1  # of how the pixels are made
LEVELS = 16  # the set's white


def fingerprint(config: ImageDataConfig) -> int:
    return VERSION


def load(config: ImageDataConfig) -> ImageData:
    """The set, `config.test_share` of each class held out: always the same images.

    The target of a digit is its class, or the PROPERTIES that it has, or the number itself.
    """
    from sklearn.datasets import load_digits  # 2 s

    original = load_digits()
    labels = original.target.astype(np.int64)
    size = extent(config.image_size)
    read = Resized((original.images[:, None] * (255 / LEVELS)).astype(np.float32), size)
    classes = tuple(str(name) for name in original.target_names)
    targets = {
        "class": None,
        "labels": np.array([np.isin(labels, digits) for digits in PROPERTIES.values()], dtype=np.float32).T,
        "number": labels.astype(np.float32),
    }
    if config.target not in targets:
        raise UserError(f"data.target={config.target}: {choices_text(config.target, targets)}")
    target = targets[config.target]
    classes = {"class": classes, "labels": tuple(PROPERTIES), "number": ()}[config.target]
    train, test = (
        Split(labels[rows], Rows(read, rows), targets=None if target is None else target[rows])
        for rows in hold_out(labels, config.test_share)
    )
    return ImageData(config.name, classes, size, 1, train, test)
