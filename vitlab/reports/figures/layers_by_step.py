"""How a model's layers change while it trains: what an analysis measures of them, against the training step."""

import statistics
from collections import defaultdict
from typing import Any

from vitlab.formatting import finite, significant, whole
from vitlab.reports.figures.heads_by_layer import find_analyses, format_title, head_axis, unit_of
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import ACCENTS, DASHES, group_look
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.urls import file_stem

Run = tuple[dict[str, Any], str, str]  # analysis, panel title, link


def plot_layers_by_size(results: StudyResults, model: str, name: str) -> Figure | None:
    """The mean over each layer's heads against the step, a panel per training-set size; of each the first seed.

    None when no run of the model was looked at between its first and its last step.
    """
    runs = find_analyses(results, model, name)
    if not any(has_steps_between(analysis) for analysis, _, _ in runs):
        return None
    return plot_layers(name_figure(f"{name}-{model}"), f"{format_title(name)} while training, {model}", runs)


def name_figure(stem: str) -> str:
    """The name of such a figure's files."""
    return file_stem(f"{stem}-by-step")


def has_steps_between(analysis: dict[str, Any]) -> bool:
    """Whether an analysis has more steps than the first and the last."""
    return len({row["step"] for row in analysis["rows"]}) > 2


def plot_layers(name: str, title: str, runs: list[Run]) -> Figure:
    """A panel per run, a line per layer."""
    return Figure(
        name=name,
        title=title,
        x=Axis("training step", from_zero=True, whole=True),
        y=head_axis(runs[0][0]),
        panels=tuple(Panel(lines(analysis, link), text) for analysis, text, link in runs),
        alt=describe(runs),
    )


def means(analysis: dict[str, Any]) -> dict[int, dict[int, float]]:
    """layer -> step -> the mean over its heads; values that are no numbers are left out."""
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in analysis["rows"]:
        if all(finite(row[key]) is not None for key in ("layer", "step", "value")):
            values[row["layer"], row["step"]].append(row["value"])
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for layer, step in sorted(values):
        found[layer][step] = statistics.fmean(values[layer, step])
    return found


def lines(analysis: dict[str, Any], link: str) -> tuple[Series, ...]:
    unit, found = unit_of(analysis), []
    for place, (layer, by_step) in enumerate(means(analysis).items()):
        colour_key, marker = group_look(place)
        found.append(
            Series(
                label=f"layer {layer}",
                x=list(by_step),
                y=list(by_step.values()),
                colour_key=colour_key,
                marker=marker,
                dash=DASHES[place // len(ACCENTS) % len(DASHES)],
                width=1.6,
                hover=[
                    f"layer {layer}, step {whole(step)}\n{significant(value)} {unit}".rstrip()
                    for step, value in by_step.items()
                ],
                links=[link] * len(by_step) if link else (),
            )
        )
    return tuple(found)


def describe(runs: list[Run]) -> str:
    """How far the first and the last layer came in each panel."""
    parts = []
    for analysis, text, _ in runs:
        found, unit = means(analysis), unit_of(analysis)
        ends = (
            [
                f"layer {layer} from {significant(next(iter(found[layer].values())))} "
                f"to {' '.join([significant(list(found[layer].values())[-1]), unit]).rstrip()}"
                for layer in dict.fromkeys((min(found), max(found)))
            ]
            if found
            else []
        )
        parts += [f"{text}: {', '.join(ends)}." if text else f"{', '.join(ends)}."] if ends else []
    return " ".join(["Mean over the heads:", *parts])
