"""What an analysis measures of each head, by layer: of one run, or of a model at each training-set size."""

import statistics
from collections import defaultdict
from typing import Any

from vitlab.config import load, names
from vitlab.formatting import finite, plural, significant
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.urls import file_stem, folder_link


def plot_heads(analysis: dict[str, Any], title: str, colour_key: str = "vit") -> Figure:
    """An analysis of ONE run: a point per head against the layer, the untrained model's rings behind."""
    return plot_panels(file_stem(str(analysis.get("name") or "heads")), title, [(analysis, "", "")], colour_key)


def plot_heads_by_size(results: StudyResults, model: str, name: str) -> Figure | None:
    """An analysis of a model at each training-set size, side by side: of each size the first seed that has it.

    None when no run of the model has the analysis, as for a ResNet that of its attention.
    """
    runs = find_analyses(results, model, name)
    if not runs:
        return None
    key = looks(families(results.rows))[model].colour_key
    return plot_panels(file_stem(f"{name}-{model}"), f"{format_title(name)} by layer, {model}", runs, key)


def find_analyses(results: StudyResults, model: str, name: str) -> list[tuple[dict[str, Any], str, str]]:
    """(analysis of heads, panel title, link) of a model at each training-set size, of the first seed that has it."""
    chosen: dict[int, tuple[dict[str, Any], str, str]] = {}
    for row in results.rows:
        analysis = results.runs[row["run"]].analysis(name) if row["model"] == model else None
        if analysis is not None:
            title = plural(row["train_size"], results.metric.sized_by)
            chosen.setdefault(row["train_size"], (analysis, title, folder_link(row["run"])))
    return [chosen[size] for size in sorted(chosen)]


def format_title(analysis: str) -> str:
    """What an analysis measures, as its YAML says it; of one that is gone its name. `Mean attention distance`."""
    known = analysis in names("analysis")
    title = load("analysis", analysis).title if known else analysis.replace("_", " ")
    return f"{title[:1].upper()}{title[1:]}"


def plot_panels(name: str, title: str, runs: list[tuple[dict[str, Any], str, str]], colour_key: str) -> Figure:
    """A panel per (analysis, panel title, link)."""
    unit = unit_of(runs[0][0])
    layers = {row["layer"] for analysis, _, _ in runs for row in analysis["rows"]}
    return Figure(
        name=name,
        title=title,
        x=Axis("layer", ticks=tuple(sorted(layer for layer in layers if finite(layer) is not None))),
        y=head_axis(runs[0][0]),
        panels=tuple(Panel(draw_heads(analysis, link, unit, colour_key), text) for analysis, text, link in runs),
        alt=describe_heads(runs, unit),
    )


def unit_of(analysis: dict[str, Any]) -> str:
    return str(analysis.get("unit") or "")


def head_axis(analysis: dict[str, Any]) -> Axis:
    """The axis of what an analysis of heads measures."""
    measured, unit = str(analysis.get("name") or "value").replace("_", " "), unit_of(analysis)
    return Axis(f"{measured} ({unit})" if unit else measured, from_zero=True)


def draw_heads(analysis: dict[str, Any], link: str, unit: str, colour_key: str) -> tuple[Series, ...]:
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


def describe_heads(runs: list[tuple[dict[str, Any], str, str]], unit: str) -> str:
    """The mean over heads of the first and the last layer, at the last step."""
    parts = []
    for analysis, text, _ in runs:
        by_layer: dict[float, list[float]] = defaultdict(list)
        for drawn in draw_heads(analysis, "", unit, "vit")[-1:]:
            for layer, value in zip(drawn.x, drawn.y, strict=True):
                by_layer[layer].append(value)
        if by_layer:
            means = {layer: significant(statistics.fmean(values)) for layer, values in by_layer.items()}
            first, last = min(means), max(means)
            ends = f"{means[first]} {unit} in layer {first:g}, {means[last]} in layer {last:g}"
            parts.append(f"{text}: {ends}." if text else f"{ends}.")
    return " ".join(["Mean over the heads:", *parts])
