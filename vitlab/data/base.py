"""The types of data sets, of images, and of text both as its module reads it and as tokens; the module of each kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from vitlab.registry import implementation

if TYPE_CHECKING:
    from vitlab.config.schema.data import DataConfig
    from vitlab.data.text.tokenization import Tokenizer


PACKAGES = {"image": "vitlab.data.images", "text": "vitlab.data.text"}
MODULES = {  # of kinds that share one; another kind has a module of its own name
    **dict.fromkeys(("glyphs", "pointer", "arrow", "captioned_glyphs"), "drawn"),
    **dict.fromkeys(("imagetable", "captions"), "tables"),
    **dict.fromkeys(("torchvision", "digits"), "library_sets"),
    **dict.fromkeys(("textfile", "table", "conll", "parallel", "huggingface", "mixture", "squad"), "texts"),
    **dict.fromkeys(("pydoc", "docstrings", "summaries", "numbers", "facts"), "corpora"),
}
Show = Callable[[str, int, int | None], None]  # shows progress: what is done, how much, of how much if known
BESIDE = ("targets", "groups", "blocks", "names", "together")  # what a Split may say of each item


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled items that are read by index: images, or sequences of tokens.

    labels: int64 (N,), each the place of a class in the data set's `classes`; zeros if there are none.
    read: indices int64 (B,) -> uint8 (B, channels, height, width) of images, int64 (B, ...) of tokens. A pure
        function of the index that several threads and processes may call at a time, so it must be picklable. Raises
        UserError for images it cannot decode.
    targets: (N, ...), to be predicted in place of the labels.
    unit: the thing that the size of a training set counts, in the singular; an item is `per_item` of them, or with
        `groups` (N,) a part of the unit (a document) of that number.
    blocks: (N,), the number of the file that each item lies in with many others: an epoch reads some files at a time.
    names: str (N,), the file of each item below the set's root, if it has one.
    together: int64 (N,): items of one number (a patient, a camera) are never on two sides of a split.
    decoded: True if reading is only a copy.
    """

    labels: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    targets: np.ndarray | None = None
    unit: str = "image"
    per_item: int = 1
    groups: np.ndarray | None = None
    blocks: np.ndarray | None = None
    names: np.ndarray | None = None
    together: np.ndarray | None = None
    decoded: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def total(self) -> int:
        """The size of the split, counted in its unit."""
        return len(self) * self.per_item if self.groups is None else len(np.unique(self.groups))


def take_items(split: Split, rows: np.ndarray) -> Split:
    """Select the items of a split at `rows`, in that order, as a split."""
    chosen = {name: values[rows] for name in BESIDE if (values := vars(split)[name]) is not None}
    return replace(split, labels=split.labels[rows], read=Selected(split.read, rows), **chosen)


class DataSet:
    """A data set with the splits train, validation (None until it is carved out of train) and test."""

    @property
    def splits(self) -> dict[str, Any]:
        """The splits that the data set has, by their names."""
        splits = {name: vars(self)[name] for name in ("train", "validation", "test")}
        return {name: split for name, split in splits.items() if split is not None}


@dataclass(frozen=True, eq=False)
class ImageData(DataSet):
    """A data set of images. `image_size` is (height, width) in pixels.

    Choices are made on `validation`, never on `test`. If a module gives no `validation`, opening the data carves it out
    of `train` (vitlab.data.split).
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
        """The facts about the images that a model is built with: image_size, channels."""
        return {"image_size": self.image_size, "channels": self.channels}

    @property
    def cached(self) -> bool:
        """True if reading a training image is only a copy, so that worker processes would not help."""
        return self.train.decoded


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptionData(ImageData):
    """Images with captions: the targets of each split are tokens, int64 (N, captions of an image, target_length + 1).

    A caption is a start token, its tokens and an end token, padded with IGNORE_INDEX; it also pads images with fewer
    captions. A model reads `target_length` tokens and writes as many. With `exact` no other caption is right.
    """

    tokenizer: "Tokenizer"
    target_length: int
    exact: bool

    @property
    def shape(self) -> dict[str, Any]:
        return {**super().shape, "target_length": self.target_length, "vocabulary": self.tokenizer.size}


@dataclass(frozen=True, eq=False)
class Selected:
    """A reader of the given rows of a larger reader: item i is its item rows[i]."""

    read: Callable[[np.ndarray], np.ndarray]
    rows: np.ndarray

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self.read(self.rows[indices])


@dataclass(frozen=True, eq=False)
class Joined:
    """A reader that joins several readers, whose first items are at `starts`."""

    parts: tuple[Callable[[np.ndarray], np.ndarray], ...]
    starts: np.ndarray  # (parts + 1,)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        if not len(indices):
            return self.parts[0](indices)
        homes = np.searchsorted(self.starts, indices, side="right") - 1
        order = np.argsort(homes, kind="stable")
        read = [self.parts[k](indices[homes == k] - self.starts[k]) for k in np.unique(homes)]
        return np.concatenate(read)[np.argsort(order, kind="stable")]


# -- text


@dataclass(frozen=True, eq=False)
class Examples:
    """N texts as read.

    parts: one sequence of N texts, two for pairs; more are a text and the choices that may follow it. With `tags`
        each text is a list of words.
    labels: the number of each text's class, or of its right choice.
    targets: a number for each text, to be predicted.
    tags: the number of each word's class.
    spans: the characters of an answer in the last part, (first, behind the last); (0, 0) if it holds none.
    """

    parts: tuple[Sequence[str] | Sequence[Sequence[str]], ...]
    labels: Sequence[int] | None = None
    targets: Sequence[float] | None = None
    tags: Sequence[Sequence[int]] | None = None
    spans: Sequence[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.parts[0])


@dataclass(frozen=True, eq=False)
class Corpus(DataSet):
    """A data set of text as read; `classes` are the names of its labels or tags, empty without any.

    If it has no `validation` texts, some are carved out of `train` (vitlab.data.split).
    """

    train: Examples
    test: Examples
    classes: tuple[str, ...] = ()
    validation: Examples | None = None


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of unequal length in one array: row i is values[starts[i] : starts[i + 1]]."""

    values: np.ndarray  # int32 (total,)
    starts: np.ndarray  # int64 (N + 1,)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.starts[row] : self.starts[row + 1]]

    @cached_property
    def lengths(self) -> np.ndarray:
        """The length of each row, int64 (N,)."""
        return np.diff(self.starts)


@dataclass(frozen=True, eq=False)
class Texts:
    """N texts as tokens, without special ones; the fields of `Examples`.

    labels int64 (N,), zeros without classes; targets float32 (N,); tags of the last part's tokens: a class, NO_TAG for
    a token without a tag, or for `spans` 1 within the answer, else 0; `size` is the texts' length in UTF-8 bytes.
    """

    parts: tuple[Ragged, ...]
    labels: np.ndarray
    targets: np.ndarray | None
    tags: Ragged | None
    size: int

    def __len__(self) -> int:
        return len(self.labels)


def list_arrays(texts: Texts) -> dict[str, np.ndarray]:
    """Return all arrays of a split by the names of their files."""
    arrays = {"labels": texts.labels}
    for number, part in enumerate(texts.parts):
        arrays |= {f"part{number}_values": part.values, f"part{number}_starts": part.starts}
    if texts.targets is not None:
        arrays["targets"] = texts.targets
    if texts.tags is not None:
        arrays["tags"] = texts.tags.values  # they start where the tokens do
    return arrays


@dataclass(frozen=True, eq=False)
class TextData(DataSet):
    """A data set of text as tokens. Choices are made on `validation`, never `test`.

    `length` counts a sequence's tokens, `target_length` the tokens of a pair's second text if a model generates it;
    `exact`: no other text than the target is right.
    """

    name: str
    classes: tuple[str, ...]
    length: int
    tokenizer: "Tokenizer"
    train: Texts
    validation: Texts
    test: Texts
    target_length: int = 0
    exact: bool = False
    cached = True

    @property
    def shape(self) -> dict[str, Any]:
        """The facts about the texts that a model is built with: length, vocabulary."""
        return {"length": self.length, "vocabulary": self.tokenizer.size}


def module_of(config: "DataConfig") -> ModuleType:
    """Return the module that implements a data set."""
    return implementation(PACKAGES[config.modality], MODULES.get(config.kind, config.kind))
