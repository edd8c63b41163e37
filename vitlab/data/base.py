"""Types of data sets (images, text as read, text as tokens), and the module of each kind."""

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
MODULES = {  # kinds that share a module; any other kind's module has the kind's name
    **dict.fromkeys(("glyphs", "pointer", "arrow", "captioned_glyphs"), "drawn"),
    **dict.fromkeys(("imagetable", "captions"), "tables"),
    **dict.fromkeys(("torchvision", "digits"), "library_sets"),
    **dict.fromkeys(("textfile", "table", "conll", "parallel", "huggingface", "mixture", "squad"), "texts"),
    **dict.fromkeys(("pydoc", "docstrings", "summaries", "numbers", "facts"), "corpora"),
}
Show = Callable[[str, int, int | None], None]  # progress(task, done, total); total is None if unknown
BESIDE = ("targets", "groups", "blocks", "names", "together", "lengths")  # optional per-item fields of a Split


@dataclass(frozen=True, eq=False)
class Split:
    """Labelled items, read by index: images, or sequences of tokens.

    labels: int64 (N,), indices into the data set's `classes`; zeros without classes.
    read: indices int64 (B,) -> images uint8 (B, channels, height, width), or tokens int64 (B, ...). A picklable, pure
        function of the index: several threads and processes may call it at once. Raises UserError for images it cannot
        decode.
    targets: (N, ...), predicted in place of the labels.
    unit: the unit of a training set's size, in the singular. An item is `per_item` units, or with `groups` (N,) a part
        of the unit (a document) with that number.
    blocks: (N,), number of the file that holds an item and many others; an epoch reads a few files at a time.
    names: str (N,), each item's file below the set's root, if it has one.
    together: int64 (N,), group id (patient, camera); a group never straddles a split.
    lengths: int64 (N,), tokens of each source: a task writes texts of similar ones together.
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
    lengths: np.ndarray | None = None
    decoded: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def total(self) -> int:
        """The size of the split, counted in its unit."""
        return len(self) * self.per_item if self.groups is None else len(np.unique(self.groups))


def take_items(split: Split, rows: np.ndarray) -> Split:
    """Make a split of the items at `rows`, in that order."""
    chosen = {name: values[rows] for name in BESIDE if (values := vars(split)[name]) is not None}
    return replace(split, labels=split.labels[rows], read=Selected(split.read, rows), **chosen)


class DataSet:
    """A data set with the splits train, validation (None until it is carved out of train) and test."""

    @property
    def splits(self) -> dict[str, Any]:
        """The existing splits, by name."""
        splits = {name: vars(self)[name] for name in ("train", "validation", "test")}
        return {name: split for name, split in splits.items() if split is not None}


@dataclass(frozen=True, eq=False)
class ImageData(DataSet):
    """A data set of images. `image_size` is (height, width) in pixels.

    Make choices on `validation`, never on `test`. Opening the data carves a missing `validation` out of `train`
    (vitlab.data.split).
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
        """Arguments for building a model: image_size, channels."""
        return {"image_size": self.image_size, "channels": self.channels}

    @property
    def cached(self) -> bool:
        """True if reading a training image only copies it: worker processes would not help."""
        return self.train.decoded


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptionData(ImageData):
    """Images with captions: the targets of each split are tokens, int64 (N, captions of an image, target_length + 1).

    A caption holds a start token, its tokens and an end token, and if held out its bytes as read behind them.
    IGNORE_INDEX pads short captions, and images with fewer captions. A model reads `target_length` tokens and writes as
    many. With `exact` no other caption is right.
    """

    tokenizer: "Tokenizer"
    target_length: int
    exact: bool

    @property
    def shape(self) -> dict[str, Any]:
        return {**super().shape, "target_length": self.target_length, "vocabulary": self.tokenizer.size}


@dataclass(frozen=True, eq=False)
class Selected:
    """A reader of some rows of another reader: item i is its item rows[i]."""

    read: Callable[[np.ndarray], np.ndarray]
    rows: np.ndarray

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self.read(self.rows[indices])


@dataclass(frozen=True, eq=False)
class Joined:
    """A reader of several readers end to end; the first item of part k is item starts[k]."""

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

    parts: one sequence of N texts, or two for pairs; three or more hold a text, then the choices for its continuation.
        With `tags` each text is a list of words.
    labels: class number of each text, or the number of its right choice.
    targets: a number to predict for each text.
    tags: class number of each word.
    spans: characters of the answer in the last part, (first, behind the last); (0, 0) without an answer.
    groups: name of each text's source or author; a group never straddles a split.
    """

    parts: tuple[Sequence[str] | Sequence[Sequence[str]], ...]
    labels: Sequence[int] | None = None
    targets: Sequence[float] | None = None
    tags: Sequence[Sequence[int]] | None = None
    spans: Sequence[tuple[int, int]] | None = None
    groups: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def are_pairs(self) -> bool:
        """True for sources and the targets generated from them."""
        return len(self.parts) == 2 and (self.labels, self.targets, self.tags, self.spans) == (None,) * 4


@dataclass(frozen=True, eq=False)
class Corpus(DataSet):
    """A data set of text as read. `classes` names the labels or tags; empty without them.

    Loading carves missing `validation` texts out of `train` (vitlab.data.split).
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
    """N texts as tokens, without special tokens. Fields as in `Examples`.

    labels: int64 (N,), zeros without classes. targets: float32 (N,). size: the texts' length in UTF-8 bytes.
    tags: for each token of the last part, a class or NO_TAG; for `spans` 1 within the answer, else 0.
    written: what scores compare with, as read: of held-out pairs source and target, with `spans` text and answer.
    """

    parts: tuple[Ragged, ...]
    labels: np.ndarray
    targets: np.ndarray | None
    tags: Ragged | None
    size: int
    written: Ragged | None = None

    def __len__(self) -> int:
        return len(self.labels)


BREAK = b"\xff"  # no byte of UTF-8


def join_written(texts: Sequence[str]) -> np.ndarray:
    """Join the texts of an item as read, in UTF-8 with BREAK between: uint8 (W,)."""
    return np.frombuffer(BREAK.join(map(str.encode, texts)), dtype=np.uint8)


def list_arrays(texts: Texts) -> dict[str, np.ndarray]:
    """Return all arrays of a split by the names of their files."""
    arrays = {"labels": texts.labels}
    for number, part in enumerate(texts.parts):
        arrays |= {f"part{number}_values": part.values, f"part{number}_starts": part.starts}
    if texts.written is not None:
        arrays |= {"written_values": texts.written.values, "written_starts": texts.written.starts}
    if texts.targets is not None:
        arrays["targets"] = texts.targets
    if texts.tags is not None:
        arrays["tags"] = texts.tags.values  # tags start where the tokens do
    return arrays


@dataclass(frozen=True, eq=False)
class TextData(DataSet):
    """A data set of text as tokens. Make choices on `validation`, never on `test`.

    length: tokens of a sequence. target_length: tokens of a pair's second text, if a model generates it.
    exact: only the target text is right.
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
        """Arguments for building a model: length, vocabulary."""
        return {"length": self.length, "vocabulary": self.tokenizer.size}


def module_of(config: "DataConfig") -> ModuleType:
    """Return the module that implements a data set."""
    return implementation(PACKAGES[config.modality], MODULES.get(config.kind, config.kind))
