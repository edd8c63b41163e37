"""What a data set of images is, for everything that reads one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Labelled images that are read by index.

    labels: int64 (N,), each the place of a class in `ImageData.classes`.
    read: indices int64 (B,) -> uint8 (B, channels, height, width). A pure function of the index that several threads
        and processes may call at a time, so it must be picklable. Raises UserError for images it cannot decode.
    """

    labels: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set. `image_size` is (height, width) in pixels; no training ever touches `test`."""

    name: str
    classes: tuple[str, ...]
    image_size: tuple[int, int]
    channels: int
    train: ImageSplit
    test: ImageSplit

    @property
    def cached(self) -> bool:
        """Whether reading a training image is only a copy, so that worker processes would not help."""
        return getattr(self.train.read, "decoded", False)


@dataclass(frozen=True, eq=False)
class Rows:
    """Reads the given rows of something larger: item i is its item rows[i]."""

    read: Callable[[np.ndarray], np.ndarray]
    rows: np.ndarray

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self.read(self.rows[indices])
