"""Sequences of one length for a model that reads whole texts: `start A end`, pairs `start A separator B end`.

GPT's (Radford et al., 2018, section 3.3) and BERT's (Devlin et al., 2019, figure 4) inputs by the roles of the
tokenizer's special tokens: BERT's [CLS] A [SEP] B [SEP] is the same, its separator and its end being one token.

Shapes: B batch, S sequences of an item, N tokens of a sequence.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitlab.data.base import Split
from vitlab.data.sequences.blocks import IGNORE_INDEX
from vitlab.data.text.types import Ragged, Texts

if TYPE_CHECKING:
    from vitlab.data.text.tokenization import Tokenizer

Sequences = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class PairInputs:
    """Reads each text, or what belongs together of its parts, as sequences of `length` tokens.

    sequences: of each sequence of an item the one or two parts that it holds, as places in `parts`.
    tags: the class of each token of the first part, where there are such.
    """

    parts: tuple[Ragged, ...]
    sequences: Sequences
    start: int
    separator: int
    end: int
    length: int
    tags: Ragged | None = None

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """int64 (B,) -> int64 (B, 2, N), or (B, S, 2, N) where an item has several sequences.

        Planes: the tokens, IGNORE_INDEX behind the end; the segments, 1 for B and what ends it; with tags a third,
        NO_TAG (which is IGNORE_INDEX) where a token has none.
        """
        indices = np.asarray(indices)
        sequences = np.stack([self.read_sequence(indices, numbers) for numbers in self.sequences], axis=1)
        return sequences[:, 0] if len(self.sequences) == 1 else sequences

    def read_sequence(self, indices: np.ndarray, numbers: tuple[int, ...]) -> np.ndarray:
        """The planes (B, 2 or 3, N) of one sequence of each item."""
        planes = np.full((len(indices), 2 if self.tags is None else 3, self.length), IGNORE_INDEX, dtype=np.int64)
        tokens, segments = planes[:, 0], planes[:, 1]
        places, rows = np.arange(self.length), np.arange(len(indices))
        tokens[:, 0], segments[:] = self.start, 0
        first = np.ones(len(indices), dtype=np.int64)
        for segment, (number, count) in enumerate(zip(numbers, self.count_kept(indices, numbers), strict=True)):
            last = first + count
            write_texts(tokens, self.parts[number], indices, first, count)
            tokens[rows, last] = self.end if segment == len(numbers) - 1 else self.separator
            segments[(places >= first[:, None]) & (places <= last[:, None])] = segment
            if self.tags is not None:
                write_texts(planes[:, 2], self.tags, indices, first, count)
            first = last + 1
        return planes

    def count_kept(self, indices: np.ndarray, numbers: tuple[int, ...]) -> list[np.ndarray]:
        """How many of its first tokens each part keeps, int64 (B,)."""
        lengths = [self.parts[number].lengths[indices] for number in numbers]
        room = self.length - 1 - len(numbers)
        if len(lengths) == 1:
            return [np.minimum(lengths[0], room)]
        return list(truncate_pair(*lengths, room))


def truncate_pair(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """What is left of the lengths of two texts when the longer loses a token at a time, of two equal ones the second,
    until both have room together: BERT's `_truncate_seq_pair` in one step.
    """
    return (
        np.minimum(first, np.maximum(room - second, room - room // 2)),
        np.minimum(second, np.maximum(room - first, room // 2)),
    )


def write_texts(into: np.ndarray, texts: Ragged, indices: np.ndarray, first: np.ndarray, count: np.ndarray) -> None:
    """Write the first `count` (B,) values of the texts at `indices` into the rows of an array, from place `first`."""
    row = np.repeat(np.arange(len(indices)), count)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    into[row, first[row] + offset] = texts.values[texts.starts[indices][row] + offset]


def list_sequences(parts: int, both_orders: bool = False) -> Sequences:
    """A text; a pair, or a pair in `both_orders`; the first part with each of the others, which are choices."""
    if parts == 1:
        return ((0,),)
    if both_orders:
        return (0, 1), (1, 0)
    return tuple((0, other) for other in range(1, parts))


def frame_texts(texts: Texts, tokenizer: "Tokenizer", length: int, *, both_orders: bool = False) -> Split:
    """An item for each text; sizes count texts."""
    read = PairInputs(
        texts.parts,
        list_sequences(len(texts.parts), both_orders),
        tokenizer.start,
        tokenizer.separator,
        tokenizer.end,
        length,
        texts.tags,
    )
    return Split(texts.labels, read, texts.targets, unit="text")
