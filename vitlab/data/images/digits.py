"""scikit-learn's 1,797 handwritten digits of 8x8 pixels (UCI optical recognition), resized."""

import numpy as np

from vitlab.config import extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Rows, Split
from vitlab.data.images.resize import Resized
from vitlab.data.subset import hold_out

VERSION = 1  # of how the pixels are made
LEVELS = 16  # the set's white


def fingerprint(config: ImageDataConfig) -> int:
    return VERSION


def load(config: ImageDataConfig) -> ImageData:
    """The set, `config.test_share` of each class held out: always the same images."""
    from sklearn.datasets import load_digits  # 2 s

    original = load_digits()
    labels = original.target.astype(np.int64)
    size = extent(config.image_size)
    read = Resized((original.images[:, None] * (255 / LEVELS)).astype(np.float32), size)
    classes = tuple(str(name) for name in original.target_names)
    train, test = (Split(labels[rows], Rows(read, rows)) for rows in hold_out(labels, config.test_share))
    return ImageData(config.name, classes, size, 1, train, test)
