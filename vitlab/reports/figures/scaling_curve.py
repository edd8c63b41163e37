"""The figures of a study, built from its files."""

import statistics
from collections import defaultdict
from typing import Any

from vitlab.config import load, names
from vitlab.formatting import finite, plural, significant, whole
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import Look, families, looks
from vitlab.reports.pages.urls import file_stem, folder_link
from vitlab.reports.results.aggregate import Cell, cells
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.metrics import Metric, main_metric


def accuracy_against_size(rows: list[dict[str, Any]]) -> Figure:
    """The study's metric on held-out data against the training-set size: a line per model, a band over seeds.

    With several seeds each run is a small ring beside the mean.
    """
    metric = main_metric(rows)
    by_model, style = cells(rows, metric), looks(families(rows))
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
        alt=" ".join(described(model, by_size, metric) for model, by_size in by_model.items() if by_size),
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


def described(model: str, by_size: dict[int, Cell], metric: Metric) -> str:
    first, last = min(by_size), max(by_size)
    text = f"{model}: {metric.text(by_size[last].mean)} with {plural(last, f'training {metric.sized_by}')}"
    return text + (f", {metric.text(by_size[first].mean)} with {whole(first)}." if first != last else ".")


def by_head(analysis: dict[str, Any], title: str, colour_key: str = "vit") -> Figure:
    """An analysis of ONE run: a point per head against the layer, the untrained model's rings behind."""
    return heads_figure(file_stem(str(analysis.get("name") or "heads")), title, [(analysis, "", "")], colour_key)


def by_head_and_size(results: StudyResults, model: str, name: str) -> Figure | None:
    """An analysis of a model at each training-set size, side by side: of each size the first seed that has it.

    None when no run of the model has the analysis, as for a ResNet that of its attention.
    """
    runs = analysed(results, model, name)
    if not runs:
        return None
    key = looks(families(results.rows))[model].colour_key
    return heads_figure(file_stem(f"{name}-{model}"), f"{sentence_case(titled(name))} by layer, {model}", runs, key)


def analysed(results: StudyResults, model: str, name: str) -> list[tuple[dict[str, Any], str, str]]:
    """(analysis of heads, panel title, link) of a model at each training-set size, of the first seed that has it."""
    chosen: dict[int, tuple[dict[str, Any], str, str]] = {}
    for row in results.rows:
        analysis = results.runs[row["run"]].analysis(name) if row["model"] == model else None
        if analysis is not None:
            title = plural(row["train_size"], results.metric.sized_by)
            chosen.setdefault(row["train_size"], (analysis, title, folder_link(row["run"])))
    return [chosen[size] for size in sorted(chosen)]


def titled(analysis: str) -> str:
    """What an analysis measures, as its YAML says it; of one that is gone its name."""
    if analysis not in names("analysis"):
        return analysis.replace("_", " ")
    return load("analysis", analysis).title


def sentence_case(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def heads_figure(name: str, title: str, runs: list[tuple[dict[str, Any], str, str]], colour_key: str) -> Figure:
    """A panel per (analysis, panel title, link)."""
    unit = unit_of(runs[0][0])
    layers = {row["layer"] for analysis, _, _ in runs for row in analysis["rows"]}
    return Figure(
        name=name,
        title=title,
        x=Axis("layer", ticks=tuple(sorted(layer for layer in layers if finite(layer) is not None))),
        y=value_axis(runs[0][0]),
        panels=tuple(Panel(heads(analysis, link, unit, colour_key), text) for analysis, text, link in runs),
        alt=heads_alt(runs, unit),
    )


def unit_of(analysis: dict[str, Any]) -> str:
    return str(analysis.get("unit") or "")


def value_axis(analysis: dict[str, Any]) -> Axis:
    """The axis of what an analysis of heads measures."""
    measured, unit = str(analysis.get("name") or "value").replace("_", " "), unit_of(analysis)
    return Axis(f"{measured} ({unit})" if unit else measured, from_zero=True)


def heads(analysis: dict[str, Any], link: str, unit: str, colour_key: str) -> tuple[Series, ...]:
    """The untrained model's heads (step 0) and the trained one's (the last step), in drawing order.

    With one step there is nothing to tell apart, and no word for it: step 0 of a pretrained model is a trained one.
    """
    steps = sorted({row["step"] for row in analysis["rows"]})
    drawn = [(step, "heads") for step in steps]
    if len(steps) > 1:
        drawn = [(steps[0], "untrained heads"), (steps[-1], "trained heads")]
    found = []
    for step, label in drawn:
        rows = [row for row in analysis["rows"] if row["step"] == step and finite(row["value"]) is not None]
        found.append(
            Series(
                label=label,
                x=[row["layer"] for row in rows],
                y=[row["value"] for row in rows],
                colour_key="untrained" if label == "untrained heads" else colour_key,
                style="rings" if label == "untrained heads" else "points",
                hover=[
                    f"{label}: layer {row['layer']}, head {row['head']}\n{significant(row['value'])} {unit}".rstrip()
                    for row in rows
                ],
                links=[link] * len(rows) if link else (),
            )
        )
    return tuple(found)


def heads_alt(runs: list[tuple[dict[str, Any], str, str]], unit: str) -> str:
    """The mean over heads of the first and the last layer, at the last step."""
    parts = []
    for analysis, text, _ in runs:
        by_layer: dict[float, list[float]] = defaultdict(list)
        for drawn in heads(analysis, "", unit, "vit")[-1:]:
            for layer, value in zip(drawn.x, drawn.y, strict=True):
                by_layer[layer].append(value)
        if by_layer:
            means = {layer: significant(statistics.fmean(values)) for layer, values in by_layer.items()}
            first, last = min(means), max(means)
            ends = f"{means[first]} {unit} in layer {first:g}, {means[last]} in layer {last:g}"
            parts.append(f"{text}: {ends}." if text else f"{ends}.")
    return " ".join(["Mean over the heads:", *parts])
