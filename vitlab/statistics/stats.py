"""Estimate the uncertainty of one model's mean, or of the difference between two models' runs of the same seeds.

A repeated study would have other seeds (subset, first weights, order) and other test items. Treat both as random and
crossed. Measured coverage: docs/rules.md.
"""

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

CONFIDENCE = 0.95
MOST_DEGREES = 5  # at most so many times the degrees of the spread over seeds: two seeds may agree by chance
OF_GAPS = 2  # the same for differences, which are judged together and so need farther tails
DRAWS = 2400
BEHIND = 3  # trials behind the best
NODES = (np.arange(24) + 0.5) / 24  # shares at which what chance may bring is taken
Costs = Sequence[tuple[float, Sequence[float]]]  # for each cell of a family: mean cost, metric of each seed
Values = Mapping[int, float | np.ndarray]  # by seed: a run's value, or its value on each test item (n,)


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard `error`, None if the runs cannot tell it.

    degrees: degrees of freedom of the error, which covers other seeds if `seeds` is 2 or more, other test items if
    `items` is not 0. floor: least half-width of the 95% interval. comparisons: questions that share the 5% which the
    interval leaves out. over_seeds, over_items: parts of its square that fall with more.
    """

    mean: float
    error: float | None
    degrees: float
    seeds: int
    items: int = 0
    floor: float = 0.0
    comparisons: float = 1
    over_seeds: float = 0.0
    over_items: float = 0.0

    @cached_property
    def half_width(self) -> float | None:
        """Half the width of the interval; None without an error."""
        if self.error is None:
            return None
        left_out = (1 - CONFIDENCE) / self.comparisons
        return max(quantile(self.degrees, 1 - left_out) * self.error, self.floor * math.log(left_out, 1 - CONFIDENCE))

    @cached_property
    def p(self) -> float:
        """The two-sided p-value of a mean of 0, times the comparisons; 1 without an error."""
        if self.error is None or self.mean == 0:
            return 1.0
        from scipy.special import stdtr

        by_error = 2 * float(stdtr(self.degrees, -abs(self.mean) / self.error)) if self.error else 0.0
        by_floor = (1 - CONFIDENCE) ** (abs(self.mean) / self.floor) if self.floor else 0.0
        return min(1.0, self.comparisons * max(by_error, by_floor))

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


class Spread(NamedTuple):
    """A standard deviation over seeds, its degrees of freedom, and those of all that it borrows from."""

    std: float
    degrees: float
    most: float = math.inf


class Runs(NamedTuple):
    """A model's runs at a size: their mean, seeds and spread, and the mean of each test item, (n,) or (1,) if unknown.

    rest: the variance of a run's mean that neither its seed nor the items alone explain; None from one seed.
    """

    mean: float
    seeds: frozenset[int]
    spread: Spread | None
    by_item: np.ndarray
    rest: float | None


def summarize(values: Values, spread: Spread | None = None) -> Runs:
    """Summarize a model's runs; a better known `spread` replaces that of these seeds."""
    if len({np.shape(value) for value in values.values()}) > 1:  # some run kept no items
        values = {seed: float(np.mean(value)) for seed, value in values.items()}
    table = np.stack([np.atleast_1d(value) for value in values.values()]).astype(np.float64)
    (seeds, items), by_item, by_seed, rest = table.shape, table.mean(axis=0), table.mean(axis=1), None
    if seeds > 1:
        squares = ((table - by_seed[:, None] - by_item + by_item.mean()) ** 2).sum()
        rest = float(squares) / ((seeds - 1) * max(items - 1, 1) * items)
        spread = spread or Spread(float(by_seed.std(ddof=1)), seeds - 1)
    return Runs(float(table.mean()), frozenset(values), spread, by_item, rest)


def subtract(first: Runs, second: Runs, correlation: float = 0.0, overlap: float = 0.0, floor: float = 0.0) -> Estimate:
    """Estimate the first model's mean less the second's, each over all of its seeds, as tables show them.

    Equal seeds have the `correlation`; test items are paired if both models have them. A model with one seed and no
    spread takes the other's. overlap: test / training items if each seed has its own test set, else 0. floor: least
    half-width of the interval. The result's `seeds` count the model with fewer.
    """
    counts, mean = [len(first.seeds), len(second.seeds)], first.mean - second.mean
    spreads = first.spread or second.spread, second.spread or first.spread
    over_seeds, degrees, rest, by_item = math.nan, 0.0, 0.0, np.zeros(1)
    if spreads[0] and spreads[1]:
        parts = [spread.std**2 / count for spread, count in zip(spreads, counts, strict=True)]
        together = correlation * spreads[0].std * spreads[1].std
        over_seeds = sum(parts) - 2 * together * len(first.seeds & second.seeds) / (counts[0] * counts[1])
        over_seeds = max(over_seeds + overlap * (spreads[0].std ** 2 + spreads[1].std ** 2 - 2 * together), 0.0)
        spent = sum(part**2 / spread.degrees for part, spread in zip(parts, spreads, strict=True))
        degrees = sum(parts) ** 2 / spent if spent else min(spread.degrees for spread in spreads)
        degrees = spreads[0].degrees if spreads[0] is spreads[1] else min(degrees, *(spread.most for spread in spreads))
    if first.by_item.shape == second.by_item.shape:
        by_item = first.by_item - second.by_item
        known = [runs.rest for runs in (first, second) if runs.rest is not None] or [0.0]
        rest = known[0] / counts[0] + known[-1] / counts[1]
    found = combine_parts(mean, over_seeds, degrees, by_item, rest, min(counts), floor)
    falls = found.over_seeds / (1 + overlap * min(counts))  # more seeds do not change what one test set brings
    return replace(found, degrees=min(found.degrees, OF_GAPS * degrees), over_seeds=falls) if degrees else found


def combine_parts(
    mean: float, over_seeds: float, degrees: float, by_item: np.ndarray, rest: float, seeds: int, floor: float
) -> Estimate:
    """Combine the variances of a mean over seeds, over items, and the rest in both, by Satterthwaite's rule."""
    items, known = len(by_item), math.isfinite(over_seeds)
    of_seeds = over_seeds if known else 0.0
    if items == 1:
        error = math.sqrt(over_seeds) if known else None
        return Estimate(mean, error, degrees, seeds, floor=floor, over_seeds=of_seeds)
    parts = np.array([of_seeds, by_item.var(ddof=1) / items, rest])
    whole = np.maximum(parts, rest)  # the components of the seeds and of the items are not below 0
    variance = whole[0] + whole[1] - rest
    known_with = np.maximum([degrees, items - 1, max(degrees, 1) * (items - 1)], 1e-9)
    of_all = variance**2 / (parts**2 / known_with).sum() if variance > 0 else math.inf
    of_all = min(of_all, MOST_DEGREES * degrees) if known else of_all
    of_seeds = float(whole[0]) if known else 0.0
    return Estimate(mean, math.sqrt(variance), of_all, seeds, items, floor, 1, of_seeds, float(whole[1]))


def estimate_mean(
    values: np.ndarray, spread: Spread | None = None, overlap: float = 0.0, floor: float = 0.0
) -> Estimate:
    """Estimate the mean of (S,) values of S seeds, or of (S, n) values on the same n test items.

    With items, combine the mean squares of a two-way table, with Satterthwaite's degrees of freedom (Searle et al.,
    Variance Components, 1992, sections 4.3 and 5.2). A better known `spread` over seeds replaces the spread of these
    seeds. One seed without a spread gets an interval over items alone, without items none. `overlap` and `floor`: as in
    `subtract`.
    """
    runs, seeds = summarize(dict(enumerate(np.asarray(values))), spread), len(values)
    over_seeds = runs.spread.std**2 * (1 / seeds + overlap) if runs.spread else math.nan
    degrees = runs.spread.degrees if runs.spread else 0.0
    return combine_parts(runs.mean, over_seeds, degrees, runs.by_item, (runs.rest or 0.0) / seeds, seeds, floor)


def correlate(models: Sequence[Mapping[int, float]], stds: Sequence[float]) -> tuple[float, float]:
    """Sum the products of two models' values of a seed, standardized, over pairs of models; return also the degrees."""
    seeds = sorted({seed for model in models for seed in model})
    rows = [[model.get(seed, math.nan) for seed in seeds] for model in models]
    table = np.array(rows).reshape(len(models), len(seeds))
    known = np.isfinite(table).astype(float)
    table = np.nan_to_num(table - np.nanmean(table, axis=1, keepdims=True)) / np.array(stds).reshape(-1, 1)
    shared = np.triu(known @ known.T, 1)
    return float((table @ table.T)[shared > 1].sum()), float((shared[shared > 1] - 1).sum())


def moderated_spreads(
    by_size: Mapping[Any, Sequence[float]], size_of: Callable[[Any], float] = float
) -> dict[Any, Spread]:
    """Compute the spread over seeds at each size, moderated by a line through the spreads of all of the model's sizes.

    Fit a line to the log variance in the log size by gamma regression, so two sizes tell nothing of each other. The
    line is worth 1 / leverage degrees of freedom at a size (McCullagh and Nelder, 1989, section 8.3). A size borrows
    the more from the line, the less the variances scatter about it (Smyth, 2004, section 6); nothing if the line is
    worth less than one more seed. A size with one seed takes the line's spread. If the line is worth less than a seed
    there, as far from sizes with few seeds, the size takes the variance pooled over all sizes with its degrees of
    freedom (Satterthwaite, 1946). Return {} if no size has two seeds.

    With `size_of`, keys are cells of several models, and one line is for all. The line is then worth less, by
    Satterthwaite's rule, the more they differ; half of what seeds differ by chance is taken off.
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
    sizes = [size_of(key) for key in known]
    columns = min(2, len({*sizes}))
    known_rows, rows = (np.vander(np.log(of), columns) for of in (sizes, [size_of(key) for key in by_size]))
    inverse = np.linalg.pinv(known_rows.T @ (degrees[:, None] * known_rows))
    pooled = float(np.average(variances, weights=degrees))
    flat = Spread(math.sqrt(pooled), float((degrees @ variances) ** 2 / (degrees @ variances**2)))
    line = np.log(pooled) * np.eye(columns)[-1]
    for _ in range(50 * (columns - 1)):  # the pooled variance is the best line of one size
        fitted = np.exp(known_rows @ line)
        line = line + inverse @ (known_rows.T @ (degrees * (variances / fitted - 1).clip(-1, 3)))
    ratios = variances / np.exp(known_rows @ line)
    logs = np.log(ratios) - digamma(degrees / 2) + np.log(degrees / 2)
    excess, share = 0.0, 1.0
    if len(logs) > columns:
        of_line = (logs - logs.mean() * (columns == 1)) ** 2
        excess = float(of_line.sum() / (len(logs) - columns) - polygamma(1, degrees / 2).mean())
    if len(known) > len({*sizes}):
        share = 1 / (1 + max(float(degrees @ ratios**2 - len(known) + 2) / degrees.sum() - 1, 0))
    # solve for trigamma(prior / 2) = the variance of log variances that is left
    prior = 2 * brentq(lambda half: polygamma(1, half) - excess, 1e-6, 1e6) if excess > 1e-6 else math.inf
    spreads = {}
    for size, row in zip(by_size, rows, strict=True):
        common, worth = math.exp(row @ line), share / float(row @ inverse @ row)
        variance, own = repeated.get(size, (common, 0))
        if not own and worth < 1:
            spreads[size] = flat
            continue
        if variance and own and prior < 1:
            spreads[size] = Spread(math.sqrt(variance), own, max(worth, own))
            continue
        mixed = common if math.isinf(prior) else (prior * common + own * variance) / (prior + own)
        degrees_here = min(prior + own, worth)
        # seeds that agree to the digit, as without any mistake, have no usable log variance, yet count as seeds
        spreads[size] = Spread(math.sqrt(mixed), degrees_here if variance else max(degrees_here, own), max(worth, own))
    return spreads


def quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Compute Student's t: how many standard errors an interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


def adjust_p_values(values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several questions so that those below 0.05 hold all at once (Holm, 1979)."""
    order = np.argsort(values)
    times = len(values) - np.arange(len(values))
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(np.minimum(np.asarray(values)[order] * times, 1))
    return adjusted.tolist()


def find_visible(gap: Estimate, have: float, models: int, seeds: float | None = None, items: float = 1.0) -> float:
    """Find the lead over other models, which are equal, that 4 of 5 studies call with errors like a gap's; or infinite.

    They have `have` seeds each, or `seeds`, and so many times the items. The power, of a noncentral t, is averaged over
    the errors (of 1.3 times the degrees, by simulation), degrees and luck of the best other that may be behind the gap.
    """
    from scipy.optimize import brentq
    from scipy.special import chdtri, ndtr, ndtri

    seeds, left_out = seeds or have, (1 - CONFIDENCE) / gap.comparisons
    error = math.sqrt(gap.error**2 - gap.over_seeds * (1 - have / seeds) - gap.over_items * (1 - 1 / items))
    then = min(gap.degrees * max(seeds - 1, 1) / max(have - 1, 1), 1e6)
    draw_errors = lambda degrees: np.sqrt(chdtri(degrees, NODES) / degrees)  # noqa: E731
    known, thens = draw_errors(min(1.3 * gap.degrees, 1e6)), [then / 2, then] if models > 2 else [then]
    needed = np.concatenate([quantile(one, 1 - left_out) * draw_errors(one) for one in thens])[:, None]
    luck = ndtri(NODES ** (1 / (models - 1)))[:, None, None]
    excess = lambda times: ndtr(math.sqrt(2) * (times * known - needed) - luck).mean() - 0.8  # noqa: E731
    times = brentq(excess, 0, 100, xtol=1e-3) if excess(100) > 0 else math.inf
    return max(times * error, gap.floor * math.log(left_out, 1 - CONFIDENCE) + error)


# ---- the best of several trials


def weigh_ranks(finished: int, trials: int, best_of: int) -> np.ndarray:
    """Compute how often each finished trial, best first, is the best of `best_of` drawn from `trials`: (finished,).

    The mean with these weights estimates the best of so many without bias (Tang et al., 2020, "Showing your work
    doesn't always work"). A choice without a finished trial does not count.
    """
    choices = math.comb(trials, best_of) - math.comb(trials - finished, best_of)
    return np.array([math.comb(trials - rank, best_of - 1) / choices for rank in range(1, finished + 1)])


def draw_luck(
    ranked: Mapping[tuple[str, int, int], Sequence[tuple[int, float]]], counts: Mapping[str, int], best_of: int
) -> dict[tuple[str, int], np.ndarray]:
    """Bootstrap the trials: change of the best-of-k metric of each model and size, mean 0, (DRAWS,).

    ranked: by model, size and seed, the number and metric of each finished trial, best on validation items first.
    counts: the trials of each model. A draw uses the same trials at all sizes and seeds of a model. The spread of
    the best of all is at least its distance to the trial BEHIND it: where good recipes are rare, others may have none.
    """
    shares, found, behind = dict[str, np.ndarray](), dict[tuple[str, int], list[np.ndarray]](), {}
    for model, count in counts.items():
        drawn = np.random.default_rng([*model.encode()]).multinomial(count, np.full(count, 1 / count), DRAWS)
        shares[model] = drawn / count
    for (model, size, _), trials in ranked.items():
        numbers, values = zip(*trials, strict=True)
        worse = 1 - shares[model][:, np.array(numbers) - 1].cumsum(axis=1).clip(0, 1)
        weights = -np.diff(worse**best_of, axis=1, prepend=1.0)
        with np.errstate(invalid="ignore"):
            drawn = weights @ values / weights.sum(axis=1)
        found.setdefault((model, size), []).append(np.nan_to_num(drawn - np.nanmean(drawn)))
        behind.setdefault((model, size), []).append(values[0] - values[min(BEHIND, len(values) - 1)])
    draws = {cell: np.mean(of_seeds, axis=0) for cell, of_seeds in found.items()}
    least = {cell: abs(np.mean(gaps)) * (best_of >= max(counts.values())) for cell, gaps in behind.items()}
    return {cell: one * max(1.0, least[cell] / max(one.std(), 1e-12)) for cell, one in draws.items()}


def draw(keys: np.ndarray, purpose: str) -> np.ndarray:
    """Draw uniform uint64 (N,) from keys, uint64 (N,), differently for each purpose.

    Apply SplitMix64's finalizer (Steele, Lea and Flood, 2014, figure 19) to a key plus the purpose's hash.
    """
    drawn = keys + np.uint64(int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little"))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        drawn ^= drawn >> np.uint64(shift)
        drawn *= np.uint64(factor)
    return drawn ^ (drawn >> np.uint64(31))


def add_variance(estimate: Estimate, variance: float, degrees: float) -> Estimate:
    """Add a variance with its degrees of freedom to an estimate; return an estimate without an error as it is."""
    if estimate.error is None or not variance:
        return estimate
    total = estimate.error**2 + variance
    spent = estimate.error**4 / max(estimate.degrees, 1e-9) + variance**2 / degrees
    return replace(estimate, error=math.sqrt(total), degrees=total**2 / spent)


# ---- compute at equal accuracy

COSTS_COVERAGE = 0.9
FEWEST_SEEDS = 3  # in every cell


def compare_costs(ours: Costs, other: Costs) -> tuple[float, float, float, float] | None:
    """Compare costs at a level of the metric: return the level, our cost / the other family's, and its 90% interval.

    The level is the highest whole percent that the means of both reach, or tenth of one if both may need less for that
    (higher is better). Read costs off the frontiers of the means, between two points in the log cost, as in Dosovitskiy
    et al., 2021, figure 5. The interval is Student's on the log scale, by the jackknife over seeds, with the level
    chosen again without each. A family above the level at its least cost may need less: then only one end is known, the
    other is 0 or infinite, and the ratio NaN. None below three seeds, or with no end known.
    """
    seeds = min(len(values) for family in (ours, other) for _, values in family)
    if seeds < FEWEST_SEEDS:
        return None

    def find_cost(family: Costs, level: float, without: int | None) -> tuple[float, float]:
        """Find the least and the largest possible log cost of a level."""
        left = [(cost, np.delete(values, [] if without is None else without)) for cost, values in family]
        costs, means = zip(*sorted((cost, values.mean()) for cost, values in left), strict=True)
        best = dict(zip(costs, np.maximum.accumulate(means), strict=True))  # the last of each cost
        levels, first = np.unique([*best.values()], return_index=True)
        cost = float(np.interp(level, levels, np.log([*best])[first], right=math.inf))
        return (cost if level >= levels[0] else -math.inf), cost

    def find_ratio(without: int | None) -> tuple[float, float, float]:
        """Find the level, and the least and the largest log ratio."""
        best = [max(np.delete(of, [] if without is None else without).mean() for _, of in f) for f in (ours, other)]
        for steps in (100, 1000):
            level = math.floor(steps * min(best) + 1e-9) / steps
            (least, most), (other_least, other_most) = (find_cost(f, level, without) for f in (ours, other))
            if least > -math.inf or other_least > -math.inf:
                break
        return level, least - other_most, most - other_least

    level, *ratios = find_ratio(None)
    ends = []
    for place, (ratio, sign) in enumerate(zip(ratios, (-1, 1), strict=True), start=1):
        without = np.array([find_ratio(seed)[place] for seed in range(seeds)])
        finite = math.isfinite(ratio) and np.isfinite(without).all()
        error = math.sqrt((seeds - 1) * without.var()) if finite else math.inf
        ends.append((ratio if finite else 0.0) + sign * quantile(seeds - 1, COSTS_COVERAGE) * error)
    if not np.isfinite(ends).any():
        return None
    low, high = math.exp(ends[0]), math.exp(min(ends[1], 700)) if math.isfinite(ends[1]) else math.inf
    return level, math.exp(ratios[0]) if ratios[0] == ratios[1] else math.nan, low, high
