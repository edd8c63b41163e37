"""Compares two runs of a study: `compare.html` in its folder; the page or its URL chooses the runs."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitlab.config import TrainConfig
from vitlab.config.schema.fields import WEIGHTS
from vitlab.config.schema.kinds import affecting, select
from vitlab.files import write_text
from vitlab.formatting import DASH, count, finite, plural, whole
from vitlab.reports import provenance
from vitlab.reports.figures.figure import Axis, Figure, Key, compose_page, draw_curves
from vitlab.reports.figures.study.training import thin_curves
from vitlab.reports.figures.theme import families, looks
from vitlab.reports.pages import attention, runs_table
from vitlab.reports.pages.render import bundle_vega, render, source
from vitlab.reports.pages.runs_table import Column
from vitlab.reports.urls import folder_link
from vitlab.studies.results import AttentionMaps, Results, RunResults
from vitlab.tasks.metrics import Metric, find_metric, list_metrics

Rows = list[dict[str, Any]]
SCRIPTS = ("theme_button.js", "maps.js", "charts.js")
SCRIPTS += ("compare_pictures.js", "compare.js")
RATIOS = ("train_size", "params", "steps", "train_flops", "images_per_s", "wall_s")  # compared as a ratio
MOST = 1_200_000  # bytes of maps in the page, all runs together; the maps of further runs are left out
OF_TEST = (
    Column("chance", "chance", lambda value: find_metric("accuracy").text(finite(value))),
    Column("test_items", "held-out items", whole),
)
MOST_GAPS = 2000  # pairs of models and sizes whose differences the page holds
MOST_PICTURES = 200_000  # bytes of maps of one run; further images are left out


def write_compare_page(results: Results) -> Path | None:
    """Write the page of a study; return its path, or None for fewer than two runs. Raises UserError."""
    path = results.files.folder / "compare.html"
    if len(results.rows) < 2:
        path.unlink(missing_ok=True)  # of an earlier report with more runs
        return None
    write_text(path, render_page(results))
    return path


def render_page(results: Results) -> str:
    """The whole document."""
    rows, metric = results.rows, results.metric
    maps, sets = pack_maps(results)
    keys, settings = find_differences(
        [provenance.flatten(select(run.config, TrainConfig, affecting(WEIGHTS))) for run in results.run_files.values()]
    )
    columns = [Column("params", "parameters", count), Column("steps", "steps", whole), *runs_table.columns(rows)]
    columns += [column for column in OF_TEST if any(column.key in row for row in rows)]
    curves = [read_curves(run, metric.key) for run in results.run_files.values()]
    distances = [read_distances(run) for run in results.run_files.values()]
    style = looks(families(rows))
    runs = [
        {
            "name": row["run"],
            "cell": describe_cell(row["model"], row["train_size"], metric),
            "folder": folder_link(row["run"]),
            "colour": style[row["model"]].colour,
            "settings": values,
            "numbers": [[column.text(row.get(column.key)), finite(row.get(column.key))] for column in columns],
            "curves": curve,
            "distances": distance,
            "lacks_attention": results.run_files[row["run"]].lacks_attention,
            "maps": run_maps,
        }
        for row, values, curve, distance, run_maps in zip(rows, settings, curves, distances, maps, strict=True)
    ]
    first, second = choose_start(rows)
    return render(
        "compare.html.j2",
        styles=["maps.css", "compare.css"],
        scripts=[bundle_vega(), *map(source, SCRIPTS)],
        script_data={
            "runs": runs,
            "start": [first, second],
            "keys": keys,
            "columns": [{"label": column.label, "kind": choose_comparison(column.key)} for column in columns],
            "percent": metric.percent,
            "metric": metric.name,
            "unit": metric.gap_unit,
            "charts": make_charts(metric),
            "gaps": dict(find_gaps(results)),
            "sets": sets,
            "shades": attention.SHADE_TABLE,
        },
        title=f"{results.name}: comparison of two runs",
        name=results.name,
        about=["comparison of two runs"],
        by_model={model: [row["run"] for row in rows if row["model"] == model] for model in families(rows)},
        distances=any(distances),
        metric=None if metric.key == "loss" else metric.name,
        gradient=attention.GRADIENT,
    )


def make_charts(metric: Metric) -> dict[str, dict[str, Any]]:
    """The charts of two runs, A and B, whose points the script puts in; the page's CSS has their colours."""
    keys = [Key("A", "vit"), Key("B", "resnet", "square", "dash")]
    step, loss = Axis("training step", zero=True, free=True), Axis(f"loss ({metric.loss})", zero=True, free=True)
    axes = {
        "train": (step, loss),
        "validation": (step, loss),
        "metric": (step, Axis(metric.name, percent=metric.percent, zero=True, free=True)),
        "distances": (Axis("layer", free=True, whole=True), Axis("attention distance (pixels)", zero=True, free=True)),
    }
    kinds = [{"mark": mark, "label": "A", "x": 0.0, "y": 0.0} for mark in ("line", "ring")]
    charts = {name: Figure(name, name, draw_curves({"": kinds}, keys, x, y)) for name, (x, y) in axes.items()}
    specs = {name: {**compose_page(chart.specs[""]), "data": {"values": []}} for name, chart in charts.items()}
    return json.loads(json.dumps(specs).replace("var(--vit)", "var(--a)").replace("var(--resnet)", "var(--b)"))


def describe_cell(model: str, size: int, metric: Metric) -> str:
    """What the seeds of one model and size share: `vit_nano with 2,000 examples`."""
    return f"{model} with {plural(size, metric.sized_by)}"


def find_gaps(results: Results) -> Iterator[tuple[str, list[float]]]:
    """The difference in the metric of two models at one size, or of two sizes of one model, second minus first.

    By the descriptions of both, joined by a line end: its mean, half its 95% interval, and the seeds and test items
    that the interval covers.
    """
    for one in results.gaps.head(MOST_GAPS).itertuples():
        gap = results.gap(one.best, one.other, one.train_size).estimate
        if gap.half_width is not None:
            for pair, sign in (((one.other, one.best), 1), ((one.best, one.other), -1)):
                key = "\n".join(describe_cell(model, one.train_size, results.metric) for model in pair)
                yield key, [sign * gap.mean, gap.half_width, gap.seeds, gap.items]


def choose_start(rows: Rows) -> tuple[str, str]:
    """The two runs shown first: of the first two models, else of one model, at their largest size."""
    ordered = sorted(rows, key=lambda row: (-row["train_size"], row["seed"] or 0))
    first = next(row for row in ordered if row["model"] == rows[0]["model"])
    others = [row for row in ordered if row["model"] != first["model"]] or [row for row in ordered if row is not first]
    return first["run"], others[0]["run"]


def choose_comparison(key: str) -> str:
    """How two numbers of a column are compared: ratio, percentage points, difference, or "" (not at all)."""
    if key in RATIOS:
        return "ratio"
    if key == "seed":
        return ""
    return "points" if any(metric.key == key and metric.percent for metric in list_metrics()) else "difference"


def find_differences(configs: list[dict[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The keys in which some run differs from another, and each run's values of them."""
    all_keys = dict.fromkeys(key for config in configs for key in config)
    keys = [key for key in all_keys if len({config.get(key, DASH) for config in configs}) > 1]
    return keys, [[config.get(key, DASH) for key in keys] for config in configs]


def read_curves(run: RunResults, metric: str) -> dict[str, list[list[float | None]]]:
    """`{"train", "validation", "metric"}`, each `[steps, values]`, thinned; what was not logged is left out.

    `metric` is the study's; where that is the loss it is there already.
    """
    curves = {}
    for name, key in (("train", "train/loss"), ("validation", "validation/loss"), ("metric", f"validation/{metric}")):
        points = thin_curves([[(row["step"], finite(row[key])) for row in run.metrics if key in row]])
        if any(point.mean is not None for point in points) and not (name == "metric" and metric == "loss"):
            curves[name] = [[point.step for point in points], [point.mean for point in points]]
    return curves


def read_distances(run: RunResults) -> list[list[float]] | None:
    """The attention distance of each head, a list per layer; None where it was not measured."""
    analysis = run.last_analysis("attention_distance")
    if analysis is None:
        return None
    layers: dict[int, list[float]] = {}
    for row in analysis["rows"]:
        if (value := finite(row["value"])) is not None:
            layers.setdefault(row["layer"], []).append(value)
    return [layers[layer] for layer in sorted(layers)]


def pack_maps(results: Results) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Each run's maps (mean over the heads) or `{"why", "command"}`, and the sets of images that they belong to.

    A set is `{"pictures", "count"}`: the images in the page, and how many the analysis had. Runs with the largest
    training sets come first, until the page holds `MOST` bytes of maps. Raises UserError.
    """
    by_run: dict[str, dict[str, Any]] = {}
    sets: dict[str, dict[str, Any]] = {}
    total = 0
    for row in sorted(results.rows, key=lambda row: (-row["train_size"], row["seed"] or 0)):
        run = row["run"]
        maps = results.run_files[run].attention_maps()
        if maps is None:
            by_run[run] = explain_missing(results, run)
            continue
        mean = maps.maps.mean(axis=2)
        shown = attention.count_fitting(MOST_PICTURES, mean)
        size = mean[:shown].size
        if total + size > MOST:
            by_run[run] = {
                "why": "has maps, which are left out to keep this page small",
                "address": attention.page_link(run),
            }
            continue
        total += size
        key = hash_pictures(maps)
        of_set = sets.setdefault(key, {"pictures": [], "count": len(maps.pictures)})
        if len(of_set["pictures"]) < shown:
            of_set["pictures"] = attention.encode_pictures(maps, shown)
        by_run[run] = {
            "set": list(sets).index(key),
            "pictures": shown,
            "layers": mean.shape[1],
            "grid": mean.shape[2:],
            "reads": "class token" if maps.class_token else "mean over the patches",
            "address": attention.page_link(run),
            **attention.quantize(mean[:shown].reshape(shown, mean.shape[1], -1)),
        }
    return [by_run[run] for run in results.run_files], list(sets.values())


def hash_pictures(maps: AttentionMaps) -> str:
    """Identifies a set of images: the runs of a study normally share one."""
    sha = hashlib.sha256(maps.pictures.tobytes())
    sha.update(repr((maps.pictures.shape, maps.names)).encode())
    return sha.hexdigest()


def explain_missing(results: Results, run: str) -> dict[str, str]:
    """Why a run has no maps, and the command that adds them where that is possible."""
    texts = results.run_files[run].reads_text
    if results.run_files[run].lacks_attention:
        return {"why": "has no attention" if texts else "has no attention over patches"}
    if texts:
        return {"why": "attends to tokens, not to patches"}
    return {"why": "has no attention maps yet", "command": attention.format_command(results.files, run)}
