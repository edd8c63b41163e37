"""Figure 1: the study's metric on held-out data against the training-set size."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitlab.formatting import plural
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.urls import folder_link
from vitlab.reports.words import describe_model, join_names
from vitlab.studies.fits import StudyFits
from vitlab.studies.laws.crossover import describe_crossover, rounded
from vitlab.studies.limits import list_limits
from vitlab.studies.results import Cell, Results
from vitlab.tasks.metrics import Metric

PLACE = 1
BEYOND = 2.0  # times the largest size: how far laws are drawn
LAW_POINTS = 24
MOST_RUNS, ALL_RUNS = 30, 600  # of a model at a size that have a ring each, and of all together
FILES, HINT = [("results.csv", "results.csv")], "Click a point to find its run below."
Points = list[dict[str, Any]]
Averages = Mapping[str, Mapping[int, Cell]]


@dataclass(frozen=True)
class Value:
    """What the vertical axis shows of a metric: itself, or the error that it leaves."""

    name: str
    get: Callable[[float], float]

    def draw(self, value: float, *, log: bool) -> float | None:
        """None for what has no place on a log axis."""
        drawn = self.get(value)
        return None if log and drawn <= 0 else drawn


def draw(results: Results) -> Iterator[Figure]:
    """The error on log-log axes where the metric is a share, then the metric.

    A model has one line with one band: its law where it holds, dashed beyond the data, else its means. A crossover is
    an upright line in the strip of its interval.
    """
    metric = results.metric
    by_model = {model: by_size for model, by_size in results.by_model.items() if by_size}
    if not by_model:
        return
    values = {metric.name: Value(metric.name, lambda value: value)}
    if metric.percent and metric.higher_is_better:
        values = {"error": Value(f"error (1 - {metric.name})", lambda value: 1 - value), **values}
    for choice, value in values.items():
        yield draw_sizes(results, by_model, value, choice)


def draw_sizes(results: Results, by_model: Averages, value: Value, choice: str) -> Figure:
    metric, rows, found = results.metric, results.rows, results.fits
    log = choice == "error" or not metric.percent
    points = draw_cells(
        by_model, metric, value, log, lambda row: row["train_size"], lambda cell: cell.rows[0]["train_size"]
    )
    largest = max(row["train_size"] for row in rows)
    heights = [point["y"] for point in points if point.get("y") is not None]
    without_law = {model: by_size for model, by_size in by_model.items() if model not in found.holding}
    drawn = [
        *(draw_crossovers(found, min(heights), max(heights), largest) if heights else ()),
        *draw_laws(found, value, choice == "error", metric.percent, largest),
        *draw_means(without_law, value, log),
        *points,
        *label_ends(results, value, log),
    ]
    x = Axis(f"training {metric.sized_by}s (log scale)", log=True, ticks=sorted({row["train_size"] for row in rows}))
    keys = list_keys(rows, by_model)
    name = "error" if choice == "error" else metric.key
    return Figure(
        name=f"{name}_against_size",
        title=f"Held-out {name if choice == 'error' else metric.name} against training-set size",
        panels=draw_curves(
            {"": drawn},
            keys,
            x,
            Axis(f"held-out {value.name}{' (log scale)' if log else ''}", log=log, percent=metric.percent),
        ),
        keys=keys,
        alt=" ".join(describe_model(model, by_size, metric) for model, by_size in by_model.items()),
        caption=" ".join([describe_lines(found, without_law), describe_points(rows, metric)]).strip(),
        files=[*FILES, *([("laws.csv", "figures/laws.csv")] if found.groups else [])],
        hint=HINT,
        choice=choice,
    )


def list_keys(rows: Points, by_model: Averages) -> list[Key]:
    style = looks(families(rows))
    return [Key(model, style[model].colour, style[model].marker, style[model].dash, model=model) for model in by_model]


def draw_cells(
    by_model: Averages,
    metric: Metric,
    value: Value,
    log: bool,
    place_row: Callable[[Mapping[str, Any]], float | None],
    place_cell: Callable[[Cell], float],
    describe_cost: Callable[[float], str] = lambda cost: "",
) -> Points:
    """A point per mean, hollow where the budget limits it, and a ring per run."""
    points: Points = []
    most = limit_rings(sum(len(by_size) for by_size in by_model.values()))
    limits = list_limits([row for by_size in by_model.values() for cell in by_size.values() for row in cell.rows])
    for model, by_size in by_model.items():
        several = any(len(cell.rows) > 1 for cell in by_size.values())
        for size, cell in by_size.items():
            y = value.draw(cell.mean, log=log)
            spread = f" ± {metric.number(cell.std)} over {len(cell.rows)} seeds" if cell.std is not None else ""
            heading = f"{model}, {plural(size, f'training {metric.sized_by}')}"
            here = {"label": model, "x": place_cell(cell), "y": y}
            limit = limits.get((model, size))
            lines = [heading, f"{metric.text(cell.mean)}{spread}", describe_cost(here["x"])]
            text = "\n".join(filter(None, [*lines, limit and f"limit: {limit}"]))
            link = folder_link(cell.rows[0]["run"]) if len(cell.rows) == 1 else ""
            points.append({**here, "mark": "hollow" if limit == "budget" else "point", "text": text, "link": link})
            for row in choose_shown(cell, metric, most) if several else ():
                x, y_run = place_row(row), value.draw(metric.value(row), log=log)
                if x is not None and y_run is not None:
                    text = "\n".join(filter(None, [row["run"], metric.text(metric.value(row)), describe_cost(x)]))
                    ring = {"label": model, "x": x, "y": y_run, "text": text, "link": folder_link(row["run"])}
                    points.append({**ring, "mark": "ring"})
    return points


def limit_rings(cells: int) -> int:
    """How many runs of a model at a size have a ring."""
    return max(3, min(MOST_RUNS, ALL_RUNS // max(1, cells)))


def choose_shown(cell: Cell, metric: Metric, most: int) -> Sequence[dict[str, Any]]:
    """The runs that have a ring: of many some in even steps of their order, with the lowest and the highest."""
    if len(cell.rows) <= most:
        return cell.rows
    ordered = sorted(cell.rows, key=metric.value)
    return [ordered[round(place)] for place in np.linspace(0, len(ordered) - 1, most)]


def draw_means(by_model: Averages, value: Value, log: bool) -> Iterator[dict[str, Any]]:
    """A line through the means of each model with a band of one standard deviation."""
    for model, by_size in by_model.items():
        with_band = any(cell.std is not None for cell in by_size.values())
        for size, cell in by_size.items():
            y = value.draw(cell.mean, log=log)
            here = {"label": model, "x": size, "y": y}
            yield {**here, "mark": "line"}
            if with_band and y is not None:
                low, high = sorted(value.get(cell.mean + way * (cell.std or 0.0)) for way in (-1, 1))
                yield {**here, "mark": "band", "low": max(low, y / 2) if log else low, "high": high}


def draw_laws(
    found: StudyFits, value: Value, as_error: bool, percent: bool, largest: float
) -> Iterator[dict[str, Any]]:
    """The law of each model that holds with its 90% band: within the sizes of its fit, and beyond them."""
    for model, fit in found.holding.items():
        first, last = (float(np.exp(fit.runs.log_sizes[i])) for i in (0, -1))
        text = f"{model}: {found.describe_law(model)}"
        for begin, end, mark in ((first, last, "law"), (last, max(BEYOND * last, largest), "law beyond")):
            sizes = np.geomspace(begin, end, LAW_POINTS)
            lines = (fit.predict(sizes), *fit.interval(sizes))
            if not as_error:
                lines = tuple(found.scale.to_metric(errors) for errors in lines)
            if percent:  # a steep law leaves 0..1 just below the sizes that it was fitted to
                lines = tuple(np.clip(line, 1e-6 if as_error else 0.0, 1.0) for line in lines)
            for x, *heights in zip(sizes.tolist(), *lines, strict=True):
                x, y, low, high = (float(f"{value:.5g}") for value in (x, *heights))
                here = {"label": model, "line": mark, "x": x}
                yield {**here, "mark": mark, "y": y, "text": text}
                yield {**here, "mark": "band", "low": min(low, high), "high": max(low, high)}


def draw_crossovers(found: StudyFits, bottom: float, top: float, largest: float) -> Iterator[dict[str, Any]]:
    """Each crossover: the strip of its interval and a line across it, as high as the data, with its numbers."""
    for (first, second), crossing in found.crossovers.items():
        if crossing.size is None or crossing.factor > BEYOND:
            continue
        here = {"line": f"{first} {second}", "text": describe_crossover(crossing, first, second, found.unit)}
        for x in (crossing.low, min(crossing.high or np.inf, max(BEYOND * crossing.largest, largest))):
            yield {**here, "mark": "strip", "x": x, "y": bottom, "low": bottom, "high": top}
        for y in (bottom, top):
            yield {**here, "mark": "rule", "x": crossing.size, "y": y}
        if len(found.crossovers) == 1:
            end = f"to {rounded(crossing.high)}" if crossing.high else "up"
            text = f"crossover {rounded(crossing.size)} ({rounded(crossing.low)} {end})"
            yield {**here, "mark": "above", "x": crossing.size, "y": top, "text": text}


def label_ends(results: Results, value: Value, log: bool) -> Iterator[dict[str, Any]]:
    """The means at the largest size of the two best contenders, which the headline compares."""
    metric, size = results.metric, max(row["train_size"] for row in results.rows)
    cells = [results.by_model[by_size[size]][size] for by_size in results.contenders.values() if size in by_size]
    best = sorted(cells, key=lambda cell: metric.lead(cell.mean, 0.0), reverse=True)[:2]
    best.sort(key=lambda cell: value.get(cell.mean), reverse=True)
    for cell, mark, choose in zip(best, ("above", "below"), (max, min), strict=False):
        y = choose(value.get(metric.value(row)) for row in cell.rows)
        if y > 0 or not log:
            text = metric.text(value.get(cell.mean))
            yield {"mark": mark, "label": cell.rows[0]["model"], "x": size, "y": y, "text": text}


def describe_points(rows: Points, metric: Metric) -> str:
    """What the markers are."""
    counts = Counter((row["model"], row["train_size"]) for row in rows)
    text = (
        "Filled markers: means. Thin open ones: single runs." if max(counts.values()) > 1 else "Each marker is one run."
    )
    most = limit_rings(len(counts))
    if max(counts.values()) > most:
        text = f"{text[:-1]}; of more than {most} at a size, {most} from the lowest to the highest."
    if "budget" in list_limits(rows).values():
        text += " Hollow, thick: limited by the budget."
    return text + ("" if metric.higher_is_better else " Lower is better.")


def describe_lines(found: StudyFits, without_law: Averages) -> str:
    """What lines, bands and the upright line of the figure are."""
    texts = []
    if found.holding:
        fitted = " that the data limit" if found.left_out else ""
        texts.append(f"Lines: laws fitted to the points{fitted}, dashed beyond them, with 90% bands.")
    several = any(cell.std is not None for by_size in without_law.values() for cell in by_size.values())
    if without_law and (several or texts):
        which = f"Lines of {join_names(list(without_law))}" if texts else "Lines"
        texts.append(f"{which}: means over seeds{', with bands of one standard deviation' if several else ''}.")
    if any(crossing.size for crossing in found.crossovers.values()):
        texts.append("Upright dotted line: a crossover, in the strip of its 90% interval.")
    return " ".join(texts)
