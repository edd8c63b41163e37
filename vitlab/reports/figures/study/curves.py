"""Small multiples of a study: training curves by training-set size, recall by class."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import altair as alt
import pandas as pd

from vitlab.formatting import finite, folder_link, plural
from vitlab.reports.figures.figure import (
    DOTTED,
    SOLID,
    Figure,
    axis,
    band_opacity,
    by_look,
    of_field,
    panels,
    with_legend,
)
from vitlab.reports.figures.theme import looks
from vitlab.studies.results import Results

PLACE = 4
MOST_POINTS = 200  # of a curve: more cannot be told apart in a panel
MANY_RUNS, FEWER_POINTS = 50, 100  # of a study, and then of a curve
ALL_POINTS = 8_000  # of all curves of a page together: with more it is slow to open
LEAST_POINTS = 20  # of a curve, however many there are
MARKED = 25  # points at most that have a marker each
POINTED = 4_000  # points of all curves up to which each can be pointed at
LOSSES = {"training": "train/loss", "validation": "validation/loss"}
MOST_CLASSES = 12  # that have a panel: those with the lowest recall
Z = 1.96  # of a 95% interval

Curve = list[tuple[float, float | None]]  # step, loss; None where it is not finite


class Point(NamedTuple):
    """A share of the steps, at its last one: mean over seeds, the lowest seed, the highest. None: a gap."""

    step: float
    mean: float | None
    low: float | None
    high: float | None


def draw(results: Results) -> Iterator[Figure]:
    yield from draw_training(results)
    yield from draw_classes(results)


def draw_training(results: Results) -> Iterator[Figure]:
    """Loss while training (dotted) and on validation data (solid): a line per model, a band over its seeds."""
    sizes = sorted({row["train_size"] for row in results.rows})
    groups = [(size, model) for size in sizes for model in results.families]
    most = FEWER_POINTS if len(results.rows) > MANY_RUNS else MOST_POINTS
    most = max(LEAST_POINTS, min(most, ALL_POINTS // max(1, len(LOSSES) * len(groups))))
    points = []
    for size, model in groups:
        runs = [row["run"] for row in results.rows if (row["train_size"], row["model"]) == (size, model)]
        for loss, key in LOSSES.items():
            curves = [
                [(row["step"], finite(row[key])) for row in results.run_files[run].metrics if key in row]
                for run in runs
            ]
            logged = [
                (run, curve) for run, curve in zip(runs, curves, strict=True) if any(y is not None for _, y in curve)
            ]
            if not logged:
                continue
            link = folder_link(logged[0][0]) if len(logged) == 1 else ""
            panel = plural(size, results.metric.sized_by)
            for step, mean, *ends in thin_curves([curve for _, curve in logged], most):
                points.append((panel, model, loss, step, mean, *(ends if len(logged) > 1 else (None, None)), link))
    if not points:
        return
    frame = pd.DataFrame(points, columns=["panel", "model", "loss", "step", "value", "low", "high", "link"])
    look = by_look("model", style := looks(results.families))
    dash = alt.StrokeDash("loss:N", scale=alt.Scale(domain=[*LOSSES], range=[DOTTED, SOLID]), legend=None)
    step = axis(alt.X, "step", "training step", zero=True, short=frame.step.max() >= 1e4)
    up = axis(alt.Y, "value", f"loss ({results.metric.loss})", zero=True)
    base = alt.Chart().encode(x=step, y=up, color=look["color"])
    line = base.mark_line(point="transparent" if len(frame) <= POINTED else False)
    layers = [line.encode(strokeDash=dash, tooltip=["model", "loss", "step", "value"]).properties(name="lines")]
    validation = frame[frame.loss == "validation"]
    if len(validation) and validation.groupby(["panel", "model"]).size().max() <= MARKED:
        marked = base.mark_point().transform_filter("datum.loss === 'validation'").encode(shape=look["shape"])
        layers.append(marked.encode(tooltip=["model", "loss", "step", "value"]).properties(name="points"))
    if banded := frame.low.notna().any():
        band = base.mark_area(fillOpacity=band_opacity(len(style)))
        band = band.encode(y=of_field(up, "low"), y2="high:Q", detail="loss:N")
        layers.insert(0, band.properties(name="bands"))
    lines = "Lines: mean over seeds. Bands: from the lowest seed to the highest." if banded else "A line per run."
    chart = alt.layer(*with_legend("model", style, layers), data=frame)
    yield Figure(
        name="training_curves",
        title="Loss while training and on validation data",
        chart=panels(chart, "panel", [*dict.fromkeys(frame.panel)]),
        caption="Dotted: loss on the training batches. Solid: loss on validation data. "
        f"{lines} Long curves are drawn as means of neighboring points.",
        alt="Loss against the training step, a panel per training-set size. Dotted: on the training data; solid: on "
        "the validation data.",
        files=[("metrics.jsonl of each run", "#runs")],
    )


def thin_curves(curves: Sequence[Curve], most: int = MOST_POINTS) -> list[Point]:
    """At most so many points of the curves of several seeds.

    A point is of neighboring steps: each seed's mean over those that it has logged, then mean, lowest and highest
    of these means. Where a seed has a gap, the point is one.
    """
    seeds = [dict(points) for points in curves]
    steps = sorted({step for points in seeds for step in points})
    together = max(1, math.ceil(len(steps) / most))
    return [average_steps(steps[i : i + together], seeds) for i in range(0, len(steps), together)]


def average_steps(steps: list[float], seeds: list[dict[float, float | None]]) -> Point:
    here = [[points[step] for step in steps if step in points] for points in seeds]
    if any(value is None for values in here for value in values):
        return Point(steps[-1], None, None, None)
    means = [statistics.fmean(values) for values in here if values]
    mean, low, high = (float(f"{value:.4g}") for value in (statistics.fmean(means), min(means), max(means)))
    return Point(steps[-1], mean, low, high)  # of four digits: the figure shows no more, and the page is half as long


def draw_classes(results: Results) -> Iterator[Figure]:
    """The accuracy on each class (its recall): the mean over seeds with its interval over seeds and test items."""
    cells: dict[tuple[str, str, int], list[list[int]]] = {}
    for row in results.rows:
        for name, right_and_all in (results.run_files[row["run"]].result.get("by_class") or {}).items():
            cells.setdefault((name, row["model"], row["train_size"]), []).append(right_and_all)
    shares = [(*cell, *share) for cell, runs in cells.items() if (share := estimate_share(runs)) is not None]
    frame = pd.DataFrame(shares, columns=["class", "model", "size", "recall", "low", "high"])
    if frame["class"].nunique() < 2:
        return
    largest = frame[frame["size"] == frame["size"].max()].groupby("class", sort=False).recall.max().sort_values()
    shown = [*largest.index[:MOST_CLASSES]]
    look, sized = by_look("model", style := looks(results.families)), f"training {results.metric.sized_by}s"
    recall = axis(alt.Y, "recall", "recall", (0.0, 1.0), percent=True)
    tooltip = ["class", "model", alt.Tooltip("size", title=sized, format=",")]
    tooltip += [alt.Tooltip(key, format=".1%") for key in ("recall", "low", "high")]
    base = alt.Chart().encode(
        x=axis(alt.X, "size", sized, log=True, ticks=sorted(set(frame["size"]))), y=recall, color=look["color"]
    )
    layers = [
        base.mark_area(fillOpacity=band_opacity(len(style))).encode(y=of_field(recall, "low"), y2="high:Q"),
        base.mark_line(),
        base.mark_point().encode(shape=look["shape"], tooltip=tooltip),
    ]
    layers = [layer.properties(name=name) for layer, name in zip(layers, ("bands", "lines", "points"), strict=True)]
    chart = alt.layer(*with_legend("model", style, layers), data=frame[frame["class"].isin(shown)])
    left_out = (
        f" The {MOST_CLASSES} classes with the lowest recall of {len(largest)}." if len(largest) > len(shown) else ""
    )
    yield Figure(
        name="recall_by_class",
        title="Recall of each class against training-set size",
        chart=panels(chart, "class", shown),
        caption="The share of a class's test items that is right. Bands: 95% intervals over seeds and test items."
        + left_out,
        alt=f"Lowest with most data: {', '.join(f'{name} {largest[name]:.0%}' for name in shown[:3])}.",
        files=[("results of each run", "results.csv")],
    )


def estimate_share(runs: list[list[int]]) -> tuple[float, float, float] | None:
    """The mean share of right items over runs [right, all] of the same test items, and its 95% interval.

    Wilson's interval (1927) for as many items as have the variance that the items and the seeds give together. None
    without items.
    """
    items = runs[0][1]
    if not items:
        return None
    shares = [right / all_items for right, all_items in runs]
    mean, seeds = statistics.fmean(shares), len(shares)
    of_items = mean * (1 - mean) / items
    of_seeds = statistics.variance(shares) / seeds if seeds > 1 else 0.0
    count = items * of_items / (of_items + of_seeds) if of_items else items
    middle = (mean + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * math.sqrt(mean * (1 - mean) / count + Z**2 / (4 * count**2))
    return mean, max(0.0, middle - half), min(1.0, middle + half)
