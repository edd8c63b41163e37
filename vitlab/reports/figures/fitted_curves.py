"""Errors of groups of runs against size with the laws fitted to them, for `vitlab fit --out`."""

from collections.abc import Mapping

import numpy as np

from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import group_look
from vitlab.reports.figures.ticks import log_ticks
from vitlab.studies.laws.groups import GroupFit
from vitlab.studies.laws.table import Name

POINTS = 60  # of a law's line


def plot_fitted_curves(fits: Mapping[Name, GroupFit], x: str, y: str) -> Figure:
    """A panel for each value of all columns of the groups but the last; within it a curve for each of the last.

    Points are measured, open ones held back; lines are the laws that hold, dashed beyond what was fitted.
    """
    panels: dict[Name, list[tuple[str, GroupFit]]] = {}
    for name, group_fit in fits.items():
        panels.setdefault(name[:-1], []).append((name[-1], group_fit))
    places = {label: place for place, label in enumerate(dict.fromkeys(name[-1] for name in fits))}
    drawn = [
        Panel(
            tuple(series for label, group_fit in curves for series in draw_curve(label, group_fit, places[label])),
            ", ".join(above),
        )
        for above, curves in panels.items()
    ]
    every = [series for panel in drawn for series in panel.series]
    return Figure(
        name="fits",
        title=f"{y} against {x}, with fitted laws",
        x=Axis(f"{x} (log scale)", log=True, ticks=log_ticks([value for series in every for value in series.x])),
        y=Axis(f"{y} (log scale)", log=True, ticks=log_ticks([value for series in every for value in series.y])),
        panels=tuple(drawn),
    )


def draw_curve(label: str, one: GroupFit, place: int) -> list[Series]:
    """The runs that were fitted, those held back, and the law with its 90% band."""
    colour, marker = group_look(place)
    look = {"colour_key": colour, "marker": marker}
    runs, fit = one.fit.runs, one.fit
    sizes = np.exp(runs.log_sizes[runs.place])
    series = [Series(label, sizes.tolist(), np.exp(runs.log_errors).tolist(), style="points", **look)]
    if one.rest.sizes:
        series.append(
            Series(f"{label}, held back", one.rest.sizes, one.rest.errors, style="rings", legend=False, **look)
        )
    if fit.holds:
        ends = (float(sizes[0]), fit.largest, max([2 * fit.largest, *one.rest.sizes]))
        for begin, end, dash in zip(ends, ends[1:], ("solid", "dash"), strict=False):
            grid = np.geomspace(begin, end, POINTS)
            low, high = fit.interval(grid)
            series.append(
                Series(
                    f"{label}, fit",
                    grid.tolist(),
                    fit.predict(grid).tolist(),
                    low=low.tolist(),
                    high=high.tolist(),
                    style="line",
                    dash=dash,
                    width=1.2,
                    legend=False,
                    **look,
                )
            )
    return series
