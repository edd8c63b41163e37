"""How a model's layers change while it trains: what an analysis measures of them, against the training step."""

import statistics
from collections import defaultdict
from collections.abc import Iterator

from vitlab.formatting import finite, whole
from vitlab.reports.figures.head_scale import Analysis, HeadScale
from vitlab.reports.figures.heads_by_layer import Run, find_analyses, format_title
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import ACCENTS, DASHES, group_look
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.urls import file_stem


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


def has_steps_between(analysis: Analysis) -> bool:
    """Whether an analysis has more steps than the first and the last."""
    return len({row["step"] for row in analysis["rows"]}) > 2


def plot_layers(name: str, title: str, runs: list[Run]) -> Figure:
    """A panel per run, a line per layer."""
    means = [(analysis, average_heads(analysis).values()) for analysis, _, _ in runs]
    scale = HeadScale.of(
        [(of_run, [value for by_step in layers for value in by_step.values()]) for of_run, layers in means]
    )
    ends = (0.0, max((step for _, layers in means for by_step in layers for step in by_step), default=0.0))
    return Figure(
        name=name,
        title=title,
        x=Axis("training step", from_zero=True, whole=True),
        y=scale.axis(),
        panels=tuple(
            Panel((*scale.lines(analysis, ends), *draw_layers(analysis, link, scale)), text)
            for analysis, text, link in runs
        ),
        alt=describe_layers(runs, scale),
    )


def average_heads(analysis: Analysis) -> dict[int, dict[int, float]]:
    """layer -> step -> the mean over its heads; values that are no numbers are left out."""
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in analysis["rows"]:
        if all(finite(row[key]) is not None for key in ("layer", "step", "value")):
            values[row["layer"], row["step"]].append(row["value"])
    means: dict[int, dict[int, float]] = defaultdict(dict)
    for layer, step in sorted(values):
        means[layer][step] = statistics.fmean(values[layer, step])
    return means


def draw_layers(analysis: Analysis, link: str, scale: HeadScale) -> Iterator[Series]:
    for place, (layer, by_step) in enumerate(average_heads(analysis).items()):
        colour_key, marker = group_look(place)
        yield Series(
            label=f"layer {layer}",
            x=list(by_step),
            y=[scale.place(analysis, value) for value in by_step.values()],
            colour_key=colour_key,
            marker=marker,
            dash=DASHES[place // len(ACCENTS) % len(DASHES)],
            width=1.6,
            hover=[
                f"layer {layer}, step {whole(step)}\n{scale.text(analysis, value)}" for step, value in by_step.items()
            ],
            links=[link] * len(by_step) if link else (),
        )


def describe_layers(runs: list[Run], scale: HeadScale) -> str:
    """How far the first and the last layer came in each panel."""
    parts = []
    for analysis, text, _ in runs:
        means = average_heads(analysis)
        ends = []
        for layer in dict.fromkeys((min(means), max(means))) if means else ():
            first, *_, last = [*means[layer].values()] * 2
            ends.append(f"layer {layer} from {scale.text(analysis, first)}, to {scale.text(analysis, last)}")
        parts += [f"{text}: {'; '.join(ends)}." if text else f"{'; '.join(ends)}."] if ends else []
    return " ".join(["Mean over the heads:", *parts])
