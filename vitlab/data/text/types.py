"""What a data set of text is: as its module reads it, and as tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vitlab.data.text.tokenization import Tokenizer

NO_TAG = -100  # of a token that carries no tag, as torch's cross-entropy ignores it


@dataclass(frozen=True, eq=False)
class Examples:
    """N texts as read.

    parts: one sequence of N texts, two for pairs; more are a text and the choices that may follow it. With `tags`
        each text is a list of words.
    labels: the number of each text's class, or of its right choice.
    targets: a number for each text, to be predicted.
    tags: the number of each word's class.
    """

    parts: tuple[Sequence[str] | Sequence[Sequence[str]], ...]
    labels: Sequence[int] | None = None
    targets: Sequence[float] | None = None
    tags: Sequence[Sequence[int]] | None = None

    def __len__(self) -> int:
        return len(self.parts[0])


@dataclass(frozen=True, eq=False)
class Corpus:
    """A data set as read; `classes` are those of its labels or tags, empty where it has none.

    Without `validation` texts some are carved out of `train` (vitlab.data.split).
    """

    train: Examples
    test: Examples
    classes: tuple[str, ...] = ()
    validation: Examples | None = None

    @property
    def splits(self) -> dict[str, Examples]:
        """The splits that there are, by their names."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: examples for name, examples in splits.items() if examples is not None}


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
        """int64 (N,)"""
        return np.diff(self.starts)


@dataclass(frozen=True, eq=False)
class Texts:
    """N texts as tokens, without special ones; the fields of `Examples`.

    labels int64 (N,), zeros without classes; targets float32 (N,); tags a class per token, NO_TAG where a token has
    none; `size` is the texts' length in UTF-8 bytes.
    """

    parts: tuple[Ragged, ...]
    labels: np.ndarray
    targets: np.ndarray | None
    tags: Ragged | None
    size: int

    def __len__(self) -> int:
        return len(self.labels)


def list_arrays(texts: Texts) -> dict[str, np.ndarray]:
    """All arrays of a split by the names of their files."""
    arrays = {"labels": texts.labels}
    for number, part in enumerate(texts.parts):
        arrays |= {f"part{number}_values": part.values, f"part{number}_starts": part.starts}
    if texts.targets is not None:
        arrays["targets"] = texts.targets
    if texts.tags is not None:
        arrays["tags"] = texts.tags.values  # they start where the tokens do
    return arrays


@dataclass(frozen=True, eq=False)
class TextData:
    """A data set of text. Choices are made on `validation`, never `test`.

    `length` is that of a sequence of tokens, `target_length` that of the second text of a pair where it is generated;
    `exact`: that one is right and no other.
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
    def splits(self) -> dict[str, Texts]:
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def shape(self) -> dict[str, Any]:
        """What a model must know of the texts."""
        return {"length": self.length, "vocabulary": self.tokenizer.size}
