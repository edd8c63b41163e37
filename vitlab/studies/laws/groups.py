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
    ends,
    fit_scaling_law,
    order_runs,
)
from vitlab.studies.laws.table import Name, Points

SLOPES = 2  # the column of make_law_table that says what more data bring
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
        fitted = select_points(points, lambda size: limit is None or size <= limit)
        rest = select_points(points, lambda size: limit is not None and size > limit)
        fit = fit_scaling_law(fitted.sizes, fitted.errors, law, choose_chance(fitted), fitted.seeds)
        fits[name] = GroupFit(fit, rest)
    return fits


def choose_chance(points: Points) -> float | None:
    """The error of guessing, where some size has a lower one: a model that only guesses tells nothing by it."""
    lowest = np.exp(order_runs(points.sizes, points.errors, points.seeds).means.min())
    return points.chance if points.chance is not None and points.chance > lowest else None


def select_points(points: Points, wanted: Callable[[float], bool]) -> Points:
    """Those of the wanted sizes."""
    selected = Points(chance=points.chance)
    for size, error, seed in zip(points.sizes, points.errors, points.seeds, strict=True):
        if wanted(size):
            selected.add(size, error, seed)
    return selected


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
    """The law of each group and what more data bring, a row each below the header; `error` is what was fitted."""
    size = max(group.shown for group in fits.values())
    doubling = f"each doubling of the data lowers the {error} by (90%)"
    rows = [["", "law", doubling, "hold-out", f"{error} at {whole(size)} (90%, one run)"]]
    for name, group in fits.items():
        at = f" at {whole(group.shown)}" if group.shown != size else ""
        miss = DASH if group.rmse_holdout is None else significant(group.rmse_holdout)
        slopes = describe_slopes(group.fit) if group.fit.holds else DASH
        rows.append([name, name_law(group.fit), slopes, miss, describe_prediction(group) + at])
    return rows


def describe_slopes(fit: Fit, unit: str = "", by: str = "") -> str:
    """`31% (24 to 38) at 1,000, 4% (0 to 9) at 32,000`: by how much twice the smallest and largest size lower it."""
    texts = []
    for log_size in fit.runs.log_sizes[[0, -1]]:
        step = np.array([log_size, log_size + np.log(2)])
        high, low = ends(np.diff(fit.draw_log_errors(step))[:, 0], LEVEL)
        changes = -np.expm1([np.diff(fit.log_errors(step))[0], low, high])
        value, low, high = (f"{round(100 * change):.0f}" for change in changes)
        texts.append(f"{value}% ({low} to {high}) at {whole(np.exp(log_size))}{unit if not texts else ''}")
    return f",{by} ".join(texts)


def list_params(fits: Mapping[str, GroupFit]) -> Iterator[list[Any]]:
    """A header, then a row for each parameter of each law, with its 90% interval."""
    yield ["model", "law", "parameter", "value", "low", "high"]
    for name, group in fits.items():
        for law, thetas in zip(group.fit.laws, group.fit.theta_draws, strict=True):
            for parameter, drawn in law.form.params(thetas).items():
                yield [name, law.name, parameter, law.params[parameter], *map(float, ends(drawn, LEVEL))]


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
