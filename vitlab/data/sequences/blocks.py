"""Sequences of one length from texts: a stream cut into blocks, or each text in blocks of its own.

What is behind a text's end is IGNORE_INDEX in a sequence; the end itself is the tokenizer's token for it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vitlab.data.base import Split
from vitlab.data.text.types import Ragged

IGNORE_INDEX = -100  # in the place of a token where a sequence has none; torch's cross-entropy ignores it


@dataclass(frozen=True, eq=False)
class Stream:
    """Reads blocks of `length` tokens, and `ahead` more of what follows, from all texts joined end to end."""

    texts: Ragged
    end: int  # the token after each text
    length: int
    ahead: int

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """int64 (B,) -> int64 (B, length + ahead)"""
        places = np.asarray(indices)[:, None] * self.length + np.arange(self.length + self.ahead)
        text = np.minimum(np.searchsorted(self.firsts, places, side="right") - 1, len(self.texts) - 1)
        return read_tokens(self.texts, text, places - self.firsts[text], self.end)

    @cached_property
    def firsts(self) -> np.ndarray:
        """Where each text begins in the stream, int64 (N + 1,)."""
        return self.texts.starts + np.arange(len(self.texts.starts))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Reads blocks that lie in one text each: `text` (M,) and the place in it, `offset` (M,), of each block."""

    texts: Ragged
    end: int
    length: int
    ahead: int
    text: np.ndarray
    offset: np.ndarray

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """int64 (B,) -> int64 (B, length + ahead)"""
        text = np.broadcast_to(self.text[indices, None], (len(indices), self.length + self.ahead))
        return read_tokens(self.texts, text, self.offset[indices, None] + np.arange(self.length + self.ahead), self.end)


def read_tokens(texts: Ragged, text: np.ndarray, offset: np.ndarray, end: int) -> np.ndarray:
    """The tokens at places of texts, of the same shape: `end` just behind a text's last, IGNORE_INDEX beyond."""
    lengths = texts.lengths[text]
    inside = texts.starts[text] + np.minimum(offset, lengths - 1)
    tokens = texts.values[inside].astype(np.int64)
    return np.where(offset < lengths, tokens, np.where(offset == lengths, end, IGNORE_INDEX))


def pack_texts(
    texts: Ragged, end: int, length: int, *, within_texts: bool, ahead: int = 0, whole: bool = True
) -> Split:
    """Sequences of `length` tokens and `ahead` more; each token is in one sequence, except those ahead.

    A stream over all texts, whose size counts tokens; `within_texts` each text for itself, whose size counts
    documents. The rest of the stream, less than a sequence, is left out unless it is not `whole`.
    """
    spans = texts.lengths + 1 - ahead  # with its end; the last token has nothing to predict
    if within_texts:
        counts = np.ceil(np.maximum(spans, 0) / length).astype(np.int64)
        text = np.repeat(np.arange(len(texts)), counts)
        offset = (np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)) * length
        read = Blocks(texts, end, length, ahead, text, offset)
        return Split(np.zeros(len(text), dtype=np.int64), read, unit="document", groups=text)
    tokens = len(texts.values) + len(texts) - ahead
    items = tokens // length if whole else -(-tokens // length)
    read = Stream(texts, end, length, ahead)
    return Split(np.zeros(items, dtype=np.int64), read, unit="token", per_item=length)
