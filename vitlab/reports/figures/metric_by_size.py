"""A study's metric on held-out data against the training-set size."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vitlab.formatting import plural, whole
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import Look, families, looks
from vitlab.reports.results.aggregate import CellAverage, aggregate
from vitlab.reports.results.fits import StudyFits
from vitlab.reports.urls import folder_link
from vitlab.studies.laws.crossover import describe_crossover
from vitlab.studies.laws.groups import describe_params, name_law
from vitlab.studies.metrics import main_metric
from vitlab.tasks.metrics import Metric

BEYOND = 2.0  # times the largest size: how far laws are drawn
POINTS = 40  # of a law's line
MOST_RUNS = 30  # of a model at a size that have a point each


def plot_metric_by_size(rows: list[dict[str, Any]], fits: StudyFits | None = None) -> Figure:
    """The study's metric on held-out data against the training-set size: a line per model, a band over seeds.

    With several seeds each run is a small ring beside the mean. The laws of `fits` are thin lines, dashed beyond the
    data; a crossover is an upright line in the strip of its interval.
    """
    metric = main_metric(rows)
    by_model, style = aggregate(rows, metric), looks(families(rows))
    series: list[Series] = []
    for model, by_size in by_model.items():
        if by_size:
            series.append(mean_line(model, by_size, style[model], metric))
            if any(len(here.rows) > 1 for here in by_size.values()):
                series.append(run_points(model, by_size, style[model], metric))
    if fits is not None and series:
        laws = draw_fits(fits, style, metric.percent)
        heights = [y for line in series for y in line.y if y is not None]
        series = [*draw_crossovers(fits, min(heights), max(heights)), *laws, *series]
    return Figure(
        name=f"{metric.key}_against_size",
        title=f"Held-out {metric.name} against training-set size",
        x=Axis(
            f"training {metric.sized_by}s (log scale)",
            log=True,
            ticks=tuple(sorted({row["train_size"] for row in rows})),
        ),
        y=Axis(f"held-out {metric.name}", percent=metric.percent),
        panels=(Panel(tuple(series)),),
        alt=" ".join(describe(model, by_size, metric) for model, by_size in by_model.items() if by_size),
    )


def draw_fits(found: StudyFits, style: Mapping[str, Look], percent: bool) -> Iterator[Series]:
    """The law of each model that holds, within the data and beyond it."""
    for model, fit in found.fits.items():
        if not fit.holds:
            continue
        first, last = (float(np.exp(fit.runs.log_sizes[i])) for i in (0, -1))
        for begin, end, dash in ((first, last, "solid"), (last, BEYOND * last, "dash")):
            sizes = np.geomspace(begin, end, POINTS)
            line, low, other = (found.scale.to_metric(e) for e in (fit.predict(sizes), *fit.interval(sizes)))
            if percent:  # a steep law leaves 0..1 just below the sizes that it was fitted to
                line, low, other = (np.clip(values, 0, 1) for values in (line, low, other))
            yield Series(
                label=f"{model}, fit",
                x=sizes.tolist(),
                y=line.tolist(),
                low=np.minimum(low, other).tolist(),
                high=np.maximum(low, other).tolist(),
                colour_key=style[model].colour_key,
                style="line",
                dash=dash,
                width=1.0,
                note=f"{model}: {name_law(fit)}, {', '.join(describe_params(fit))}",
                legend=False,
                follows=model,
                model=model,
            )


def draw_crossovers(found: StudyFits, bottom: float, top: float) -> Iterator[Series]:
    """Each crossover: the strip of its interval and a line across it, as high as the data."""
    for (first, second), crossing in found.crossovers.items():
        if crossing.size is None or crossing.factor > BEYOND:
            continue
        text = describe_crossover(crossing, first, second, found.unit)
        look = {"colour_key": "muted", "style": "line", "legend": False, "note": text}
        ends = [crossing.low, min(crossing.high or np.inf, BEYOND * crossing.largest)]
        yield Series("interval", ends, [None, None], low=[bottom, bottom], high=[top, top], **look)
        yield Series("crossover", [crossing.size, crossing.size], [bottom, top], dash="dot", width=1.5, **look)


def mean_line(model: str, by_size: dict[int, CellAverage], look: Look, metric: Metric) -> Series:
    means = [here.mean for here in by_size.values()]
    stds = [here.std for here in by_size.values()]
    banded = any(std is not None for std in stds)
    hover = []
    for size, here in by_size.items():
        spread = f" ± {metric.number(here.std)} over {len(here.rows)} seeds" if here.std is not None else ""
        hover.append(f"{model}, {plural(size, f'training {metric.sized_by}')}\n{metric.text(here.mean)}{spread}")
    return Series(
        label=model,
        x=list(by_size),
        y=means,
        low=[m - (s or 0.0) for m, s in zip(means, stds, strict=True)] if banded else (),
        high=[m + (s or 0.0) for m, s in zip(means, stds, strict=True)] if banded else (),
        colour_key=look.colour_key,
        marker=look.marker,
        dash=look.dash,
        hover=hover,
        links=[folder_link(h.rows[0]["run"]) if len(h.rows) == 1 else "" for h in by_size.values()],
        model=model,
    )


def run_points(model: str, by_size: dict[int, CellAverage], look: Look, metric: Metric) -> Series:
    runs = [row for here in by_size.values() for row in choose_shown(here, metric)]
    return Series(
        label=f"{model}, each run",
        x=[row["train_size"] for row in runs],
        y=[metric.value(row) for row in runs],
        colour_key=look.colour_key,
        marker=look.marker,
        style="rings",
        hover=[f"{row['run']}\n{metric.text(metric.value(row))}" for row in runs],
        links=[folder_link(row["run"]) for row in runs],
        legend=False,
        follows=model,
        model=model,
    )


def choose_shown(here: CellAverage, metric: Metric) -> tuple[dict[str, Any], ...]:
    """The runs that have a point: of many some in even steps of their order, with the lowest and the highest."""
    if len(here.rows) <= MOST_RUNS:
        return here.rows
    ordered = sorted(here.rows, key=metric.value)
    return tuple(ordered[round(place)] for place in np.linspace(0, len(ordered) - 1, MOST_RUNS))


def describe(model: str, by_size: dict[int, CellAverage], metric: Metric) -> str:
    first, last = min(by_size), max(by_size)
    text = f"{model}: {metric.text(by_size[last].mean)} with {plural(last, f'training {metric.sized_by}')}"
    return text + (f", {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else ".")
