"""The fits of several groups of runs, and the crossovers between groups."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vitlab.formatting import significant, whole
from vitlab.studies.laws.crossover import Crossover, find_crossover
from vitlab.studies.laws.fit import LARGEST_MISS, Fit, fit_scaling_law, order_runs
from vitlab.studies.laws.table import Name, Points

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
    found = {}
    for name, points in track(list(groups.items())):
        kept, rest = split_points(points, limit)
        fit = fit_scaling_law(kept.sizes, kept.errors, law, choose_chance(kept), kept.seeds)
        found[name] = GroupFit(fit, rest)
    return found


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


def find_crossovers(fits: Mapping[Name, GroupFit]) -> dict[tuple[Name, Name], Crossover]:
    """Of each pair of groups that differ in the last column alone."""
    pairs = [(a, b) for a, b in combinations(fits, 2) if a[:-1] == b[:-1]]
    return {(a, b): find_crossover(fits[a].fit, fits[b].fit) for a, b in pairs}


def make_law_table(fits: Mapping[str, GroupFit], error: str) -> list[list[str]]:
    """The law of each group with its parameters, a row each below the header; `error` is what was fitted."""
    size = max(one.shown for one in fits.values())
    rows = [["", "law", "parameters (90% interval)", "hold-out", f"{error} at {whole(size)} (90%, one run)"]]
    for name, one in fits.items():
        text = f"none: the law misses larger sizes by more than a factor of {np.exp(LARGEST_MISS):g}"
        if one.fit.holds:
            low, high = map(float, one.fit.prediction_interval(one.shown))
            text = f"{significant(float(one.fit.predict(one.shown)))} ({significant(low)} to {significant(high)})"
            text += f" at {whole(one.shown)}" if one.shown != size else ""
        params = "\n".join(describe_params(one.fit))
        rows.append([name, one.fit.law.upper(), params, significant(one.rmse_holdout), text])
    return rows


def describe_params(fit: Fit) -> list[str]:
    """`c -0.41 (-0.50 to -0.33)` of each parameter."""
    return [
        f"{name} {significant(fit.params[name])} ({significant(low)} to {significant(high)})"
        for name, (low, high) in fit.param_intervals().items()
    ]
