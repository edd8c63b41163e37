"""Pairs of text segments for next-sentence prediction (Devlin et al., 2019, section 3.1 and appendix A.2).

A segment is a span of contiguous text, as in the paper; it need not be a sentence. Half of the pairs follow each other
in a text, in the other half the second segment comes from another text, or of a lone text from another part of it. What
it took the place of begins the next pair.
"""

from dataclasses import dataclass

import numpy as np

from vitlab.data.base import Split
from vitlab.data.sequences.blocks import IGNORE_INDEX, read_tokens
from vitlab.data.text.types import Ragged

FOLLOWS, RANDOM = 0, 1  # as BERT numbers them
LEAST = 2  # tokens of a segment
LEAST_PAIR = 2 * LEAST + 3  # of a pair with its frame
SEQUENCES_OF_PART = 8  # that fill a part of a text which is cut for want of others


@dataclass(frozen=True, eq=False)
class Pairs:
    """Reads pairs framed as start A separator B end, with 0 for the segment of A and 1 for that of B.

    `text`, `offset` and `size` (M, 2) say where the two segments of each pair are.
    """

    texts: Ragged
    frame: tuple[int, int, int]  # the tokens start, separator, end
    length: int
    text: np.ndarray
    offset: np.ndarray
    size: np.ndarray

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """int64 (B,) -> int64 (B, 2, length): tokens, IGNORE_INDEX behind the end, and segments."""
        start, separator, end = self.frame
        first, second = self.size[indices].T[..., None]
        place = np.broadcast_to(np.arange(self.length), (len(indices), self.length))
        b = (place > first).astype(np.int64)
        offset = np.where(b, place - first - 2, place - 1)
        text = np.take_along_axis(self.text[indices], b, axis=1)
        begin = np.take_along_axis(self.offset[indices], b, axis=1)
        tokens = read_tokens(self.texts, text, begin + np.maximum(offset, 0), IGNORE_INDEX)
        for where, token in ((0, start), (first + 1, separator), (first + second + 2, end)):
            tokens = np.where(place == where, token, tokens)
        tokens = np.where(place > first + second + 2, IGNORE_INDEX, tokens)
        return np.stack([tokens, (place > first + 1).astype(np.int64)], axis=1)


def pair_segments(texts: Ragged, frame: tuple[int, int, int], length: int, seed: int = 0) -> Split:
    """Pairs of `length` tokens at most from all texts; labels say whether the second segment follows the first.

    Texts too short for a pair are left out; empty where there are none. A lone text is taken as several.
    """
    generator = np.random.default_rng(seed)
    room = length - 3
    long_enough = np.flatnonzero(texts.lengths >= 2 * LEAST)
    if len(long_enough) == 1:
        texts = cut_text(texts, long_enough[0], length)
        long_enough = np.flatnonzero(texts.lengths >= 2 * LEAST)
    pairs: list[tuple[int, ...]] = []
    for text in long_enough if len(long_enough) > 1 else ():
        begin, whole = 0, int(texts.lengths[text])
        while whole - begin >= 2 * LEAST:
            size = min(room, whole - begin)
            first = int(generator.integers(LEAST, size - LEAST + 1))
            if generator.random() < 0.5:
                pairs.append((text, begin, first, text, begin + first, size - first, FOLLOWS))
                begin += size
                continue
            other = long_enough[generator.integers(len(long_enough) - 1)]
            other = long_enough[-1] if other == text else other
            second = min(size - first, int(texts.lengths[other]))  # as long as what follows, or the length tells
            from_ = int(generator.integers(texts.lengths[other] - second + 1))
            pairs.append((text, begin, first, other, from_, second, RANDOM))
            begin += first
    table = np.array(pairs, dtype=np.int64).reshape(-1, 7)
    read = Pairs(texts, frame, length, table[:, [0, 3]], table[:, [1, 4]], table[:, [2, 5]])
    labels = table[:, 6]
    numbers = np.arange(len(labels))
    return Split(labels, read, targets=np.stack([labels, numbers], axis=1), unit="sequence")


def cut_text(texts: Ragged, row: int, length: int) -> Ragged:
    """One text as at least two of equal size, each long enough for some sequences where it is itself."""
    parts = max(2, int(texts.lengths[row]) // (SEQUENCES_OF_PART * length))
    cuts = np.linspace(texts.starts[row], texts.starts[row + 1], parts + 1).astype(np.int64)
    return Ragged(texts.values, cuts)
