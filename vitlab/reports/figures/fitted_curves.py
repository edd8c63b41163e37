"""Errors of groups of runs against size with the laws fitted to them, for `vitlab fit --out`."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import group_look
from vitlab.studies.laws.groups import GroupFit
from vitlab.studies.laws.table import Name

POINTS = 60  # of a law's line


def plot_fitted_curves(fits: Mapping[Name, GroupFit], x: str, y: str) -> Figure:
    """A panel for each value of all columns of the groups but the last; within it a curve for each of the last.

    Points are measured, open ones held back; lines are the laws that hold, dashed beyond what was fitted.
    """
    panels: dict[str, list[dict[str, Any]]] = {}
    for name, group_fit in fits.items():
        panels.setdefault(", ".join(name[:-1]), []).extend(draw_group(name[-1], group_fit))
    labels = dict.fromkeys(name[-1] for name in fits)
    keys = [Key(label, *group_look(place), style="points") for place, label in enumerate(labels)]
    across, up = Axis(f"{x} (log scale)", log=True, short=True), Axis(f"{y} (log scale)", log=True)
    return Figure("fits", f"{y} against {x}, with fitted laws", draw_curves(panels, keys, across, up), keys)


def draw_group(label: str, one: GroupFit) -> Iterator[dict[str, Any]]:
    """The runs that were fitted, those held back, and the law with its 90% band."""
    runs, fit = one.fit.runs, one.fit
    sizes = np.exp(runs.log_sizes[runs.place])
    for x, y in zip(sizes.tolist(), np.exp(runs.log_errors).tolist(), strict=True):
        yield {"mark": "point", "label": label, "x": x, "y": y}
    for x, y in zip(one.rest.sizes, one.rest.errors, strict=True):
        yield {"mark": "ring", "label": label, "x": float(x), "y": float(y)}
    if fit.holds:
        ends = (float(sizes[0]), fit.largest, max([2 * fit.largest, *one.rest.sizes]))
        for begin, end, mark in zip(ends, ends[1:], ("law", "law beyond"), strict=False):
            grid = np.geomspace(begin, end, POINTS)
            low, high = fit.interval(grid)
            for x, y, least, most in zip(*(v.tolist() for v in (grid, fit.predict(grid), low, high)), strict=True):
                yield {"mark": mark, "label": label, "x": x, "y": y}
                yield {"mark": "band", "label": label, "line": mark, "x": x, "low": least, "high": most}
