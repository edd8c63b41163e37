"""The fits of several groups of runs, and the crossovers between groups."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vitlab.studies.laws.crossover import Crossover, find_crossover
from vitlab.studies.laws.fit import Fit, fit_scaling_law
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
        found[name] = GroupFit(fit_scaling_law(kept.sizes, kept.errors, law, points.chance, kept.seeds), rest)
    return found


def split_points(points: Points, limit: float | None) -> tuple[Points, Points]:
    """Those of sizes up to the limit, and the others."""
    parts = (Points(chance=points.chance), Points(chance=points.chance))
    for size, error, seed in zip(points.sizes, points.errors, points.seeds, strict=True):
        part = parts[limit is not None and size > limit]
        part.sizes.append(size)
        part.errors.append(error)
        part.seeds.append(seed)
    return parts


def count_sizes(points: Points, limit: float) -> int:
    return len({size for size in points.sizes if size <= limit})


def find_crossovers(fits: Mapping[Name, GroupFit]) -> dict[tuple[Name, Name], Crossover]:
    """Of each pair of groups that differ in the last column alone."""
    pairs = [(a, b) for a, b in combinations(fits, 2) if a[:-1] == b[:-1]]
    return {(a, b): find_crossover(fits[a].fit, fits[b].fit) for a, b in pairs}
