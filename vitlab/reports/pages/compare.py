"""Two runs of a study side by side: `compare.html` in its folder, any two chosen on the page or by its address."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitlab.config.identity import WITHOUT_EFFECT, drop_keys
from vitlab.files import write_text
from vitlab.formatting import DASH, count, finite, whole
from vitlab.reports.figures.learning_curves import thin
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.pages import map_payload, runs_table
from vitlab.reports.pages.image_attention import FOLDER, command
from vitlab.reports.pages.render import render, source
from vitlab.reports.pages.runs_table import Column
from vitlab.reports.pages.urls import folder_link, link
from vitlab.reports.results import provenance
from vitlab.reports.results.run_results import AttentionMaps, RunResults
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.metrics import METRICS

Rows = list[dict[str, Any]]
SCRIPTS = ("theme_button.js", "packed.js", "layer_slider.js", "maps_view.js", "line_chart.js")
SCRIPTS += ("compare_pictures.js", "compare.js")
RATIOS = ("train_size", "params", "steps", "train_flops", "images_per_s", "wall_s")  # compared by a factor
MOST = 1_200_000  # bytes of maps in the page, of all runs: further ones have no pictures in it
MOST_PICTURES = 200_000  # bytes of the maps of one run: further pictures are left out


def write_compare_page(results: StudyResults) -> Path | None:
    """Write the page of a study; gives its path, None for less than two runs. Raises UserError."""
    path = results.files.folder / "compare.html"
    if len(results.rows) < 2:
        path.unlink(missing_ok=True)  # of more runs that were there once
        return None
    write_text(path, page(results))
    return path


def page(results: StudyResults) -> str:
    """The whole document."""
    rows, metric = results.rows, results.metric
    maps, sets = packed_maps(results)
    keys, settings = differing([flat(drop_keys(run.config, WITHOUT_EFFECT)) for run in results.runs.values()])
    columns = [Column("params", "parameters", count), Column("steps", "steps", whole), *runs_table.columns(rows)]
    curves = [curves_of(run, metric.key) for run in results.runs.values()]
    distances = [distances_of(run) for run in results.runs.values()]
    style = looks(families(rows))
    runs = [
        {
            "name": row["run"],
            "folder": folder_link(row["run"]),
            "colour": style[row["model"]].colour_key,
            "settings": values,
            "numbers": [[column.text(row.get(column.key)), finite(row.get(column.key))] for column in columns],
            "curves": curve,
            "distances": distance,
            "lacks_attention": results.runs[row["run"]].lacks_attention,
            "maps": found,
        }
        for row, values, curve, distance, found in zip(rows, settings, curves, distances, maps, strict=True)
    ]
    first, second = starting(rows)
    return render(
        "compare.html.j2",
        styles=["maps.css", "compare.css"],
        scripts=[source(name) for name in SCRIPTS],
        script_data={
            "runs": runs,
            "start": [first, second],
            "keys": keys,
            "columns": [{"label": column.label, "kind": kind(column.key)} for column in columns],
            "percent": metric.percent,
            "sets": sets,
            "shades": map_payload.shade_table(),
        },
        name=results.name,
        by_model={model: [row["run"] for row in rows if row["model"] == model] for model in families(rows)},
        distances=any(distances),
        metric=None if metric.key == "loss" else metric.name,
        gradient=map_payload.shade_gradient(),
    )


def starting(rows: Rows) -> tuple[str, str]:
    """The two runs that the page begins with: of the first two models, else of one, at the largest size they have."""
    ordered = sorted(rows, key=lambda row: (-row["train_size"], row["seed"] or 0))
    first = next(row for row in ordered if row["model"] == rows[0]["model"])
    others = [row for row in ordered if row["model"] != first["model"]] or [row for row in ordered if row is not first]
    return first["run"], others[0]["run"]


def kind(key: str) -> str:
    """How two numbers of a column are compared: by a factor, in percentage points, by their difference, not at all."""
    if key in RATIOS:
        return "ratio"
    if key == "seed":
        return ""
    return "points" if any(metric.key == key and metric.percent for metric in METRICS) else "difference"


def flat(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """The leaves of a configuration by their dotted keys, as text."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = provenance.format_value(value) or "none"  # of an empty list
    return found


def differing(configs: list[dict[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The keys in which some run differs from another, and each run's values of them."""
    every = dict.fromkeys(key for config in configs for key in config)
    keys = [key for key in every if len({config.get(key, DASH) for config in configs}) > 1]
    return keys, [[config.get(key, DASH) for key in keys] for config in configs]


def curves_of(run: RunResults, metric: str) -> dict[str, list[list[float | None]]]:
    """`{"train", "heldout", "metric"}`, each `[steps, values]`, thinned; what was not logged is left out.

    `metric` is the study's; where that is the loss it is there already.
    """
    found = {}
    for name, key in (("train", "train/loss"), ("heldout", "heldout/loss"), ("metric", f"heldout/{metric}")):
        points = thin([[(one["step"], finite(one[key])) for one in run.metrics if key in one]])
        if any(point.mean is not None for point in points) and not (name == "metric" and metric == "loss"):
            found[name] = [[point.step for point in points], [point.mean for point in points]]
    return found


def distances_of(run: RunResults) -> list[list[float]] | None:
    """The attention distance of each head, a list per layer; None where it was not measured."""
    found = run.last_analysis("attention_distance")
    if found is None:
        return None
    layers: dict[int, list[float]] = {}
    for one in found["rows"]:
        if (value := finite(one["value"])) is not None:
            layers.setdefault(one["layer"], []).append(value)
    return [layers[layer] for layer in sorted(layers)]


def packed_maps(results: StudyResults) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of each run its maps, the mean over the heads, or `{"why", "command"}`; and the sets of pictures they are of.

    A set is `{"pictures", "count"}`: as many as some run has maps of in the page, and how many there were. The runs on
    the largest training sets come first, as far as `MOST` allows. Raises UserError.
    """
    found: dict[str, dict[str, Any]] = {}
    sets: dict[str, dict[str, Any]] = {}
    total = 0
    for row in sorted(results.rows, key=lambda row: (-row["train_size"], row["seed"] or 0)):
        run = row["run"]
        maps = results.runs[run].attention_maps()
        if maps is None:
            found[run] = absent(results, run)
            continue
        mean = maps.maps.mean(axis=2)
        shown = map_payload.fitting(MOST_PICTURES, mean)
        size = mean[:shown].size
        if total + size > MOST:
            found[run] = {"why": "has maps, but they are left out to keep this page small", "address": address(run)}
            continue
        total += size
        key = digest(maps)
        of_set = sets.setdefault(key, {"pictures": [], "count": len(maps.pictures)})
        if len(of_set["pictures"]) < shown:
            of_set["pictures"] = map_payload.pictures(maps, shown)
        found[run] = {
            "set": list(sets).index(key),
            "pictures": shown,
            "layers": mean.shape[1],
            "grid": mean.shape[2:],
            "reads": "class token" if maps.class_token else "mean over the patches",
            "address": address(run),
            **map_payload.rows_of(mean[:shown]),
        }
    return [found[run] for run in results.runs], list(sets.values())


def address(run: str) -> str:
    """The run's own page of attention."""
    return link(FOLDER, f"{run}.html")


def digest(maps: AttentionMaps) -> str:
    """What tells sets of pictures apart: the runs of a study look at the same ones."""
    whole = hashlib.sha256(maps.pictures.tobytes())
    whole.update(repr((maps.pictures.shape, maps.names)).encode())
    return whole.hexdigest()


def absent(results: StudyResults, run: str) -> dict[str, str]:
    """Why a run has no maps, and the command that makes them where it can have some."""
    texts = results.runs[run].reads_text
    if results.runs[run].lacks_attention:
        return {"why": "has no attention" if texts else "has no attention over patches"}
    if texts:
        return {"why": "attends to tokens, not to patches"}
    return {"why": "has no maps of its attention yet", "command": command(results.files, run)}
