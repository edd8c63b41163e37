"""What an analysis measures of each head, by layer: of one run, or of a model at each training-set size."""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from vitlab.config import load, names
from vitlab.formatting import finite, plural
from vitlab.reports.figures.head_scale import Analysis, HeadScale
from vitlab.reports.figures.spec import Axis, Figure, Panel, Series
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.urls import file_stem, folder_link

Run = tuple[Analysis, str, str]  # analysis, panel title, link


def plot_heads(analysis: Analysis, title: str) -> Figure:
    """An analysis of ONE run: a point per head against the layer, the untrained model's rings behind."""
    return plot_panels(file_stem(str(analysis.get("name") or "heads")), title, [(analysis, "", "")], "vit")


def plot_heads_by_size(results: StudyResults, model: str, name: str) -> Figure | None:
    """An analysis of a model at each training-set size, side by side: of each size the first seed that has it.

    None when no run of the model has the analysis, as for a ResNet that of its attention.
    """
    runs = find_analyses(results, model, name)
    if not runs:
        return None
    key = looks(families(results.rows))[model].colour_key
    return plot_panels(file_stem(f"{name}-{model}"), f"{format_title(name)} by layer, {model}", runs, key)


def find_analyses(results: StudyResults, model: str, name: str) -> list[Run]:
    """(analysis of heads, panel title, link) of a model at each training-set size, of the first seed that has it."""
    chosen: dict[int, Run] = {}
    for row in results.rows:
        analysis = results.runs[row["run"]].analysis(name) if row["model"] == model else None
        if analysis is not None:
            title = plural(row["train_size"], results.metric.sized_by)
            chosen.setdefault(row["train_size"], (analysis, title, folder_link(row["run"])))
    return [chosen[size] for size in sorted(chosen)]


def format_title(analysis: str) -> str:
    """What an analysis measures, as its YAML says it; of one that is gone its name. `Mean attention distance`."""
    is_shipped = analysis in names("analysis")
    title = load("analysis", analysis).title if is_shipped else analysis.replace("_", " ")
    return f"{title[:1].upper()}{title[1:]}"


def plot_panels(name: str, title: str, runs: list[Run], colour_key: str) -> Figure:
    """A panel per (analysis, panel title, link)."""
    scale = HeadScale.of(
        [(of_run, [row["value"] for rows in choose_steps(of_run).values() for row in rows]) for of_run, _, _ in runs]
    )
    layers = {row["layer"] for analysis, _, _ in runs for row in analysis["rows"]}
    ticks = tuple(sorted(layer for layer in layers if finite(layer) is not None))
    ends = (ticks[0] - 0.4, ticks[-1] + 0.4) if ticks else (0.0, 1.0)
    return Figure(
        name=name,
        title=title,
        x=Axis("layer", ticks=ticks),
        y=scale.axis(),
        panels=tuple(
            Panel((*scale.lines(analysis, ends), *draw_heads(analysis, link, scale, colour_key)), text)
            for analysis, text, link in runs
        ),
        alt=describe_heads(runs, scale),
    )


def choose_steps(analysis: Analysis) -> dict[str, list[dict[str, Any]]]:
    """label -> rows with a number: of the untrained model (step 0) and of the trained one (the last step).

    With one step there is nothing to tell apart, and no word for it: step 0 of a pretrained model is a trained one.
    """
    steps = sorted({row["step"] for row in analysis["rows"]})
    labels = {"untrained heads": steps[0], "trained heads": steps[-1]} if len(steps) > 1 else {"heads": steps[0]}
    rows = [row for row in analysis["rows"] if finite(row["value"]) is not None]
    return {label: [row for row in rows if row["step"] == step] for label, step in labels.items()}


def draw_heads(analysis: Analysis, link: str, scale: HeadScale, colour_key: str) -> Iterator[Series]:
    """The untrained model's heads and the trained one's, in drawing order."""
    for label, rows in choose_steps(analysis).items():
        untrained = label == "untrained heads"
        yield Series(
            label=label,
            x=[row["layer"] for row in rows],
            y=[scale.place(analysis, row["value"]) for row in rows],
            colour_key="untrained" if untrained else colour_key,
            style="rings" if untrained else "points",
            hover=[
                f"{label}: layer {row['layer']}, head {row['head']}\n{scale.text(analysis, row['value'])}"
                for row in rows
            ],
            links=[link] * len(rows) if link else (),
        )


def describe_heads(runs: list[Run], scale: HeadScale) -> str:
    """The mean over heads of the first and the last layer, at the last step."""
    parts = []
    for analysis, text, _ in runs:
        by_layer: dict[int, list[float]] = defaultdict(list)
        *_, rows = choose_steps(analysis).values()
        for row in rows:
            by_layer[row["layer"]].append(row["value"])
        if by_layer:
            means = [
                f"{scale.text(analysis, statistics.fmean(by_layer[layer]))} in layer {layer}"
                for layer in dict.fromkeys((min(by_layer), max(by_layer)))
            ]
            parts.append(f"{text}: {'; '.join(means)}." if text else f"{'; '.join(means)}.")
    return " ".join(["Mean over the heads:", *parts])
