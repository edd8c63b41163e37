"""Which of some named things are held out: by their names alone, so that others that come or go move few of them."""

import hashlib
from collections.abc import Sequence


def choose_by_hash(names: Sequence[str], share: float, seed: int = 0) -> set[str]:
    """The share of the names with the smallest hash of seed and name; at least one, and never all of them."""
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest())
    return set(ranked[: max(0, min(max(1, round(share * len(names))), len(names) - 1))])
