"""The fits of several groups of runs, and the crossovers between groups."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vitlab.formatting import DASH, significant, whole
from vitlab.studies.laws.crossover import Crossover, Multiplier, crossover, data_multiplier
from vitlab.studies.laws.fit import (
    FEWEST_AVERAGED,
    LARGEST_MISS,
    LEVEL,
    MEAN,
    Fit,
    LawFit,
    ends,
    fit_scaling_law,
    order_runs,
)
from vitlab.studies.laws.table import Name, Points

WIDEST = 1000.0  # ratio of the ends of an interval above which a parameter is not shown
BEYOND = (2.0, 4.0, 10.0)  # times the largest size: what is predicted where nothing is held back


@dataclass(frozen=True)
class GroupFit:
    """A group's fit, with what was held back from it."""

    fit: Fit
    rest: Points  # of sizes above the limit

    @property
    def rmse_holdout(self) -> float | None:
        """RMSE of the log error: of what was held back, else of the rolling hold-out."""
        if not self.rest.sizes:
            return self.fit.rmse_holdout
        misses = np.log(self.fit.predict(self.rest.sizes)) - np.log(self.rest.errors)
        return float(np.sqrt((misses**2).mean()))

    @property
    def asked(self) -> list[float]:
        """The sizes to predict: those held back, else some beyond the data."""
        return sorted(set(self.rest.sizes)) or [self.fit.largest * times for times in BEYOND]

    @property
    def shown(self) -> float:
        """The size whose prediction stands in a table: the largest that was held back, else twice the data."""
        return self.asked[-1 if self.rest.sizes else 0]


def fit_groups(
    groups: Mapping[Name, Points],
    law: str,
    limit: float | None = None,
    track: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> dict[Name, GroupFit]:
    """A fit to the sizes up to `limit` of each group; `track` wraps what is iterated over, for a progress bar.

    Raises UserError.
    """
    fits = {}
    for name, points in track(list(groups.items())):
        fitted, rest = split_points(points, limit)
        fit = fit_scaling_law(fitted.sizes, fitted.errors, law, choose_chance(fitted), fitted.seeds)
        fits[name] = GroupFit(fit, rest)
    return fits


def choose_chance(points: Points) -> float | None:
    """The error of guessing, where some size has a lower one: a model that only guesses tells nothing by it."""
    lowest = np.exp(order_runs(points.sizes, points.errors, points.seeds).means.min())
    return points.chance if points.chance is not None and points.chance > lowest else None


def split_points(points: Points, limit: float | None) -> tuple[Points, Points]:
    """Those of sizes up to the limit, and the others."""
    parts = (Points(chance=points.chance), Points(chance=points.chance))
    for size, error, seed in zip(points.sizes, points.errors, points.seeds, strict=True):
        parts[limit is not None and size > limit].add(size, error, seed)
    return parts


def find_crossovers(
    fits: Mapping[Name, GroupFit], track: Callable[[Iterable[Any]], Iterable[Any]] = iter
) -> dict[tuple[Name, Name], Crossover]:
    """Of each pair of groups that differ in the last column alone; `track` as in `fit_groups`."""
    pairs = [(a, b) for a, b in combinations(fits, 2) if a[:-1] == b[:-1]]
    return {(a, b): crossover(fits[a].fit, fits[b].fit) for a, b in track(pairs)}


def find_multipliers(
    fits: Mapping[Name, GroupFit], pairs: Iterable[tuple[Name, Name]]
) -> dict[tuple[Name, Name], Multiplier]:
    return {(a, b): data_multiplier(fits[a].fit, fits[b].fit) for a, b in pairs}


def make_law_table(fits: Mapping[str, GroupFit], error: str) -> list[list[str]]:
    """The law of each group with its parameters, a row each below the header; `error` is what was fitted."""
    size = max(group.shown for group in fits.values())
    rows = [["", "law", "parameters (90% interval)", "hold-out", f"{error} at {whole(size)} (90%, one run)"]]
    for name, group in fits.items():
        at = f" at {whole(group.shown)}" if group.shown != size else ""
        params = "\n".join(describe_params(group.fit))
        miss = DASH if group.rmse_holdout is None else significant(group.rmse_holdout)
        rows.append([name, name_law(group.fit), params, miss, describe_prediction(group) + at])
    return rows


def describe_prediction(group: GroupFit) -> str:
    """`0.12 (0.10 to 0.15)`, or why there is none."""
    fit = group.fit
    if not fit.laws:
        return f"none: {len(fit.runs.counts)} sizes; auto needs {FEWEST_AVERAGED}"
    if not fit.holds:
        return f"none: it misses measured errors by more than a factor of {np.exp(LARGEST_MISS):g}"
    low, high = map(float, fit.prediction_interval(group.shown))
    return f"{significant(float(fit.predict(group.shown)))} ({significant(low)} to {significant(high)})"


def name_law(fit: Fit) -> str:
    """`M2`, or `mean of M2, M3, M4`."""
    names = [law.name.upper() for law in fit.laws]
    return f"mean of {', '.join(names)}" if fit.law == MEAN else (names or [DASH])[0]


def describe_params(fit: Fit) -> list[str]:
    """`c -0.41 (-0.50 to -0.33)` of each parameter of a law; of a mean of laws a line for each of them."""
    lines = [list(describe_law(fit, law, place)) for place, law in enumerate(fit.laws)]
    if fit.law != MEAN:
        return [text for texts in lines for text in texts]
    return [f"{law.name.upper()}: {', '.join(texts)}" for law, texts in zip(fit.laws, lines, strict=True)]


def describe_law(fit: Fit, one: LawFit, place: int) -> Iterator[str]:
    """Its parameters; in place of those that the data hardly tell, the error at the middle of the sizes."""
    thetas, untold = fit.theta_draws[place], False
    for name, drawn in one.form.params(thetas).items():
        low, high = map(float, ends(drawn, LEVEL))
        if name in one.at_bound:
            yield f"{name} {significant(one.params[name])} (at its bound)"
        elif name in one.known:
            yield f"{name} {significant(one.params[name])}"
        elif min(abs(low), abs(high)) * WIDEST < max(abs(low), abs(high)):
            untold = True
        else:
            yield f"{name} {significant(one.params[name])} ({significant(low)} to {significant(high)})"
    if untold:
        middle = np.array([fit.runs.log_sizes.mean()])
        with np.errstate(over="ignore"):  # hardly told at all: up to infinity
            low, high = np.exp(ends(one.form.evaluate(thetas, middle)[0][:, 0], LEVEL))
        error = float(np.exp(one.log_errors(middle)[0]))
        size = whole(float(f"{np.exp(middle[0]):.2g}"))
        yield f"error at {size} {significant(error)} ({significant(float(low))} to {significant(float(high))})"
