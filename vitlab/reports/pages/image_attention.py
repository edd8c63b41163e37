"""A page per run with the attention maps of its layers: `attention/<run>.html` in the study's folder.

Shapes: B images, L layers, H heads, gy x gx patches.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from vitlab.config import printable
from vitlab.files import write_text
from vitlab.formatting import DASH, finite, plural, significant
from vitlab.reports.pages import map_payload
from vitlab.reports.pages.render import render, source
from vitlab.reports.urls import link
from vitlab.studies.results import MAPS, AttentionMaps, Results
from vitlab.studies.store import StudyFiles

Rows = list[dict[str, Any]]
FOLDER = "attention"
SCRIPTS = ("theme_button.js", "packed.js", "layer_slider.js", "maps_view.js", "attention_pictures.js")
MEASURES = {  # analyses with a number per head -> the title of their column
    "attention_distance": "distance",
    "attention_entropy": "entropy",
    "head_types": "type",
}
MOST = 1_000_000  # bytes of maps in a page; further images are left out
CHART = (240, 110)  # pixels: width and height of the plotting area


@dataclass(frozen=True)
class Group:
    """A model's line in the report: links to its runs' pages, or why there are none."""

    model: str
    pages: list[tuple[str, str]]  # label, address
    note: str = ""
    command: str = ""


def write_attention_pages(results: Results) -> list[Group]:
    """Write the page of each run that has maps; return a group per model for the report. Raises UserError."""
    addresses = {run: page_link(run) for run in results.run_files if write_page(results, run)}
    models = groupby(results.rows, key=lambda row: row["model"])
    return [make_group(results, model, list(rows), addresses) for model, rows in models]


def page_link(run: str) -> str:
    return link(FOLDER, f"{run}.html")


def write_page(results: Results, run: str) -> bool:
    """Write a run's page if it has maps; return whether it has. Only one run's maps are in memory at a time."""
    maps = results.run_files[run].attention_maps()
    if maps is None:
        return False
    measured = {name: results.run_files[run].last_analysis(name) for name in MEASURES}
    text = render_page(results.files, run, maps, measured, comparable=len(results.rows) > 1)
    write_text(results.files.folder / FOLDER / f"{run}.html", text)
    return True


def make_group(results: Results, model: str, rows: Rows, addresses: dict[str, str]) -> Group:
    """The report's line about a model's runs."""
    study, unit = results.files, results.metric.sized_by
    named = {row["run"]: f"{plural(row['train_size'], unit)}, seed {row['seed']}" for row in rows}
    pages = [(label, addresses[run]) for run, label in named.items() if run in addresses]
    if pages:
        return Group(model, pages)
    run = rows[-1]["run"]
    lacks = results.run_files[run].lacks_attention
    if results.run_files[run].reads_text:
        return Group(model, [], "has no attention.") if lacks else make_text_group(study, model, named)
    if lacks:
        fields = [(f"receptive fields, {label}", find_receptive_field(results, run)) for run, label in named.items()]
        return Group(
            model, [(label, address) for label, address in fields if address], "has no attention over patches."
        )
    return Group(model, [], "has no attention page yet.", format_command(study, run))


def make_text_group(study: StudyFiles, model: str, named: dict[str, str]) -> Group:
    """The pages that `vitlab analyze` wrote for a text model's runs, or the command that writes them."""
    parts = ("analysis", "trained", "attention.html")
    there = {run: label for run, label in named.items() if study.run(run).folder.joinpath(*parts).is_file()}
    if there:
        return Group(model, [(label, link(run, *parts)) for run, label in there.items()])
    return Group(model, [], "has no attention page yet.", format_command(study, list(named)[-1], ""))


def find_receptive_field(results: Results, run: str) -> str | None:
    """The link to the picture of a run's receptive fields, None without one."""
    path = results.run_files[run].find_file("receptive_field.png")
    return None if path is None else link(*path.relative_to(results.files.folder).parts)


def format_command(study: StudyFiles, run: str, analyses: str = MAPS) -> str:
    """The command that adds analyses of a run ("" for all) to the pages; run it where the study was started."""
    analyze = f"vitlab analyze {shlex.quote(study.path_from_start(run))} {analyses}".rstrip()
    return f"{analyze} && vitlab report {shlex.quote(study.path_from_start())}"


def render_page(
    study: StudyFiles, run: str, maps: AttentionMaps, measured: dict[str, dict[str, Any] | None], comparable: bool
) -> str:
    """The whole document of a run. `comparable`: whether the study has a page that compares runs."""
    count, layers, heads, *grid = maps.maps.shape
    shown = map_payload.count_fitting(MOST, maps.maps, maps.rollout)
    pictures = map_payload.encode_pictures(maps, shown)
    analyses = {name: analysis for name, analysis in measured.items() if analysis is not None}
    up = "../" * len(Path(run).parts)
    return render(
        "attention_pictures.html.j2",
        styles=["maps.css", "attention_pictures.css"],
        scripts=[source(name) for name in SCRIPTS],
        script_data={
            "grid": grid,
            "layers": layers,
            "heads": heads,
            "names": [picture["name"] for picture in pictures],
            "maps": map_payload.quantize_maps(maps.maps[:shown]),
            "rollout": map_payload.quantize_maps(maps.rollout[:shown]),
            "shades": map_payload.encode_shades(),
        },
        run=run,
        report=f"{up}report.html",
        compare=f"{up}compare.html#a={link(run)}" if comparable else None,
        size=f"{plural(layers, 'layer')}, {plural(heads, 'head')} each",
        class_token=maps.class_token,
        grid=grid,
        layers=layers,
        heads=heads,
        pictures=pictures,
        left_out=count - shown,
        gradient=map_payload.format_gradient(),
        columns=[(name, format_column_title(name, analysis)) for name, analysis in analyses.items()],
        table=make_table(analyses),
        charts=[make_chart(name, analysis, layers) for name, analysis in analyses.items() if name != "head_types"],
        missing=[name for name in MEASURES if name not in analyses],
        command=format_command(study, run, " ".join(name for name in MEASURES if name not in analyses)),
    )


def format_column_title(name: str, analysis: dict[str, Any]) -> str:
    """`distance (pixels)`"""
    unit = str(analysis.get("unit") or "")
    return MEASURES[name] if name == "head_types" or not unit else f"{MEASURES[name]} ({printable(unit)})"


def make_table(analyses: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per head of every layer: `{"layer", "head", "cells"}`, a cell for each measure that is there."""
    cells = {
        name: {(row["layer"], row["head"]): format_cell(name, row) for row in analysis["rows"]}
        for name, analysis in analyses.items()
    }
    heads = sorted({place for of_measure in cells.values() for place in of_measure})
    return [
        {"layer": layer, "head": head, "cells": [of_measure.get((layer, head), DASH) for of_measure in cells.values()]}
        for layer, head in heads
    ]


def format_cell(name: str, row: dict[str, Any]) -> str:
    """A head's number, or its type with the score."""
    value = significant(row["value"])
    return f"{printable(str(row.get('type', DASH)))} {value}" if name == "head_types" else value


def make_chart(name: str, analysis: dict[str, Any], layers: int) -> dict[str, Any]:
    """A point per head against the layer: coordinates in pixels from the upper left."""
    width, height = CHART
    values = [(row["layer"], finite(row["value"])) for row in analysis["rows"]]
    most = max((value for _, value in values if value is not None), default=0) or 1
    across = {layer: width * (layer - 0.5) / layers for layer in range(1, layers + 1)}
    return {
        "title": format_column_title(name, analysis),
        "most": significant(most),
        "width": width,
        "height": height,
        "band": round(width / layers, 1),
        "columns": [
            {
                "layer": layer,
                "x": round(x, 1),
                "points": [round(height * (1 - v / most), 1) for at, v in values if at == layer and v is not None],
            }
            for layer, x in across.items()
        ],
        "alt": describe_chart(values, layers, str(analysis.get("unit") or "")),
    }


def describe_chart(values: Sequence[tuple[int, float | None]], layers: int, unit: str) -> str:
    """The mean over the heads of the first and the last layer."""
    means = []
    for layer in dict.fromkeys((1, layers)):
        here = [value for at, value in values if at == layer and value is not None]
        if here:
            means.append(f"{significant(sum(here) / len(here))} {unit} in layer {layer}")
    return f"Mean over the heads: {', '.join(means)}."
