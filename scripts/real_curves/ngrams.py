"""n-gram models with back-off, on arrays: which symbol follows the symbols before it.

Inputs are contexts (N, longest), the nearest symbol first; targets the symbols (N) that follow; all from 0 to
`symbols`. A context of k symbols and what follows are one number in base `symbols`.
"""

from dataclasses import dataclass

import numpy as np

DISCOUNT = 0.75  # of each count, with absolute discounting and Kneser and Ney's


@dataclass(frozen=True)
class Counts:
    """Of contexts of one length: how often each is followed by each symbol, by anything, and by how many symbols."""

    pairs: np.ndarray  # (P), sorted: context * symbols + what follows
    pair_counts: np.ndarray  # (P)
    contexts: np.ndarray  # (C), sorted
    totals: np.ndarray  # (C)
    kinds: np.ndarray  # (C)


class NGram:
    """Smoothing: `add` (one to each count), `witten` (and Bell's), `absolute` discounting, `kneser` (and Ney's)."""

    def __init__(self, order: int, symbols: int, smoothing: str):
        self.order, self.symbols, self.smoothing = order, symbols, smoothing

    def fit(self, contexts: np.ndarray, following: np.ndarray) -> None:
        lengths = range(self.order)
        raw = [np.unique(self.encode(contexts, length, following), return_counts=True) for length in lengths]
        if self.smoothing == "kneser":  # shorter contexts count in how many longer ones a pair stands
            shortened = [self.shorten(raw[length + 1][0], length) for length in lengths[:-1]]
            raw = [*(np.unique(pairs, return_counts=True) for pairs in shortened), raw[-1]]
        self.counts = [self.tabulate(*found) for found in raw]

    def encode(self, contexts: np.ndarray, length: int, following: np.ndarray) -> np.ndarray:
        base = self.symbols ** np.arange(length, dtype=np.int64)
        return (contexts[:, :length] * base).sum(1, dtype=np.int64) * self.symbols + following

    def shorten(self, pairs: np.ndarray, length: int) -> np.ndarray:
        """Pairs whose contexts lose all but their nearest `length` symbols."""
        return pairs // self.symbols % self.symbols**length * self.symbols + pairs % self.symbols

    def tabulate(self, pairs: np.ndarray, counts: np.ndarray) -> Counts:
        contexts, first, kinds = np.unique(pairs // self.symbols, return_index=True, return_counts=True)
        return Counts(pairs, counts, contexts, np.add.reduceat(counts, first), kinds)

    def probabilities(self, contexts: np.ndarray, following: np.ndarray) -> np.ndarray:
        """(N): of each symbol that follows, backed off from the longest context to none and to all symbols alike."""
        share = np.full(len(following), 1 / self.symbols)
        for length, counts in enumerate(self.counts):
            pairs = self.encode(contexts, length, following)
            count = look_up(counts.pairs, counts.pair_counts, pairs)
            total = look_up(counts.contexts, counts.totals, pairs // self.symbols)
            kinds = look_up(counts.contexts, counts.kinds, pairs // self.symbols)
            if self.smoothing == "add":
                share = (count + 1) / (total + self.symbols)
            elif self.smoothing == "witten":
                share = np.where(total > 0, (count + kinds * share) / np.maximum(total + kinds, 1), share)
            else:
                kept = np.maximum(count - DISCOUNT, 0) + DISCOUNT * kinds * share
                share = np.where(total > 0, kept / np.maximum(total, 1), share)
        return share

    def log_probabilities(self, contexts: np.ndarray, following: np.ndarray) -> np.ndarray:
        return np.log(self.probabilities(contexts, following))

    def predict(self, contexts: np.ndarray) -> np.ndarray:
        """(N): the most probable symbol."""
        every = [self.probabilities(contexts, np.full(len(contexts), symbol)) for symbol in range(self.symbols)]
        return np.argmax(every, axis=0)


def look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 where it is not among the sorted keys."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def make_contexts(symbols: np.ndarray, longest: int) -> np.ndarray:
    """(N, longest): the symbols before each of N, the nearest first; zeros before the beginning."""
    padded = np.concatenate([np.zeros(longest, symbols.dtype), symbols])
    return np.stack([padded[longest - back : len(padded) - back] for back in range(1, longest + 1)], axis=1)


def ngrams(symbols: int, names: str) -> dict:
    """Learners by names such as `witten_3`: the smoothing and the order."""
    made = (name.split("_") for name in names.split())
    return {
        f"{smoothing}_{order}": lambda seed, order=int(order), smoothing=smoothing: NGram(order, symbols, smoothing)
        for smoothing, order in made
    }
