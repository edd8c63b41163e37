"""scikit-learn's 1,797 handwritten digits of 8x8 pixels (UCI optical recognition), resized."""

import numpy as np
from omegaconf import DictConfig

from vitlab.config import UserError, extent
from vitlab.data.base import ImageData, Rows, Split
from vitlab.data.images.resize import Resized
from vitlab.data.subset import nested_order

VERSION = 1  # of how the pixels are made
LEVELS = 16  # the set's white


def fingerprint(config: DictConfig) -> int:
    return VERSION


def load(config: DictConfig) -> ImageData:
    """The set, `config.test_share` of each class held out: always the same images."""
    if not 0 < config.test_share < 1:
        raise UserError(f"data.test_share={config.test_share}: give a share of the images between 0 and 1")
    from sklearn.datasets import load_digits  # 2 s

    original = load_digits()
    labels = original.target.astype(np.int64)
    size = extent(config.image_size)
    read = Resized((original.images[:, None] * (255 / LEVELS)).astype(np.float32), size)
    classes = tuple(str(name) for name in original.target_names)
    order = nested_order(labels, seed=0)
    count = min(max(round(config.test_share * len(labels)), len(classes)), len(labels) - len(classes))
    rows = {"test": np.sort(order[:count]), "train": np.sort(order[count:])}
    splits = {part: Split(labels[at], Rows(read, at)) for part, at in rows.items()}
    return ImageData(config.name, classes, size, 1, **splits)
