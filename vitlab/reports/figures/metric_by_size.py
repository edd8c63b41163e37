"""A study's metric on held-out data against the training-set size."""

from typing import Any

from vitlab.formatting import plural, whole
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import Look, families, looks
from vitlab.reports.results.aggregate import Cell, aggregate
from vitlab.reports.urls import folder_link
from vitlab.studies.metrics import Metric, main_metric


def plot_metric_by_size(rows: list[dict[str, Any]]) -> Figure:
    """The study's metric on held-out data against the training-set size: a line per model, a band over seeds.

    With several seeds each run is a small ring beside the mean.
    """
    metric = main_metric(rows)
    by_model, style = aggregate(rows, metric), looks(families(rows))
    series: list[Series] = []
    for model, by_size in by_model.items():
        if by_size:
            series.append(mean_line(model, by_size, style[model], metric))
            if any(len(here.rows) > 1 for here in by_size.values()):
                series.append(run_points(model, by_size, style[model], metric))
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


def mean_line(model: str, by_size: dict[int, Cell], look: Look, metric: Metric) -> Series:
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


def run_points(model: str, by_size: dict[int, Cell], look: Look, metric: Metric) -> Series:
    runs = [row for here in by_size.values() for row in here.rows]
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


def describe(model: str, by_size: dict[int, Cell], metric: Metric) -> str:
    first, last = min(by_size), max(by_size)
    text = f"{model}: {metric.text(by_size[last].mean)} with {plural(last, f'training {metric.sized_by}')}"
    return text + (f", {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else ".")
