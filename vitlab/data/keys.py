"""Items chosen by a hash of their names: the same ones wherever they lie, in whatever order, beside whatever others."""

import hashlib

import numpy as np


def hash_key(name: str) -> int:
    """The first 64 bits of the SHA-256 of an item's name."""
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:8], "little")


def draw(keys: np.ndarray, purpose: str) -> np.ndarray:
    """uint64 (N,) from keys, uint64 (N,): uniform, and for each purpose another draw.

    The finalizer of SplitMix64 (Steele, Lea and Flood, 2014, figure 19) of the sum of a key and the purpose's hash.
    """
    drawn = keys + np.uint64(hash_key(purpose))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        drawn ^= drawn >> np.uint64(shift)
        drawn *= np.uint64(factor)
    return drawn ^ (drawn >> np.uint64(31))


def choose_share(keys: np.ndarray, threshold: int, purpose: str) -> np.ndarray:
    """bool (N,): a share of threshold / 2^64 of the items, in expectation; a larger one contains it."""
    return np.ones(len(keys), dtype=bool) if threshold >= 2**64 else draw(keys, purpose) < np.uint64(threshold)


def choose_count(keys: np.ndarray, count: int, purpose: str) -> np.ndarray:
    """bool (N,): so many items, those of the smallest draws."""
    chosen = np.zeros(len(keys), dtype=bool)
    if count:
        chosen[np.argpartition(draw(keys, purpose), count - 1)[:count]] = True
    return chosen
