"""Figure 1, its other views: the metric against what the runs cost, training compute or time, and the best for each
cost (as Dosovitskiy et al., 2021, figure 5, and Zhai et al., 2022, figure 2)."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from vitlab.formatting import duration, finite, plural, with_prefix
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.study.metric import (
    FILES,
    HINT,
    Averages,
    Points,
    Value,
    describe_points,
    draw_cells,
    list_keys,
)
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.provenance import identify_machine
from vitlab.studies.results import Cell, Results, family_name
from vitlab.tasks.metrics import Metric

PLACE = 2
TIME_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
STAIRS = (
    " Along a line the training set grows. Stairs: the best mean that no more than that much bought, broad of a family,"
    " dotted of all models."
)


@dataclass(frozen=True)
class Cost:
    """`key` is a column of results.csv, in units of `unit` on the axis."""

    key: str
    choice: str
    title: str
    text: Callable[[float], str]
    unit: float = 1.0

    def get(self, row: Mapping[str, Any]) -> float | None:
        """None for what has no place on a log axis."""
        value = finite(row.get(self.key))
        return value / self.unit if value is not None and value > 0 else None

    def average(self, cell: Cell) -> float:
        return statistics.fmean(cost for row in cell.rows if (cost := self.get(row)) is not None)


def draw(results: Results) -> Iterator[Figure]:
    """Runs whose cost is not known are left out."""
    for cost in list_costs(results.rows):
        known = Results([row for row in results.rows if cost.get(row) is not None], outcomes={}).by_model
        if any(known.values()):
            yield draw_costs(results, {model: by_size for model, by_size in known.items() if by_size}, cost)


def list_costs(rows: Points) -> list[Cost]:
    """Training compute (the operations of all forward and backward passes) and wall-clock time of training."""
    longest = max((finite(row.get("wall_s")) or 0.0 for row in rows), default=0.0)
    unit, short = max((unit for unit in TIME_UNITS if longest >= 5 * unit[0]), default=TIME_UNITS[0])
    title = f"time to train and evaluate ({short}, log scale)"
    return [
        Cost("train_flops", "compute", "training compute (FLOPs, log scale)", partial(with_prefix, unit="FLOP")),
        Cost("wall_s", "time", title, lambda time: duration(time * unit), unit),
    ]


def draw_costs(results: Results, by_model: Averages, cost: Cost) -> Figure:
    """A line per model through the means over seeds of both, from its smallest training set to its largest.

    Behind them the frontier of each family and of all.
    """
    rows, metric = results.rows, results.metric
    log = not metric.percent
    value = Value(metric.name, lambda of: of)
    points = draw_cells(by_model, metric, value, log, cost.get, cost.average, cost.text)
    lines = [
        {"mark": "line", **{key: point[key] for key in ("label", "x", "y")}}
        for point in points
        if point["mark"] != "ring"
    ]
    frontiers = find_frontiers(by_model, families(rows), metric, cost)
    end = max(cost.average(cell) for by_size in by_model.values() for cell in by_size.values())
    style = looks(families(rows))
    keys = list_keys(rows, by_model)
    stairs: Points = []
    alts = [describe_cost_of(model, by_size, metric, cost) for model, by_size in by_model.items()]
    for label, frontier in frontiers.items():
        all_models = label == "best of all"
        keys.append(
            Key(label, "ink", dash="dot", style="line", width=1.4)
            if all_models
            else Key(label, style[frontier[0].model].colour, style="line", width=7)
        )
        stairs += draw_stairs(label, frontier, end, "line" if all_models else "stairs", metric, cost)
        alts.append(f"{label}: {', '.join(f'{metric.text(p.value)} for {cost.text(p.cost)}' for p in frontier)}.")
    caption = describe_points(rows, metric) + (STAIRS if frontiers else "")
    if cost.choice == "time":
        caption += " Wall-clock time from the first step to the last, including evaluations and checkpoints."
        if len({identify_machine(run.result) for run in results.run_files.values()}) > 1:
            caption += " The runs were on different machines, so their times are not comparable."
    return Figure(
        name=f"{metric.key}_against_{cost.choice}",
        title=f"Held-out {metric.name} against training {cost.choice}",
        panels=draw_curves(
            {"": [*stairs, *lines, *points, *label_sizes(by_model, metric, cost)]},
            keys,
            Axis(cost.title, log=True, short=True),
            Axis(f"held-out {metric.name}", percent=metric.percent, log=log),
        ),
        keys=keys,
        alt=" ".join(alts),
        caption=caption,
        files=FILES,
        hint=HINT,
        choice=cost.choice,
    )


@dataclass(frozen=True)
class Bought:
    """The mean over seeds of a model at one training-set size, and what it cost."""

    cost: float
    value: float
    model: str
    what: str


def find_frontiers(
    by_model: Averages, family_of: Mapping[str, str], metric: Metric, cost: Cost
) -> dict[str, list[Bought]]:
    """Of each family, and of all where there are several: the best mean that no more than a cost buys.

    A study of one model has none.
    """
    if len(by_model) < 2:
        return {}
    groups: dict[str, list[Bought]] = {}
    for model, by_size in by_model.items():
        for size, cell in by_size.items():
            what = f"{model}, {plural(size, f'training {metric.sized_by}')}"
            bought = Bought(cost.average(cell), cell.mean, model, what)
            groups.setdefault(f"best of {family_name(family_of[model])}", []).append(bought)
    if len(groups) > 1:
        groups["best of all"] = [bought for group in groups.values() for bought in group]
    return {label: find_frontier(group, metric) for label, group in groups.items()}


def find_frontier(points: Sequence[Bought], metric: Metric) -> list[Bought]:
    """Those that are better than every other of no more cost, the cheapest first (the Pareto frontier)."""
    frontier: list[Bought] = []
    for point in sorted(points, key=lambda point: (point.cost, -metric.lead(point.value, 0.0))):
        if not frontier or metric.lead(point.value, frontier[-1].value) > 0:
            frontier.append(point)
    return frontier


def draw_stairs(
    label: str, frontier: Sequence[Bought], end: float, mark: str, metric: Metric, cost: Cost
) -> Iterator[dict[str, Any]]:
    """From each point level to the cost of the next, the last to the `end`: nothing better was had for less."""
    for point, following in zip_longest(frontier, frontier[1:]):
        text = f"{label}: {point.what}\n{metric.text(point.value)} for {cost.text(point.cost)}"
        for x in (point.cost, end if following is None else following.cost):
            yield {"mark": mark, "label": label, "x": x, "y": point.value, "text": text}


def label_sizes(by_model: Averages, metric: Metric, cost: Cost) -> Iterator[dict[str, Any]]:
    """The smallest and the largest training set of each model: above the better end of its line, below the other.

    Of models that begin or end near each other the first is labelled.
    """
    taken: list[tuple[float, float]] = []
    means = [cell.mean for by_size in by_model.values() for cell in by_size.values()]
    tall = (max(means) - min(means)) or 1.0
    for model, by_size in by_model.items():
        first, last = min(by_size), max(by_size)
        rises = by_size[first].mean <= by_size[last].mean
        for size, above in ((first, not rises), (last, rises)) if first != last else ():
            values = [value for row in by_size[size].rows if (value := metric.value(row)) is not None]
            x, y = cost.average(by_size[size]), max(values) if above else min(values)
            if any(abs(math.log(x / other)) < 0.25 and abs(y - height) < 0.07 * tall for other, height in taken):
                continue
            taken.append((x, y))
            text = with_prefix(float(f"{size:.3g}"), "").replace(" ", "") if size >= 1e4 else f"{size:,}"
            yield {"mark": "above" if above else "below", "line": model, "x": x, "y": y, "text": text.replace(".0", "")}


def describe_cost_of(model: str, by_size: Mapping[int, Cell], metric: Metric, cost: Cost) -> str:
    texts = [
        f"{metric.text(by_size[size].mean)} for {cost.text(cost.average(by_size[size]))} with "
        f"{plural(size, f'training {metric.sized_by}')}"
        for size in dict.fromkeys((max(by_size), min(by_size)))
    ]
    return f"{model}: {', '.join(texts)}."
