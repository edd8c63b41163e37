"""Compares any number of runs, of one study or of several, on a page that its address chooses: `compare.html#RUN,RUN`.

Means and intervals are those of the studies' own tables, over all seeds of a model at a size, chosen or not.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import TrainConfig
from vitlab.config.schema.fields import WEIGHTS
from vitlab.config.schema.kinds import affecting, select
from vitlab.files import write_text
from vitlab.formatting import DASH, count, finite, link, plural, whole
from vitlab.reports import provenance
from vitlab.reports.figures.figure import house_style
from vitlab.reports.figures.theme import ACCENTS, THEMES, looks
from vitlab.reports.pages import runs_table
from vitlab.reports.pages.render import bundle_vega, render, source
from vitlab.reports.pages.runs_table import Column
from vitlab.reports.words import cell_text, compare_sizes, describe_lead, describe_numbers, join_names
from vitlab.studies.results import Results, RunResults
from vitlab.tasks.metrics import find_metric

SCRIPTS = ("theme_button.js", "charts.js", "table.js", "compare.js")
FURTHER = (  # columns that the report's table of runs has no room for
    Column("params", "parameters", count),
    Column("steps", "steps", whole),
    Column("chance", "chance", lambda value: find_metric("accuracy").text(finite(value))),
    Column("test_items", "held-out items", whole),
)
MOST_POINTS, LEAST_POINTS, ALL_POINTS = 200, 20, 120_000  # of a curve, of a curve of very many, and of the page
MOST_MODELS = 24  # at a size, the best ones, whose differences the page holds
MOST_SHOWN = 12  # runs that are chosen where the address chooses none

Rows = list[dict[str, Any]]
Curve = tuple[list[float], list[float | None]]  # x, y; a y that is None is a gap
Studies = Mapping[str, Results]  # by their names


def write_compare_page(studies: Studies, path: Path, compared: Sequence[str] = ()) -> Path | None:
    """Write the page, which begins with the runs `compared`; give its path, or None for fewer than two runs.

    Raises UserError.
    """
    if sum(len(results.rows) for results in studies.values()) < 2:
        path.unlink(missing_ok=True)  # of an earlier report with more runs
        return None
    write_text(path, render_page(studies, path.parent, compared))
    return path


def merge_studies(studies: Studies) -> Results:
    """Several studies as one, with runs `study/run` of models `study/model`; a single study as it is."""
    if len(studies) == 1:
        return next(iter(studies.values()))
    rows = [
        {**row, "run": f"{name}/{row['run']}", "model": f"{name}/{row['model']}"}
        for name, results in studies.items()
        for row in results.rows
    ]
    files = {f"{name}/{run}": found for name, results in studies.items() for run, found in results.run_files.items()}
    return Results(rows, {"margin": min(results.margin for results in studies.values())}, run_files=files)


def render_page(studies: Studies, folder: Path, compared: Sequence[str]) -> str:
    """The whole document, of a page in a folder."""
    results, comparable = merge_studies(studies), list_comparable(studies)
    rows, metric = results.rows, results.metric
    columns = runs_table.columns(rows)
    columns += [column for column in FURTHER if any(column.key in row for row in rows)]
    measured = [column for column in columns if column.key not in runs_table.CHOICES]
    cells: dict[tuple[str, int], Rows] = {}
    for row in sorted(rows, key=lambda row: row["train_size"]):
        cells.setdefault((row["model"], row["train_size"]), []).append(row)
    places = {cell: place for place, cell in enumerate(cells)}
    style = looks(results.families)
    keys, settings = find_differences(
        [provenance.flatten(select(run.config, TrainConfig, affecting(WEIGHTS))) for run in results.run_files.values()]
    )
    most = max(LEAST_POINTS, min(MOST_POINTS, ALL_POINTS // (3 * len(rows))))
    grids: dict[tuple[float, ...], int] = {}  # what lies along the x axis; most runs log the same steps
    runs = [
        {
            "name": row["run"],
            "cell": places[row["model"], row["train_size"]],
            "settings": values,
            "curves": {
                name: [grids.setdefault(tuple(xs), len(grids)), ys]
                for name, (xs, ys) in read_curves(results.run_files[row["run"]], metric.key, most)
            },
            "attention": find_attention_page(results.run_files[row["run"]], folder),
        }
        for row, values in zip(rows, settings, strict=True)
    ]
    titles = {
        "train": f"loss while training ({metric.loss})",
        "validation": f"validation loss ({metric.loss})",
        "metric": f"validation {metric.name}",
        "distance": "attention distance (pixels)",
    }
    return render(
        "compare.html.j2",
        styles=["compare.css"],
        scripts=[bundle_vega(), *map(source, SCRIPTS)],
        script_data={
            "runs": runs,
            "start": list(compared) or choose_start(cells),
            "keys": keys,
            "cells": [
                {
                    "model": model,
                    "label": f"{model}, {plural(size, metric.sized_by)}",
                    "colour": f"var(--{style[model].colour})",
                    "means": [plural(len(of_cell), "seed"), *list_means(results, of_cell, measured)],
                }
                for (model, size), of_cell in cells.items()
            ],
            "columns": ["model and size", "n", *(column.label for column in measured)],
            "gaps": [[places[a, size], places[b, size], text] for a, b, size, text in list_gaps(studies, comparable)],
            "grids": list(grids),
            "percent": metric.percent,
            "titles": titles,
            "accents": [f"var(--{accent})" for accent in ACCENTS],
            "config": with_variables(house_style()["config"]),
        },
        title=f"{join_names(list(studies))}: runs compared",
        name=join_names(list(studies)),
        about=["comparison of runs"],
        reports=[(name, link(os.path.relpath(one.files.report_path, folder))) for name, one in studies.items()],
        columns=columns,
        choices=runs_table.choices(rows),
        runs=runs_table.run_rows(results, columns, folder),
        notes=describe_studies(studies, comparable),
    )


def with_variables(config: Mapping[str, Any]) -> dict[str, Any]:
    """The theme's colours as the page's CSS has them, which change with the theme."""
    text = json.dumps(config)
    for key, colour in THEMES["light"].items():
        text = text.replace(f'"{colour}"', f'"var(--{key})"')
    return json.loads(text)


def choose_start(cells: Mapping[tuple[str, int], Rows]) -> list[str]:
    """Runs of each model with its largest training set, of every model as many."""
    largest = {model: of_cell for (model, _), of_cell in cells.items()}.values()  # the sizes ascend
    seeds = max(1, MOST_SHOWN // len(largest))
    return [row["run"] for of_cell in largest for row in of_cell[:seeds]][:MOST_SHOWN]


def list_means(results: Results, rows: Rows, columns: Sequence[Column]) -> Iterator[str]:
    """Of the seeds of a model at a size each column's mean ± standard deviation, the main metric's as in its table."""
    cell = results.by_model[rows[0]["model"]].get(rows[0]["train_size"])
    for column in columns:
        values = [value for row in rows if (value := finite(row.get(column.key))) is not None]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        if column.key == results.metric.key and cell:
            yield cell_text(cell, results.metric, False, "")
        else:
            text = column.text(float(np.mean(values)) if values else None)
            yield f"{text} ± {column.text(spread)}" if spread else text


def list_gaps(studies: Studies, comparable: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, str, int, str]]:
    """(model, model, size, who leads by how much with its 95% interval) of the models of a study or of two."""
    for pair in [(name,) for name in studies] + [*comparable]:
        some = merge_studies({name: studies[name] for name in pair})
        at = f"{pair[0]}/" if len(studies) > 1 and len(pair) == 1 else ""
        for size in some.sizes:
            here = {model: of_sizes[size].mean for model, of_sizes in some.by_model.items() if size in of_sizes}
            best = sorted(here, key=lambda model, here=here: some.metric.lead(here[model], 0.0), reverse=True)
            for models in combinations(best[:MOST_MODELS], 2):
                if len(pair) == 1 or len({model.startswith(f"{pair[0]}/") for model in models}) > 1:
                    (comparison,) = compare_sizes(some, {f"{at}{model}": {size: model} for model in models}).values()
                    yield f"{at}{models[0]}", f"{at}{models[1]}", size, describe_lead(comparison, some.metric)


def list_comparable(studies: Studies) -> list[tuple[str, str]]:
    """Pairs of studies that measure the same metric on the same test items."""
    tested = {name: identify_test(results) for name, results in studies.items() if len(studies) > 1}
    return [(a, b) for a, b in combinations(tested, 2) if tested[a] and tested[a] == tested[b]]


def identify_test(results: Results) -> tuple[Any, ...] | None:
    """The metric, the data and the test items of a study; None where they are not known or differ."""
    contents = {run.files.contents() for run in results.run_files.values()}
    items = {(row.get("holdout"), row.get("test_items")) for row in results.rows}
    known = len(contents) == len(items) == 1 and None not in contents
    return (results.metric.key, contents, items) if known else None


def describe_studies(studies: Studies, comparable: Sequence[tuple[str, ...]]) -> list[str]:
    """What the numbers of each study are, and of which models there is no difference."""
    said: dict[str, list[str]] = {}
    for name, results in studies.items():
        compared = compare_sizes(results, {model: dict.fromkeys(of, model) for model, of in results.by_model.items()})
        text = describe_numbers(results, list(compared.values())) if results.rows else "No run has finished yet."
        if any(sum(size in of for of in results.by_model.values()) > MOST_MODELS for size in results.sizes):
            text += f" Differences are those of the best {MOST_MODELS} models at each size."
        said.setdefault(text, []).append(name)
    notes = [f"{join_names(names)}: {text}" if len(said) > 1 else text for text, names in said.items()]
    for pair in combinations(studies, 2):
        if pair not in comparable:
            notes.append(
                f"{join_names([*pair])}: not the same metric, data and test items, so no differences between them."
            )
    return notes


def find_differences(configs: list[dict[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The keys in which some run differs from another, and each run's values of them."""
    all_keys = dict.fromkeys(key for config in configs for key in config)
    keys = [key for key in all_keys if len({config.get(key, DASH) for config in configs}) > 1]
    return keys, [[config.get(key, DASH) for key in keys] for config in configs]


def read_curves(
    run: RunResults, metric: str, most: int
) -> Iterator[tuple[str, tuple[list[float], list[float | None]]]]:
    """The losses and the metric by step, and the attention distance by layer, mean over heads; only what there is."""
    keys = {"train": "train/loss", "validation": "validation/loss", "metric": f"validation/{metric}"}
    for name, key in keys.items() if metric != "loss" else list(keys.items())[:2]:
        if points := [(row["step"], row[key]) for row in run.metrics if key in row]:
            yield name, thin(points, most)
    by_layer: dict[int, list[float]] = {}
    for row in (run.last_analysis("attention_distance") or {"rows": []})["rows"]:
        if finite(row["value"]) is not None:
            by_layer.setdefault(row["layer"], []).append(row["value"])
    if by_layer:
        yield "distance", thin([(layer, float(np.mean(by_layer[layer]))) for layer in sorted(by_layer)], most)


def thin(points: Sequence[tuple[float, Any]], most: int) -> Curve:
    """At most so many points, each the mean of neighbors at the last one's place; None where one is not finite."""
    starts = np.arange(0, len(points), -(-len(points) // most))
    ends = np.append(starts[1:], len(points))
    means = np.add.reduceat(np.array([y for _, y in points], dtype=float), starts) / (ends - starts)
    return [points[end - 1][0] for end in ends], [float(f"{y:.4g}") if math.isfinite(y) else None for y in means]


def find_attention_page(run: RunResults, folder: Path) -> str | None:
    """The address of a run's page of attention maps, where it has one."""
    home = run.files.folder
    for page in (home.parent / "attention" / f"{home.name}.html", home / "analysis" / "trained" / "attention.html"):
        if page.is_file():
            return link(os.path.relpath(page, folder))
    return None
