"""Compare any number of a study's runs, which the page's address chooses: compare.html#RUN,RUN."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import TrainConfig
from vitlab.config.groups import affecting, select
from vitlab.config.schema.fields import WEIGHTS
from vitlab.files import write_text
from vitlab.formatting import DASH, count, duration, finite, folder_link, link, plural, significant, whole, with_prefix
from vitlab.reports import ACCENTS, looks, provenance
from vitlab.reports.figures import house_style, with_variables
from vitlab.reports.figures.curves import read_curve, thin_curves
from vitlab.reports.pages import render
from vitlab.reports.words import cell_text, compare_sizes, describe_numbers
from vitlab.studies.grid import format_value
from vitlab.studies.results import Results, Rows, RunResults
from vitlab.tasks.metrics import METRICS, find_metric, main_metric

SCRIPTS = ("charts.js", "table.js", "compare.js")
FILES = (
    ("config", "config.yaml"),
    ("metrics", "metrics.jsonl"),
    ("result", "result.json"),
    ("attention", "analysis/attention_distance.json"),
    ("log", "log.txt"),
)
MOST_LINKED = 200  # runs up to which their files are linked one by one; a run's name links its folder
CHOICES = {"model": "model", "train_size": "size", "seed": "seed", "trial": "trial"}  # that narrow the table down
MOST_POINTS, LEAST_POINTS, ALL_POINTS = 200, 20, 120_000  # of a curve, of a curve of very many, and of the page
MOST_MODELS = 24  # at a size, the best ones, whose differences the page holds
MOST_SHOWN = 12  # runs that are chosen where the address chooses none


# ---- the table of runs


@dataclass(frozen=True)
class Column:
    key: str
    label: str
    text: Callable[[Any], str]


FURTHER = (  # columns that the report's table of runs has no room for
    Column("params", "parameters", count),
    Column("steps", "steps", whole),
    Column("chance", "chance", lambda value: find_metric("accuracy").text(finite(value))),
    Column("test_items", "held-out items", whole),
)


def list_columns(rows: Rows) -> list[Column]:
    """List the columns: the main metric first, then every other metric that some run has."""
    main = main_metric(rows)
    others = [m for m in METRICS if m.is_compared and m.key not in (main.key, "loss")]
    measured = [main, *(m for m in others if any(m.value(row) is not None for row in rows))]
    tuned = dict.fromkeys(key for row in rows if row.get("trial") for key in row if "." in key)
    columns = [
        Column("train_size", main.size_name or f"{main.sized_by}s", whole),
        Column("seed", "seed", whole),
        Column("source", "source", str),
        *([Column("trial", "trial", whole)] if tuned else []),
        *(Column(key, key.rpartition(".")[2], format_value) for key in tuned),
        *(Column(m.key, m.name, lambda v, m=m: m.text(finite(v))) for m in measured),
        *([Column("loss", "held-out loss", significant)] if main.key != "loss" else []),
        Column("train_loss", "train loss", significant),
        Column("train_flops", "FLOPs", lambda value: with_prefix(value, "")),
        Column("images_per_s", "examples/s", whole),
        Column("wall_s", "time", duration),
    ]
    return [column for column in columns if any(row.get(column.key) is not None for row in rows) or not rows]


def make_runs_table(results: Results, columns: list[Column], page_folder: Path) -> dict[str, Any]:
    """Make the values of runs.html.j2, with links from a page in `page_folder`; cells are (text, sort key or "")."""
    style, rows, runs = looks(results.families), results.all_rows, []
    for row in rows:
        folder = results.run_files[row["run"]].files.folder
        path, cells = os.path.relpath(folder, page_folder), []
        for column in columns:
            number = finite(row.get(column.key))
            cells.append((column.text(row.get(column.key)), "" if number is None else f"{number:.6g}"))
        linked = FILES if len(rows) <= MOST_LINKED else ()
        runs.append(
            {
                "name": row["run"],
                "href": folder_link(path),
                "exists": folder.is_dir(),
                "look": style[row["model"]],
                "chosen_by": {key: row.get(key) for key in CHOICES},
                "cells": cells,
                "files": [(label, link(path, file)) for label, file in linked if (folder / file).is_file()],
            }
        )
    choices = []
    for key, label in {**CHOICES, "train_size": results.metric.sizes}.items():
        values = dict.fromkeys(row[key] for row in rows if row.get(key) is not None)
        numbers = [] if key == "model" else [(value, whole(value)) for value in sorted(values)]
        if len(values) > 1:
            choices.append((key, label, numbers or [(model, model) for model in values]))
    return {"columns": columns, "choices": choices, "runs": runs}


# ---- the page


def write_compare_page(results: Results, path: Path, compared: Sequence[str] = ()) -> Path | None:
    """Write the page, which begins with the runs `compared`; None for fewer than two runs."""
    if len(results.all_rows) < 2:
        path.unlink(missing_ok=True)  # of an earlier report with more runs
        return None
    folder, rows, metric = path.parent, results.rows, results.metric
    columns = [*list_columns(rows), *(column for column in FURTHER if any(column.key in row for row in rows))]
    measured = [column for column in columns if column.key not in CHOICES]
    cells: dict[tuple[str, int], Rows] = {}
    for row in sorted(rows, key=lambda row: row["train_size"]):
        cells.setdefault((row["model"], row["train_size"]), []).append(row)
    places = {cell: place for place, cell in enumerate(cells)}
    largest = {model: of_cell for (model, _), of_cell in cells.items()}.values()  # the sizes ascend
    seeds = max(1, MOST_SHOWN // len(largest))  # where the address chooses none, as many of every model
    style = looks(results.families)
    affect, of_runs = affecting(WEIGHTS), results.run_files.values()
    settings = [select(run.config, TrainConfig, affect) or run.result.get("settings") or {} for run in of_runs]
    settings = [provenance.flatten(of_run) for of_run in settings]
    keys = dict.fromkeys(key for of_run in settings for key in of_run)
    keys = [key for key in keys if len({of_run.get(key, DASH) for of_run in settings}) > 1]
    most = max(LEAST_POINTS, min(MOST_POINTS, ALL_POINTS // (3 * len(results.all_rows))))
    grids: dict[tuple[float, ...], int] = {}  # what lies along the x axis; most runs log the same steps
    runs = []
    for row, of_run, run in zip(results.all_rows, settings, of_runs, strict=True):
        curves, home = read_curves(run, metric.key, most), run.files.folder
        pages = home.parent / "attention" / f"{home.name}.html", home / "analysis" / "trained" / "attention.html"
        runs.append(
            {
                "name": row["run"],
                "cell": places[row["model"], row["train_size"]],
                "settings": [of_run.get(key, DASH) for key in keys],
                "curves": {name: [grids.setdefault(tuple(xs), len(grids)), ys] for name, xs, ys in curves},
                "attention": next((link(os.path.relpath(page, folder)) for page in pages if page.is_file()), None),
            }
        )
    titles = {
        "train": f"loss while training ({metric.loss})",
        "validation": f"validation loss ({metric.loss})",
        "metric": f"validation {metric.name}",
        "distance": "attention distance (pixels)",
    }
    differences = compare_sizes(results, {model: dict.fromkeys(of, model) for model, of in results.by_model.items()})
    note = describe_numbers(results, list(differences.values()), "Difference")
    if any(sum(size in of for of in results.by_model.values()) > MOST_MODELS for size in results.sizes):
        note += f" Differences are those of the best {MOST_MODELS} models at each size."
    text = render(
        "compare.html.j2",
        styles=["compare.css"],
        scripts=["vega", *SCRIPTS],
        script_data={
            "runs": runs,
            "start": list(compared) or [row["run"] for some in largest for row in some[:seeds]][:MOST_SHOWN],
            "keys": keys,
            "cells": [
                {
                    "model": model,
                    "label": f"{model}, {metric.sized(size)}",
                    "colour": f"var(--{style[model].colour})",
                    "means": [plural(len(of_cell), "seed"), *list_means(results, of_cell, measured)],
                }
                for (model, size), of_cell in cells.items()
            ],
            "columns": ["model and size", "n", *(column.label for column in measured)],
            "gaps": [[places[a, size], places[b, size], text] for a, b, size, text in list_gaps(results)],
            "grids": list(grids),
            "percent": metric.percent,
            "titles": titles,
            "accents": [f"var(--{accent})" for accent in ACCENTS],
            "config": with_variables(house_style()["config"]),
        },
        title=f"{results.name}: runs compared",
        name=results.name,
        about=["comparison of runs"],
        note=note,
        **make_runs_table(results, columns, folder),
    )
    write_text(path, text)
    return path


def list_means(results: Results, rows: Rows, columns: Sequence[Column]) -> Iterator[str]:
    """Yield each column's mean ± standard deviation over a cell's seeds; the main metric's as in its table."""
    cell = results.by_model[rows[0]["model"]].get(rows[0]["train_size"])
    for column in columns:
        values = [value for row in rows if (value := finite(row.get(column.key))) is not None]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        text = column.text(float(np.mean(values)) if values else None)
        text = f"{text} ± {column.text(spread)}".replace("% ±", " ±") if spread else text
        if column.key == results.metric.key and cell:
            text = cell_text(cell._replace(undertrained=False), results.metric, False)
        yield text


def list_gaps(results: Results) -> Iterator[tuple[str, str, int, str]]:
    """Yield (model, model, size, who leads by how much with its 95% interval) of the best models at each size."""
    for size in results.sizes:
        here = {model: of_sizes[size].mean for model, of_sizes in results.by_model.items() if size in of_sizes}
        best = sorted(here, key=lambda model, here=here: results.metric.lead(here[model], 0.0), reverse=True)
        for models in combinations(best[:MOST_MODELS], 2):
            (comparison,) = compare_sizes(results, {model: {size: model} for model in models}).values()
            yield *models, size, comparison.lead


def read_curves(run: RunResults, metric: str, most: int) -> Iterator[tuple[str, list[float], list[float | None]]]:
    """Yield (name, x, y) of the losses and the metric by step, and of the attention distance by layer, if known."""
    keys = {"train": "train/loss", "validation": "validation/loss", "metric": f"validation/{metric}"}
    curves = {name: read_curve(run.metrics, key) for name, key in keys.items() if (name, metric) != ("metric", "loss")}
    by_layer: dict[int, list[float]] = {}
    for row in (run.last_analysis("attention_distance") or {"rows": []})["rows"]:
        if finite(row["value"]) is not None:
            by_layer.setdefault(row["layer"], []).append(row["value"])
    curves["distance"] = [(layer, float(np.mean(by_layer[layer]))) for layer in sorted(by_layer)]  # mean over heads
    for name, curve in curves.items():
        if points := thin_curves([curve], most):
            yield name, [step for step, *_ in points], [mean for _, mean, *_ in points]
