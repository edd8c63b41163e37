"""Training curves of a study: a panel per training-set size, a line per model, a band over its seeds."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vitlab.formatting import finite, plural
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.urls import folder_link
from vitlab.studies.results import Results

PLACE = 4
MOST_POINTS = 200  # of a curve: more cannot be told apart in a panel
MANY_RUNS, FEWER_POINTS = 50, 100  # of a study, and then of a curve
ALL_POINTS = 8_000  # of all curves of a page together: with more it is slow to open
LEAST_POINTS = 20  # of a curve, however many there are
MARKED = 25  # points at most that have a marker each
LOSSES = (("train/loss", "training"), ("validation/loss", "validation"))
CAPTION = "Dotted: loss on the training batches. Solid: loss on validation data. "
THINNED = " Long curves are drawn as means of neighboring points."

Curve = list[tuple[float, float | None]]  # step, loss; None where it is not finite


@dataclass(frozen=True)
class Point:
    """A share of the steps, at its last one: mean over seeds, the lowest seed, the highest. None: a gap."""

    step: float
    mean: float | None
    low: float | None
    high: float | None


def draw(results: Results) -> Iterator[Figure]:
    """Loss while training (dotted) and on validation data (solid)."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for row in results.rows:
        groups[row["train_size"], row["model"]].append(row["run"])
    most = FEWER_POINTS if len(results.rows) > MANY_RUNS else MOST_POINTS
    most = max(LEAST_POINTS, min(most, ALL_POINTS // max(1, len(LOSSES) * len(groups))))
    panels: dict[str, list[dict[str, Any]]] = {}
    style = looks(families(results.rows))
    keys: dict[str, Key] = {}
    for size, model in sorted(groups, key=lambda group: group[0]):
        runs = groups[size, model]
        for key, name in LOSSES:
            points = draw_loss(results, runs, key, f"{model}, {name}", most)
            if not points:
                continue
            panels.setdefault(plural(size, results.metric.sized_by), []).extend(points)
            look, dash = style[model], style[model].dash if name == "validation" else "dot"
            keys[f"{model}, {name}"] = Key(
                f"{model}, {name}", look.colour, look.marker, dash, style="line", model=model
            )
    if not panels:
        return
    banded = any(point["mark"] == "band" for points in panels.values() for point in points)
    lines = "Lines: mean over seeds. Bands: from the lowest seed to the highest." if banded else "A line per run."
    longest = max(point["x"] for points in panels.values() for point in points)
    ordered = [keys[f"{model}, {name}"] for model in style for _, name in LOSSES if f"{model}, {name}" in keys]
    yield Figure(
        name="training_curves",
        title="Loss while training and on validation data",
        panels=draw_curves(
            panels,
            ordered,
            Axis("training step", zero=True, short=longest >= 1e4),
            Axis(f"loss ({results.metric.loss})", zero=True),
        ),
        keys=ordered,
        alt="Loss against the training step, a panel per training-set size. Dotted: on the training data; solid: on "
        "the validation data.",
        caption=CAPTION + lines + THINNED,
        files=[("metrics.jsonl of each run", "#runs")],
    )


def draw_loss(results: Results, runs: Sequence[str], key: str, label: str, most: int) -> list[dict[str, Any]]:
    """One loss of the runs of one model and size; nothing where none has logged it."""
    curves = {
        run: [(row["step"], finite(row[key])) for row in results.run_files[run].metrics if key in row] for run in runs
    }
    logged = {run: curve for run, curve in curves.items() if any(y is not None for _, y in curve)}
    if not logged:
        return []
    points = thin_curves(list(logged.values()), most)
    link = {} if len(logged) > 1 else {"link": folder_link(next(iter(logged)))}
    marked = len(points) <= MARKED and key.startswith("validation")
    drawn = []
    for point in points:
        here = {"label": label, "x": point.step}
        drawn.append({**here, "mark": "line", "y": point.mean, **link})
        if marked and point.mean is not None:
            drawn.append({**here, "mark": "point", "y": point.mean, **link})
        if len(logged) > 1 and point.low is not None:
            drawn.append({**here, "mark": "band", "low": point.low, "high": point.high})
    return drawn


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
