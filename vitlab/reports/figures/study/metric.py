"""Figure 1: the study's metric on held-out data against the training-set size."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitlab.formatting import plural, whole
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.results.aggregate import CellAverage, aggregate
from vitlab.reports.results.fits import StudyFits
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.urls import folder_link
from vitlab.studies.laws.crossover import describe_crossover
from vitlab.studies.laws.groups import describe_params, name_law
from vitlab.tasks.metrics import Metric

PLACE = 1
BEYOND = 2.0  # times the largest size: how far laws are drawn
LAW_POINTS = 24
MOST_RUNS, ALL_RUNS = 30, 600  # of a model at a size that have a ring each, and of all together
FILES, HINT = [("results.csv", "results.csv")], "Click a point to find its run below."
Points = list[dict[str, Any]]
Averages = Mapping[str, Mapping[int, CellAverage]]


@dataclass(frozen=True)
class Value:
    """What the vertical axis shows of a metric: itself, or the error that it leaves."""

    name: str
    get: Callable[[float], float]

    def draw(self, value: float, *, log: bool) -> float | None:
        """None for what has no place on a log axis."""
        drawn = self.get(value)
        return None if log and drawn <= 0 else drawn


def draw(results: StudyResults) -> Iterator[Figure]:
    """The error on log-log axes where the metric is a share, then the metric.

    The laws are thin lines, dashed beyond the data; a crossover is an upright line in the strip of its interval.
    """
    metric = results.metric
    by_model = {model: by_size for model, by_size in aggregate(results.rows, metric).items() if by_size}
    if not by_model:
        return
    values = {metric.name: Value(metric.name, lambda value: value)}
    if metric.percent and metric.higher_is_better:
        values = {"error": Value(f"error (1 - {metric.name})", lambda value: 1 - value), **values}
    for choice, value in values.items():
        yield draw_sizes(results, by_model, value, choice)


def draw_sizes(results: StudyResults, by_model: Averages, value: Value, choice: str) -> Figure:
    metric, rows = results.metric, results.rows
    log = choice == "error" or not metric.percent
    points = draw_cells(
        by_model, metric, value, log, lambda row: row["train_size"], lambda cell: cell.rows[0]["train_size"]
    )
    heights = [point["y"] for point in points if point.get("y") is not None]
    laws = list(draw_laws(results.fits, value, choice == "error", metric.percent))
    crossings = list(draw_crossovers(results.fits, min(heights), max(heights))) if heights else []
    x = Axis(f"training {metric.sized_by}s (log scale)", log=True, ticks=sorted({row["train_size"] for row in rows}))
    keys = list_keys(rows, by_model)
    name = "error" if choice == "error" else metric.key
    caption, several = describe_points(rows, metric)
    if several:
        caption += " Bands: one standard deviation either way."
    return Figure(
        name=f"{name}_against_size",
        title=f"Held-out {name if choice == 'error' else metric.name} against training-set size",
        panels=draw_curves(
            {"": [*crossings, *laws, *points]},
            keys,
            x,
            Axis(f"held-out {value.name}{' (log scale)' if log else ''}", log=log, percent=metric.percent),
        ),
        keys=keys,
        alt=" ".join(describe_model(model, by_size, metric) for model, by_size in by_model.items()),
        caption=f"{caption}{describe_fits(results.fits)}",
        files=FILES,
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
    place_cell: Callable[[CellAverage], float],
    describe_cost: Callable[[float], str] = lambda cost: "",
    *,
    banded: bool = True,
) -> Points:
    """A line through the means of each model with its band, a point per mean and a ring per run."""
    points: Points = []
    most = limit_rings(sum(len(by_size) for by_size in by_model.values()))
    for model, by_size in by_model.items():
        several = any(len(cell.rows) > 1 for cell in by_size.values())
        with_band = banded and any(cell.std is not None for cell in by_size.values())
        for size, cell in by_size.items():
            y = value.draw(cell.mean, log=log)
            spread = f" ± {metric.number(cell.std)} over {len(cell.rows)} seeds" if cell.std is not None else ""
            heading = f"{model}, {plural(size, f'training {metric.sized_by}')}"
            here = {"label": model, "x": place_cell(cell), "y": y}
            text = "\n".join(filter(None, [heading, f"{metric.text(cell.mean)}{spread}", describe_cost(here["x"])]))
            link = folder_link(cell.rows[0]["run"]) if len(cell.rows) == 1 else ""
            points += [{**here, "mark": "line"}, {**here, "mark": "point", "text": text, "link": link}]
            if with_band and y is not None:
                low, high = sorted(value.get(cell.mean + way * (cell.std or 0.0)) for way in (-1, 1))
                points.append({**here, "mark": "band", "low": max(low, y / 2) if log else low, "high": high})
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


def choose_shown(cell: CellAverage, metric: Metric, most: int) -> Sequence[dict[str, Any]]:
    """The runs that have a ring: of many some in even steps of their order, with the lowest and the highest."""
    if len(cell.rows) <= most:
        return cell.rows
    ordered = sorted(cell.rows, key=metric.value)
    return [ordered[round(place)] for place in np.linspace(0, len(ordered) - 1, most)]


def draw_laws(found: StudyFits, value: Value, as_error: bool, percent: bool) -> Iterator[dict[str, Any]]:
    """The law of each model that holds with its 90% band, within the data and beyond it."""
    for model, fit in found.fits.items():
        if not fit.holds:
            continue
        first, last = (float(np.exp(fit.runs.log_sizes[i])) for i in (0, -1))
        text = f"{model}: {name_law(fit)}, {', '.join(describe_params(fit))}"
        for begin, end, mark in ((first, last, "law"), (last, BEYOND * last, "law beyond")):
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


def draw_crossovers(found: StudyFits, bottom: float, top: float) -> Iterator[dict[str, Any]]:
    """Each crossover: the strip of its interval and a line across it, as high as the data."""
    for (first, second), crossing in found.crossovers.items():
        if crossing.size is None or crossing.factor > BEYOND:
            continue
        here = {"line": f"{first} {second}", "text": describe_crossover(crossing, first, second, found.unit)}
        for x in (crossing.low, min(crossing.high or np.inf, BEYOND * crossing.largest)):
            yield {**here, "mark": "strip", "x": x, "y": bottom, "low": bottom, "high": top}
        for y in (bottom, top):
            yield {**here, "mark": "rule", "x": crossing.size, "y": y}


def describe_points(rows: Points, metric: Metric) -> tuple[str, bool]:
    """What lines and points are, and whether there are several runs at a size."""
    counts = Counter((row["model"], row["train_size"]) for row in rows)
    several = max(counts.values()) > 1
    caption = "Lines: mean over seeds. Open markers: single runs." if several else "Each point is one run."
    most = limit_rings(len(counts))
    if max(counts.values()) > most:
        caption = f"{caption[:-1]}; of more than {most} at a size, {most} from the lowest to the highest."
    return caption + ("" if metric.higher_is_better else " Lower is better."), several


def describe_fits(found: StudyFits) -> str:
    """What the thin lines and the upright one of the figure are."""
    text = ""
    if any(fit.holds for fit in found.fits.values()):
        text += f" Thin lines: laws fitted to the {found.scale.name}, dashed beyond the data, with 90% bands."
    if any(crossing.size for crossing in found.crossovers.values()):
        text += " Upright dotted line: a crossover, in the strip of its 90% interval."
    return text


def describe_model(model: str, by_size: Mapping[int, CellAverage], metric: Metric) -> str:
    first, last = min(by_size), max(by_size)
    text = f"{model}: {metric.text(by_size[last].mean)} with {plural(last, f'training {metric.sized_by}')}"
    return text + (f", {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else ".")
