"""Two models compared run by run: runs of the same seed and size share subset, order and test images."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import stdtrit


@dataclass(frozen=True)
class PairedDifference:
    """Mean and sample standard deviation of the differences between two models, over `pairs` seeds."""

    mean: float
    std: float
    pairs: int

    @property
    def half_width(self) -> float:
        """Half of the mean's 95% confidence interval, by Student's t."""
        return float(stdtrit(self.pairs - 1, 0.975)) * self.std / math.sqrt(self.pairs)

    @property
    def clear(self) -> bool:
        """Whether the mean lies outside the spread over seeds, or, of many seeds, a paired t-test finds it at 5%."""
        return abs(self.mean) > min(self.std, self.half_width)


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> PairedDifference | None:
    """First minus second, from a value per seed of each model; None where fewer than two seeds have both."""
    differences = [first[seed] - second[seed] for seed in first.keys() & second.keys()]
    if len(differences) < 2:
        return None
    return PairedDifference(statistics.fmean(differences), statistics.stdev(differences), len(differences))
