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


def paired_difference(first: Values, second: Values, spread: Spread | None = None) -> Estimate:
    """The mean of the first less the mean of the second, each over all of its seeds, so the means that are shown.

    Seeds that both have are paired, since they share the training subset; so are test items where both have a value
    for each. `seeds` are those of the model that has fewer. `spread` is of the paired differences over seeds, where
    the same models at other sizes tell it better than their own do (`moderated_spreads`).
    """
    shapes = {np.shape(value) for model in (first, second) for value in model.values()}
    if len(shapes) > 1:  # an old run kept no items
        first, second = ({seed: float(np.mean(value)) for seed, value in model.items()} for model in (first, second))
    shared = sorted(first.keys() & second.keys())
    order = [[*shared, *sorted(model.keys() - shared)] for model in (first, second)]
    tables = [
        np.stack([np.atleast_1d(model[seed]) for seed in seeds]).astype(np.float64)
        for model, seeds in zip((first, second), order, strict=True)
    ]
    if len(first) == len(second) == len(shared):
        return estimate_mean(tables[0] - tables[1], spread)
    return estimate_difference(*tables, len(shared))


def estimate_difference(first: np.ndarray, second: np.ndarray, shared: int) -> Estimate:
    """The difference of the means of two tables (seeds, items); only the first `shared` seeds of both are the same.

    As `estimate_mean`; the degrees of freedom over seeds are Welch's (1947).
    """
    items, fewest = first.shape[1], min(len(first), len(second))
    mean, by_item = float(first.mean() - second.mean()), first.mean(axis=0) - second.mean(axis=0)
    if len(first) == len(second) == 1:
        half_width = quantile(items - 1) * float(by_item.std(ddof=1)) / math.sqrt(items) if items > 1 else None
        return Estimate(mean, half_width, 1, items if items > 1 else 0)
    means = [table.mean(axis=1, keepdims=True) for table in (first, second)]
    over_seeds, degrees = vary_over_seeds(*means, shared)
    if items == 1:
        return Estimate(mean, quantile(degrees) * math.sqrt(over_seeds[0]), fewest)
    rests = [
        table - table.mean(axis=0) - of_seed + table.mean()
        for table, of_seed in zip((first, second), means, strict=True)
    ]
    rest = float(vary_over_seeds(*rests, shared)[0].sum()) / (items * (items - 1))
    parts = np.array([over_seeds[0], by_item.var(ddof=1) / items, rest])
    return combine_parts(mean, parts, np.array([degrees, items - 1, degrees * (items - 1)]), fewest, items)


def vary_over_seeds(first: np.ndarray, second: np.ndarray, shared: int) -> tuple[np.ndarray, float]:
    """The variance over seeds of the difference of the means over (seeds, n) and its degrees of freedom.

    A model with one seed is taken to vary as the other one does.
    """
    counts = [len(first), len(second)]
    known = [table.var(axis=0, ddof=1) if len(table) > 1 else None for table in (first, second)]
    variances = [known[i] if known[i] is not None else known[1 - i] for i in (0, 1)]
    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    spent = sum(float(part.sum()) ** 2 / (count - 1) for part, count in zip(parts, counts, strict=True) if count > 1)
    paired_first, other = first[:shared], second[:shared]
    together = np.zeros(first.shape[1])
    if shared > 1:
        together = ((paired_first - paired_first.mean(axis=0)) * (other - other.mean(axis=0))).sum(axis=0) / (
            shared - 1
        )
        limit = np.sqrt(variances[0] * variances[1])
        together = np.clip(together, -limit, limit)
    variance = parts[0] + parts[1] - 2 * together * shared / (counts[0] * counts[1])
    total = float(sum(parts).sum())
    degrees = total**2 / spent if spent > 0 and min(counts) > 1 else max(counts) - 1
    return np.maximum(variance, 0), float(degrees)


def combine_parts(mean: float, parts: np.ndarray, degrees: np.ndarray, seeds: int, items: int) -> Estimate:
    """From the variances of a mean over seeds, over items, and the rest that both hold, by Satterthwaite's rule."""
    variance = max(parts[0], parts[2]) + parts[1] - parts[2]  # the component of the seeds is not below 0
    if variance <= 0:
        return Estimate(mean, 0.0, seeds, items)
    degrees_known = variance**2 / (parts**2 / degrees).sum()
    return Estimate(mean, quantile(degrees_known) * math.sqrt(variance), seeds, items)


def list_seed_differences(first: Values, second: Values) -> list[float]:
    """First minus second of each seed that both have, over the test items."""
    return [float(np.mean(first[seed]) - np.mean(second[seed])) for seed in sorted(first.keys() & second.keys())]


def estimate_mean(values: np.ndarray, spread: Spread | None = None) -> Estimate:
    """The mean of (S,) values of S seeds, or of (S, n) values on the same n test items.

    With items and two seeds or more the variance of the mean is put together from the mean squares of a two-way
    table, with Satterthwaite's degrees of freedom (Searle et al., Variance Components, 1992, sections 4.3 and 5.2).
    With one seed it is that over items alone, without items that over seeds alone. A `spread` over seeds that is known
    better stands in place of that of these seeds.
    """
    table = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    (seeds, items), mean = table.shape, float(table.mean())
    if items == 1:
        return mean_over_seeds(table[:, 0], spread if seeds > 1 else None)
    if seeds == 1:
        return Estimate(mean, quantile(items - 1) * float(table.std(ddof=1)) / math.sqrt(items), 1, items)
    by_seed, by_item = table.mean(axis=1), table.mean(axis=0)
    rest = table - by_seed[:, None] - by_item + mean
    degrees = np.array([seeds - 1, items - 1, (seeds - 1) * (items - 1)])
    squares = np.array([items * ((by_seed - mean) ** 2).sum(), seeds * ((by_item - mean) ** 2).sum(), (rest**2).sum()])
    parts = squares / degrees / table.size
    if spread is not None:
        parts[0], degrees = spread.std**2 / seeds, spread.degrees * np.array([1, 0, 0]) + degrees * np.array([0, 1, 1])
    return combine_parts(mean, parts, degrees, seeds, items)


def mean_over_seeds(values: Sequence[float], spread: Spread | None = None) -> Estimate:
    """The mean of runs of one model at one size, on this test set, by Student's t; see `moderated_spreads`."""
    mean, seeds = statistics.fmean(values), len(values)
    if spread is None and seeds > 1:
        spread = Spread(statistics.stdev(values), seeds - 1)
    half_width = None if spread is None else quantile(spread.degrees) * spread.std / math.sqrt(seeds)
    return Estimate(mean, half_width, seeds)


def moderated_spreads(by_size: Mapping[float, Sequence[float]]) -> dict[float, Spread]:
    """The spread over seeds at each size, moderated by a line through those of all sizes of the model.

    The line is of the log variance in the log of the size, so two sizes tell nothing of each other: a gamma
    regression, whose estimate at a size is worth 1 / leverage degrees of freedom (McCullagh and Nelder, 1989, section
    8.3). How much a size borrows from it follows from how far the variances scatter about it (Smyth, 2004, section 6):
    nothing where the line is worth less than one more seed. A size of one seed has what the line says; empty where
    no size has two.
    """
    repeated = {
        size: (statistics.variance(values), len(values) - 1) for size, values in by_size.items() if len(values) > 1
    }
    known = {size: spread for size, spread in repeated.items() if spread[0] > 0}
    if not known:
        return {}
    from scipy.optimize import brentq  # 0.5 s, not at the top: a finished study needs none of it
    from scipy.special import digamma, polygamma

    variances, degrees = (np.array(part, dtype=float) for part in zip(*known.values(), strict=True))
    columns = min(2, len(known))
    known_rows, rows = (np.vander(np.log(list(sizes)), columns) for sizes in (known, by_size))
    inverse = np.linalg.pinv(known_rows.T @ (degrees[:, None] * known_rows))
    line = np.log(np.average(variances, weights=degrees)) * np.eye(columns)[-1]
    for _ in range(50):
        fitted = np.exp(known_rows @ line)
        line = line + inverse @ (known_rows.T @ (degrees * (variances / fitted - 1).clip(-1, 3)))
    logs = np.log(variances) - digamma(degrees / 2) + np.log(degrees / 2) - known_rows @ line
    excess = 0.0
    if len(logs) > columns:
        excess = float((logs**2).sum() / (len(logs) - columns) - polygamma(1, degrees / 2).mean())
    # the variance of log variances that is left is trigamma(prior / 2)
    prior = 2 * brentq(lambda half: polygamma(1, half) - excess, 1e-6, 1e6) if excess > 1e-6 else math.inf
    spreads = {}
    for size, row in zip(by_size, rows, strict=True):
        common, worth = math.exp(row @ line), 1 / float(row @ inverse @ row)
        variance, own = repeated.get(size, (common, 0))
        if variance and own and prior < 1:
            spreads[size] = Spread(math.sqrt(variance), own)
            continue
        pooled = common if math.isinf(prior) else (prior * common + own * variance) / (prior + own)
        degrees_here = min(prior + own, worth)
        # seeds that agree to the digit, as where no test item is wrong, have a log variance of no use, yet are seeds
        spreads[size] = Spread(math.sqrt(pooled), degrees_here if variance else max(degrees_here, own))
    return spreads


def quantile(degrees: float) -> float:
    """How many standard errors a 95% interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
