"""How sure a mean is: of one model's runs, or of the differences between two models' runs of the same seeds.

Two things would be others if a study were done again, the seeds (of the subset, the first weights, the order) and the
test items. Both are taken as random and crossed. Coverage, measured: docs/rules.md, scripts/coverage_of_intervals.py.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
Values = Mapping[int, float | np.ndarray]  # by seed: a run's value, or its value on each test item (n,)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% confidence interval, `mean` ± `half_width`; None where nothing tells how sure it is.

    The interval covers other seeds where there are two `seeds` or more, and other test items where `items` is not 0.
    """

    mean: float
    half_width: float | None
    seeds: int
    items: int = 0

    @property
    def low(self) -> float:
        return self.mean - (math.inf if self.half_width is None else self.half_width)

    @property
    def high(self) -> float:
        return self.mean + (math.inf if self.half_width is None else self.half_width)

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Spread:
    """A standard deviation over seeds, and the degrees of freedom that it is known with."""

    std: float
    degrees: float


def paired_difference(first: Values, second: Values) -> Estimate | None:
    """First minus second over the seeds that both have, on the same test items where both have a value for each.

    Models with two seeds or more each that do not share two are compared by Welch's interval over seeds. None where
    no seed is shared either.
    """
    shared = sorted(first.keys() & second.keys())
    if len(shared) < 2 <= min(len(first), len(second)):
        return welch_difference(*([float(np.mean(value)) for value in model.values()] for model in (first, second)))
    pairs = [(np.atleast_1d(first[seed]), np.atleast_1d(second[seed])) for seed in shared]
    if len({values.shape for pair in pairs for values in pair}) > 1:
        pairs = [tuple(values.mean(keepdims=True) for values in pair) for pair in pairs]
    return estimate_mean(np.stack([one - other for one, other in pairs])) if pairs else None


def estimate_mean(values: np.ndarray) -> Estimate:
    """The mean of (S,) values of S seeds, or of (S, n) values on the same n test items.

    With items and two seeds or more the variance of the mean is put together from the mean squares of a two-way
    table, with Satterthwaite's degrees of freedom (Searle et al., Variance Components, 1992, sections 4.3 and 5.2).
    With one seed it is that over items alone, without items that over seeds alone.
    """
    table = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    (seeds, items), mean = table.shape, float(table.mean())
    if items == 1:
        return mean_over_seeds(table[:, 0])
    if seeds == 1:
        return Estimate(mean, quantile(items - 1) * float(table.std(ddof=1)) / math.sqrt(items), 1, items)
    by_seed, by_item = table.mean(axis=1), table.mean(axis=0)
    rest = table - by_seed[:, None] - by_item + mean
    degrees = np.array([seeds - 1, items - 1, (seeds - 1) * (items - 1)])
    squares = np.array([items * ((by_seed - mean) ** 2).sum(), seeds * ((by_item - mean) ** 2).sum(), (rest**2).sum()])
    squares /= degrees
    # of the mean times its number of values; the component of the seeds is not below 0
    variance = max(squares[0], squares[2]) + squares[1] - squares[2]
    if variance <= 0:
        return Estimate(mean, 0.0, seeds, items)
    known = variance**2 / (squares**2 / degrees).sum()
    return Estimate(mean, quantile(known) * math.sqrt(variance / table.size), seeds, items)


def mean_over_seeds(values: Sequence[float], spread: Spread | None = None) -> Estimate:
    """The mean of runs of one model at one size, on this test set, by Student's t; see `moderated_spreads`."""
    mean, seeds = statistics.fmean(values), len(values)
    if spread is None and seeds > 1:
        spread = Spread(statistics.stdev(values), seeds - 1)
    half_width = None if spread is None else quantile(spread.degrees) * spread.std / math.sqrt(seeds)
    return Estimate(mean, half_width, seeds)


def welch_difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The means of two models with different seeds, two or more each (Welch, 1947); `seeds` is of the smaller one."""
    sizes = [len(first), len(second)]
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    mean, variance = statistics.fmean(first) - statistics.fmean(second), sum(parts)
    if variance == 0:
        return Estimate(mean, 0.0, min(sizes))
    degrees = variance**2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return Estimate(mean, quantile(degrees) * math.sqrt(variance), min(sizes))


def moderated_spreads(by_size: Mapping[int, Sequence[float]]) -> dict[int, Spread]:
    """The spread over seeds at each size, moderated by those of the model's other sizes (Smyth, 2004, section 6).

    How much is borrowed follows from how alike the variances are, and the degrees of freedom are at most those of all
    sizes together. A size of one seed has what is common to the others; empty where no size has two.
    """
    known = {
        size: (statistics.variance(values), len(values) - 1) for size, values in by_size.items() if len(values) > 1
    }
    known = {size: found for size, found in known.items() if found[0] > 0}
    if not known:
        return {}
    from scipy.optimize import brentq  # 0.5 s, not at the top: a finished study needs none of it
    from scipy.special import digamma, polygamma

    variances, degrees = (np.array(part, dtype=float) for part in zip(*known.values(), strict=True))
    logs = np.log(variances) - digamma(degrees / 2) + np.log(degrees / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, degrees / 2).mean()) if len(logs) > 1 else 0.0
    # the variance of log variances that is left is trigamma(prior / 2)
    prior = 2 * brentq(lambda half: polygamma(1, half) - excess, 1e-6, 1e6) if excess > 1e-6 else math.inf
    center = logs.mean() + (0.0 if math.isinf(prior) else digamma(prior / 2) - math.log(prior / 2))
    common, most = math.exp(center), float(degrees.sum())
    found = {}
    for size in by_size:
        variance, own = known.get(size, (common, 0))
        pooled = common if math.isinf(prior) else (prior * common + own * variance) / (prior + own)
        found[size] = Spread(math.sqrt(pooled), min(prior + own, most))
    return found


def quantile(degrees: float) -> float:
    """How many standard errors a 95% interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
