"""Errors of groups of runs against size with the laws fitted to them, for `vitlab fit --out`."""

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from vitlab.reports.figures.figure import DASHED, RING, SOLID, Figure, axis, by_look, find_domain, of_field, panels
from vitlab.reports.figures.theme import group_look
from vitlab.studies.laws.groups import GroupFit
from vitlab.studies.laws.table import Name

LINE = 60  # points of a law's line


def plot_fitted_curves(fits: Mapping[Name, GroupFit], x: str, y: str) -> Figure:
    """A panel for each value of all columns of the groups but the last; within it a curve for each of the last.

    Points are measured, open ones held back; lines are the laws that hold, dashed beyond what was fitted, with their
    90% bands.
    """
    parts = []
    for name, one in fits.items():
        fit, runs = one.fit, one.fit.runs
        sizes, group = np.exp(runs.log_sizes[runs.place]), {"panel": ", ".join(name[:-1]), "label": name[-1]}
        parts.append(pd.DataFrame({**group, "kind": "fitted", "x": sizes, "y": np.exp(runs.log_errors)}))
        parts.append(pd.DataFrame({**group, "kind": "held back", "x": one.rest.sizes, "y": one.rest.errors}))
        ends = (sizes[0], fit.largest, max([2 * fit.largest, *one.rest.sizes])) if fit.holds else ()
        for begin, end, kind in zip(ends, ends[1:], ("law", "law beyond"), strict=False):
            grid = np.geomspace(begin, end, LINE)
            low, high = fit.interval(grid)
            law = {"x": grid, "y": fit.predict(grid), "low": low, "high": high}
            parts.append(pd.DataFrame({**group, "kind": kind, **law}))
    frame = pd.concat(parts).reindex(columns=["panel", "label", "kind", "x", "y", "low", "high"])
    domain = find_domain(frame.y, [*frame.low, *frame.high], log=True, percent=False)
    frame[["low", "high"]] = frame[["low", "high"]].clip(*domain)
    look = by_look("label", {label: group_look(place) for place, label in enumerate(dict.fromkeys(frame.label))})
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=["law", "law beyond"], range=[SOLID, DASHED]), legend=None)
    across = axis(alt.X, "x", x, find_domain(frame.x, log=True, percent=False), log=True, short=True)
    up = axis(alt.Y, "y", y, domain, log=True)
    base, law = alt.Chart().encode(x=across, y=up), "indexof(datum.kind, 'law') === 0"
    layers = [
        base.mark_area()
        .transform_filter(law)
        .encode(y=of_field(up, "low"), y2="high:Q", color=look["color"], detail="kind:N"),
        base.mark_line().transform_filter(law).encode(color=look["color"], strokeDash=dash),
        base.mark_point(**RING).transform_filter("datum.kind === 'held back'").encode(**look),
        base.mark_point().transform_filter("datum.kind === 'fitted'").encode(**look),
    ]
    layers = [
        layer.properties(name=name) for layer, name in zip(layers, ("bands", "laws", "held", "fitted"), strict=True)
    ]
    chart = panels(alt.layer(*layers, data=frame), "panel", [*dict.fromkeys(frame.panel)])
    return Figure("fits", f"{y} against {x}, with fitted laws", chart)
