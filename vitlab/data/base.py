"""What a data set is, for everything that reads one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vitlab.data.text.tokenization import Tokenizer


BESIDE = ("targets", "groups", "keys", "blocks", "names", "together")  # what a Split may say of each item


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled items that are read by index: images, or sequences of tokens.

    labels: int64 (N,), each the place of a class in the data set's `classes`; zeros where there are none.
    read: indices int64 (B,) -> uint8 (B, channels, height, width) of images, int64 (B, ...) of tokens. A pure
        function of the index that several threads and processes may call at a time, so it must be picklable. Raises
        UserError for images it cannot decode.
    targets: what is to be predicted, (N, ...), where that is not the labels.
    unit: what the size of a training set counts, in the singular; an item is `per_item` of them, or with `groups`
        (N,) a part of the one (a document) of that number.
    keys: uint64 (N,), a hash of each item's name (vitlab.data.keys), where training sets are chosen by that.
    blocks: (N,), the number of the file of many items that each lies in: an epoch reads some of them at a time.
    names: str (N,), the file of each item below the set's root, where it has one.
    together: int64 (N,): items of one number (a patient, a camera) are never on two sides of a split.
    """

    labels: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    targets: np.ndarray | None = None
    unit: str = "image"
    per_item: int = 1
    groups: np.ndarray | None = None
    keys: np.ndarray | None = None
    blocks: np.ndarray | None = None
    names: np.ndarray | None = None
    together: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def total(self) -> int:
        """The size of the whole, in its unit."""
        return len(self) * self.per_item if self.groups is None else len(np.unique(self.groups))


def is_decoded(read: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether reading is only a copy; such a reader has `decoded = True`."""
    return getattr(read, "decoded", False)


def take_items(split: Split, rows: np.ndarray) -> Split:
    """The items of a split at `rows`, in that order."""
    chosen = {name: values[rows] for name in BESIDE if (values := vars(split)[name]) is not None}
    return replace(split, labels=split.labels[rows], read=Rows(split.read, rows), **chosen)


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set. `image_size` is (height, width) in pixels.

    Choices are made on `validation`, never on `test`. A module that gives none has it carved out of `train`
    (vitlab.data.split), whatever opens the data.
    """

    name: str
    classes: tuple[str, ...]
    image_size: tuple[int, int]
    channels: int
    train: Split
    test: Split
    validation: Split | None = None

    @property
    def shape(self) -> dict[str, Any]:
        """What a model must know of the images."""
        return {"image_size": self.image_size, "channels": self.channels}

    @property
    def splits(self) -> dict[str, Split]:
        """The splits that there are, by their names."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {part: split for part, split in splits.items() if split is not None}

    @property
    def decoded_bytes(self) -> int:
        """What all images take as the cache holds them."""
        return sum(map(len, self.splits.values())) * self.channels * self.image_size[0] * self.image_size[1]

    @property
    def cached(self) -> bool:
        """Whether reading a training image is only a copy, so that worker processes would not help."""
        return is_decoded(self.train.read)


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptionData(ImageData):
    """Images with captions: the targets of each split are tokens, int64 (N, captions of an image, target_length + 1).

    A caption is its start token, its own and its end token, padded with IGNORE_INDEX; so are images with fewer
    captions. A model reads `target_length` tokens of it and writes as many. With `exact` no other caption is right.
    """

    tokenizer: "Tokenizer"
    target_length: int
    exact: bool

    @property
    def shape(self) -> dict[str, Any]:
        return {**super().shape, "target_length": self.target_length, "vocabulary": self.tokenizer.size}


@dataclass(frozen=True, eq=False)
class Rows:
    """Reads the given rows of something larger: item i is its item rows[i]."""

    read: Callable[[np.ndarray], np.ndarray]
    rows: np.ndarray

    @property
    def decoded(self) -> bool:
        return is_decoded(self.read)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self.read(self.rows[indices])


@dataclass(frozen=True, eq=False)
class Joined:
    """Reads several readers as one: item i of the whole is of the one that `starts` says."""

    parts: tuple[Callable[[np.ndarray], np.ndarray], ...]
    starts: np.ndarray  # (parts + 1,)

    @property
    def decoded(self) -> bool:
        return all(map(is_decoded, self.parts))

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        if not len(indices):
            return self.parts[0](indices)
        homes = np.searchsorted(self.starts, indices, side="right") - 1
        rows = {home: np.flatnonzero(homes == home) for home in np.unique(homes)}
        read = {home: self.parts[home](indices[places] - self.starts[home]) for home, places in rows.items()}
        items = np.empty((len(indices), *next(iter(read.values())).shape[1:]), next(iter(read.values())).dtype)
        for home, places in rows.items():
            items[places] = read[home]
        return items
