"""The study's metric against what its runs cost, training compute or time, and the best for each cost (as Dosovitskiy
et al., 2021, figure 5, and Zhai et al., 2022, figure 2)."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from vitlab.formatting import duration, finite, plural, with_prefix
from vitlab.reports.figures.metric_by_size import choose_shown, mean_line, run_points
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import families, family_name, looks
from vitlab.reports.figures.ticks import log_ticks, tick_text
from vitlab.reports.results.aggregate import CellAverage, aggregate
from vitlab.studies.metrics import main_metric
from vitlab.tasks.metrics import Metric

Rows = list[dict[str, Any]]
NEAR = (0.11, 0.07)  # shares of the figure's width and height that a label takes, on a phone's screen
TIME_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))


@dataclass(frozen=True)
class Cost:
    """`key` is a column of results.csv, in units of `unit` on the axis."""

    key: str
    name: str
    what: str
    label: str
    text: Callable[[float], str]
    unit: float = 1.0

    def of(self, row: dict[str, Any]) -> float | None:
        """None for what has no place on a log axis."""
        value = finite(row.get(self.key))
        return value / self.unit if value is not None and value > 0 else None


def plot_metric_by_flops(rows: Rows) -> Figure:
    """Operations of the forward and backward passes of the whole training: `train_flops`."""
    cost = Cost(
        "train_flops",
        "flops",
        "training compute",
        "training compute (FLOPs, log scale)",
        lambda flops: with_prefix(flops, "FLOP"),
    )
    return plot_metric_by(rows, cost)


def plot_metric_by_time(rows: Rows) -> Figure:
    """Wall-clock time of training with the evaluations and checkpoints in between: `wall_s`."""
    longest = max((finite(row.get("wall_s")) or 0.0 for row in rows), default=0.0)
    unit, short = max((time_unit for time_unit in TIME_UNITS if longest >= 5 * time_unit[0]), default=TIME_UNITS[0])
    cost = Cost(
        "wall_s",
        "time",
        "training time",
        f"time to train and evaluate ({short}, log scale)",
        lambda time: duration(time * unit),
        unit,
    )
    return plot_metric_by(rows, cost)


def plot_metric_by(rows: Rows, cost: Cost) -> Figure:
    """A line per model through the means over seeds of both, from its smallest training set to its largest.

    Behind them the frontier of each family and of all. Runs whose cost is not known are left out; without any the
    figure has no series.
    """
    metric, style = main_metric(rows), looks(families(rows))
    with_cost = [row for row in rows if cost.of(row) is not None]
    by_model = {model: by_size for model, by_size in aggregate(with_cost, metric).items() if by_size}
    frontiers = draw_frontiers(by_model, families(rows), metric, cost)
    series: list[Series] = list(frontiers)
    for model, by_size in by_model.items():
        series.append(move_to_costs(mean_line(model, by_size, style[model], metric), by_size, cost))
        if any(len(here.rows) > 1 for here in by_size.values()):
            runs = [row for here in by_size.values() for row in choose_shown(here, metric)]
            points = run_points(model, by_size, style[model], metric)
            places = [cost.of(row) for row in runs]
            hover = [f"{text}\n{cost.text(x)}" for text, x in zip(points.hover, places, strict=True)]
            series.append(replace(points, x=places, hover=hover))
    return Figure(
        name=f"{metric.key}_against_{cost.name}",
        title=f"Held-out {metric.name} against {cost.what}",
        x=Axis(cost.label, log=True, ticks=log_ticks([x for line in series for x in line.x])),
        y=Axis(f"held-out {metric.name}", percent=metric.percent),
        panels=(Panel((*series, *label_sizes(by_model, metric, cost))),),
        alt=" ".join(
            [
                *(describe(model, by_size, metric, cost) for model, by_size in by_model.items()),
                *(
                    f"{line.label}: {', '.join(text.partition(chr(10))[2] for text in line.hover if text)}."
                    for line in frontiers
                ),
            ]
        ),
    )


def draw_frontiers(
    by_model: dict[str, dict[int, CellAverage]], family_of: dict[str, str], metric: Metric, cost: Cost
) -> list[Series]:
    """Of each family, and of all where there are several: the best mean that no more than a cost buys, as stairs.

    A study of one model has none.
    """
    if len(by_model) < 2:
        return []
    style = looks(family_of)
    by_family: dict[str, list[Point]] = defaultdict(list)
    for model, by_size in by_model.items():
        for size, here in by_size.items():
            what = f"{model}, {plural(size, f'training {metric.sized_by}')}"
            by_family[family_of[model]].append(Point(mean_cost(here, cost), here.mean, what, style[model].colour_key))
    end = max((point.cost for points in by_family.values() for point in points), default=0.0)
    groups = [(f"best of {family_name(family)}", points) for family, points in by_family.items()]
    frontiers = []
    for label, points in groups:
        frontiers.append(
            replace(draw_stairs(label, find_frontier(points, metric), end, metric, cost), width=7, opacity=0.25)
        )
    if len(groups) > 1:
        best = find_frontier([point for _, points in groups for point in points], metric)
        frontiers.append(
            replace(draw_stairs("best of all", best, end, metric, cost), colour_key="ink", dash="dot", width=1.4)
        )
    return frontiers


@dataclass(frozen=True)
class Point:
    """The mean over seeds of a model at one training-set size."""

    cost: float
    value: float
    what: str
    colour_key: str


def find_frontier(points: Sequence[Point], metric: Metric) -> list[Point]:
    """The points that are better than every other of no more cost, the cheapest first (the Pareto frontier)."""
    frontier: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -metric.lead(point.value, 0.0))):
        if not frontier or metric.lead(point.value, frontier[-1].value) > 0:
            frontier.append(point)
    return frontier


def draw_stairs(label: str, frontier: list[Point], end: float, metric: Metric, cost: Cost) -> Series:
    """From each point level to the cost of the next, the last to the `end`: nothing better was had for less."""
    x, y, hover = [], [], []
    for point, following in zip_longest(frontier, frontier[1:]):
        x += [point.cost, end if following is None else following.cost]
        y += [point.value] * 2
        hover += [f"{label}: {point.what}\n{metric.text(point.value)} for {cost.text(point.cost)}", ""]
    return Series(label, x, y, frontier[0].colour_key, style="line", hover=hover)


def move_to_costs(line: Series, by_size: dict[int, CellAverage], cost: Cost) -> Series:
    """The line over training-set sizes moved to their mean costs; a band over seeds would be of two quantities."""
    places = [mean_cost(here, cost) for here in by_size.values()]
    hover = [f"{text}\n{cost.text(x)}" for text, x in zip(line.hover, places, strict=True)]
    return replace(line, x=places, low=(), high=(), hover=hover)


def mean_cost(here: CellAverage, cost: Cost) -> float:
    return statistics.fmean(value for row in here.rows if (value := cost.of(row)) is not None)


def label_sizes(by_model: dict[str, dict[int, CellAverage]], metric: Metric, cost: Cost) -> list[Series]:
    """The smallest and the largest training set of each model, where its line begins and ends.

    Above the runs of the better end and below those of the other, so that no line crosses its labels; a label that
    would stand on another is left out.
    """
    labels: list[Series] = []
    for model, by_size in by_model.items():
        first, last = min(by_size), max(by_size)
        rises = by_size[first].mean <= by_size[last].mean
        for size, above in ((first, not rises), (last, rises)) if first != last else ():
            values = [value for row in by_size[size].rows if (value := metric.value(row)) is not None]
            labels.append(
                Series(
                    label=f"{model}, {plural(size, metric.sized_by)}",
                    x=[mean_cost(by_size[size], cost)],
                    y=[max(values) if above else min(values)],
                    colour_key="muted",
                    style="text above" if above else "text below",
                    texts=[format_size(size)],
                    legend=False,
                    follows=model,
                    model=model,
                )
            )
    return drop_overlapping(labels)


def format_size(size: int) -> str:
    """`500`, `32k`, `131M`: short, as there is little room."""
    return tick_text(float(f"{size:.3g}") if size >= 1e4 else size, Axis("", whole=True))


def drop_overlapping(labels: list[Series]) -> list[Series]:
    """The labels, each of one point, without those too near to an earlier one, which moves out to where they were."""
    across, up = [math.log10(one.x[0]) for one in labels], [one.y[0] or 0.0 for one in labels]
    wide, tall = (max(values, default=0.0) - min(values, default=0.0) for values in (across, up))
    placed: dict[int, float] = {}  # place of a label -> where it stands
    for i, label in enumerate(labels):
        near = (
            j for j in placed if abs(across[i] - across[j]) <= NEAR[0] * wide and abs(up[i] - up[j]) <= NEAR[1] * tall
        )
        first = next(near, None)
        if first is None:
            placed[i] = up[i]
        elif label.style == labels[first].style:
            placed[first] = (max if label.style == "text above" else min)(placed[first], up[i])
    return [replace(labels[i], y=[y]) for i, y in placed.items()]


def describe(model: str, by_size: dict[int, CellAverage], metric: Metric, cost: Cost) -> str:
    texts = [
        f"{metric.text(by_size[size].mean)} for {cost.text(mean_cost(by_size[size], cost))} with "
        f"{plural(size, f'training {metric.sized_by}')}"
        for size in dict.fromkeys((max(by_size), min(by_size)))
    ]
    return f"{model}: {', '.join(texts)}."
