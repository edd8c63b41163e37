"""Training curves of a study: a panel per training-set size, a line per model, a band over its seeds."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vitlab.formatting import finite, plural
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import Look, families, looks
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.urls import folder_link

POINTS = 200  # of a curve: more cannot be told apart in a panel
ALL_POINTS = 12_000  # of all curves of a page together: with more it is slow to open
LEAST_POINTS = 20  # of a curve, however many there are
MARKED = 25  # points at most that have a marker each
LOSSES = (("train/loss", "training"), ("validation/loss", "validation"))

Curve = list[tuple[float, float | None]]  # step, loss; None where it is not finite


@dataclass(frozen=True)
class Point:
    """A share of the steps, at its last one: mean over seeds, the lowest seed, the highest. None: a gap."""

    step: float
    mean: float | None
    low: float | None
    high: float | None


def plot_training_curves(results: StudyResults) -> Figure:
    """Loss while training (dotted) and on validation data (solid); a run without other seeds is a line of its own."""
    style = looks(families(results.rows))
    groups: dict[tuple[int, str], list[tuple[dict[str, Any], list[dict[str, Any]]]]] = defaultdict(list)
    for row in results.rows:
        groups[row["train_size"], row["model"]].append((row, results.runs[row["run"]].metrics))
    most = max(LEAST_POINTS, min(POINTS, ALL_POINTS // max(1, len(LOSSES) * len(groups))))
    by_size: dict[int, list[Series]] = defaultdict(list)
    for (size, model), runs in groups.items():
        for key, name in LOSSES:
            by_size[size] += curve(runs, key, name, style[model], most)
    metric = results.metric
    return Figure(
        name="training_curves",
        title="Loss while training and on validation data",
        x=Axis("training step", from_zero=True, whole=True),
        y=Axis(f"loss ({metric.loss})", from_zero=True),
        panels=tuple(
            Panel(tuple(by_size[size]), plural(size, metric.sized_by)) for size in sorted(by_size) if by_size[size]
        ),
        alt="Loss against the training step, a panel per training-set size. Dotted: on the training data; solid: on "
        "the validation data.",
    )


def curve(
    runs: list[tuple[dict[str, Any], list[dict[str, Any]]]], key: str, name: str, look: Look, most: int
) -> list[Series]:
    """One loss of the runs of one model and size, each with its metrics; nothing where none has logged it."""
    all_points = [(row, [(one["step"], finite(one[key])) for one in metrics if key in one]) for row, metrics in runs]
    logged = [(row, points) for row, points in all_points if any(y is not None for _, y in points)]
    if not logged:
        return []
    points = thin([points for _, points in logged], most)
    row, several = logged[0][0], len(logged) > 1
    validation = key.startswith("validation")
    which = f"{row['model']}, mean of {len(logged)} seeds" if several else row["run"]
    return [
        Series(
            label=f"{row['model']}, {name}",
            x=[point.step for point in points],
            y=[point.mean for point in points],
            low=[point.low for point in points] if several else (),
            high=[point.high for point in points] if several else (),
            colour_key=look.colour_key,
            marker=look.marker,
            dash=look.dash if validation else "dot",
            style="line+points" if validation and len(points) <= MARKED else "line",
            width=1.6 if validation else 1.4,
            note=f"{which}\n{name} loss",
            link="" if several else folder_link(row["run"]),
            model=row["model"],
        )
    ]


def thin(curves: Sequence[Curve], most: int = POINTS) -> list[Point]:
    """At most so many points of the curves of several seeds.

    A point is of neighbouring steps: each seed's mean over those that it has logged, then mean, lowest and highest
    of these means. Where a seed has a gap, the point is one.
    """
    seeds = [dict(points) for points in curves]
    steps = sorted({step for points in seeds for step in points})
    together = max(1, math.ceil(len(steps) / most))
    return [point(steps[i : i + together], seeds) for i in range(0, len(steps), together)]


def point(steps: list[float], seeds: list[dict[float, float | None]]) -> Point:
    here = [[points[step] for step in steps if step in points] for points in seeds]
    if any(value is None for values in here for value in values):
        return Point(steps[-1], None, None, None)
    means = [statistics.fmean(values) for values in here if values]
    mean, low, high = (float(f"{value:.4g}") for value in (statistics.fmean(means), min(means), max(means)))
    return Point(steps[-1], mean, low, high)  # of four digits: the figure shows no more, and the page is half as long
