"""A source and what is to be generated from it, each of one length: `source end` and `start target end`.

Shapes: B batch, S tokens of a source, T of a target.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitlab.data.base import Rows, Split
from vitlab.data.sequences.blocks import IGNORE_INDEX
from vitlab.data.sequences.pair_inputs import write_texts
from vitlab.data.text.types import Ragged, Texts

if TYPE_CHECKING:
    from vitlab.data.text.tokenization import Tokenizer


@dataclass(frozen=True, eq=False)
class SourceTarget:
    """Reads pairs; of a text that is too long the first tokens."""

    sources: Ragged
    targets: Ragged
    start: int
    end: int
    source_length: int
    target_length: int

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """int64 (B,) -> int64 (B, S + T), IGNORE_INDEX behind the end of each."""
        indices = np.asarray(indices)
        joined = np.full((len(indices), self.source_length + self.target_length), IGNORE_INDEX, dtype=np.int64)
        source, target = joined[:, : self.source_length], joined[:, self.source_length :]
        rows, zeros = np.arange(len(indices)), np.zeros(len(indices), dtype=np.int64)
        count = np.minimum(self.sources.lengths[indices], self.source_length - 1)
        write_texts(source, self.sources, indices, zeros, count)
        source[rows, count] = self.end
        target[:, 0] = self.start
        count = np.minimum(self.targets.lengths[indices], self.target_length - 2)
        write_texts(target, self.targets, indices, zeros + 1, count)
        target[rows, count + 1] = self.end
        return joined


def join_pairs(
    texts: Texts, tokenizer: "Tokenizer", source_length: int, target_length: int, *, whole: bool = False
) -> Split:
    """An item for each pair; sizes count pairs. Of a target a model reads `target_length` tokens and writes as many.

    Texts that are too long are cut; with `whole` such pairs are left out.
    """
    sources, targets = texts.parts
    read = SourceTarget(sources, targets, tokenizer.decoder_start, tokenizer.end, source_length, target_length + 1)
    short_enough = np.flatnonzero((sources.lengths < source_length) & (targets.lengths < target_length))
    if whole and len(short_enough) < len(texts):
        return Split(texts.labels[short_enough], Rows(read, short_enough), unit="pair")
    return Split(texts.labels, read, unit="pair")
