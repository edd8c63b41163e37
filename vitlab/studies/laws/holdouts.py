"""Rolling hold-outs of a curve: what laws fitted to its first sizes miss the larger ones by.

How fast a curve left its laws before is the best sign of how fast it will leave them beyond the data (docs/rules.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 4  # sizes of the first fold; 3 of a curve with 4 sizes
MOST = 6  # folds
PRIOR = 0.02  # miss per doubling, as of one more hold-out


@dataclass(frozen=True)
class Holdout:
    """Of one fold, for each held-out size: log predicted less log measured error (K), and how far it is (K)."""

    misses: np.ndarray
    doublings: np.ndarray  # beyond the largest size that was fitted


def list_folds(sizes: int) -> list[int]:
    """How many sizes each fold is fitted to; of many sizes some folds, evenly spaced."""
    folds = np.arange(FEWEST if sizes > FEWEST else FEWEST - 1, sizes)
    return (
        sorted({int(folds[i]) for i in np.linspace(0, len(folds) - 1, MOST).round().astype(int)}) if len(folds) else []
    )


def miss_per_doubling(holdouts: Sequence[Holdout]) -> float:
    """The root mean square over the folds of the miss per doubling, pooled with a prior one of .02."""
    rates = [holdout.misses @ holdout.doublings / (holdout.doublings @ holdout.doublings) for holdout in holdouts]
    return root_mean_square(np.array([*rates, PRIOR]))


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))
