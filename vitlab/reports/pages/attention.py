"""Pages of attention: of a run over pictures, `attention/<run>.html` in the study's folder, and of texts over tokens.

Shapes: B images, L layers, H heads, gy x gx patches. All heads of a text at once, and one as a heat map, are after
BertViz (Vig, 2019, arXiv 1906.05714).
"""

import base64
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vitlab.config import printable
from vitlab.files import write_text
from vitlab.formatting import DASH, finite, link, plural, significant
from vitlab.reports.figures.cells import SHADES
from vitlab.reports.figures.theme import ACCENTS
from vitlab.reports.pages.render import draw_picture, render, source
from vitlab.studies.results import MAPS, AttentionMaps, Results
from vitlab.studies.store import StudyFiles

Rows = list[dict[str, Any]]
MEASURES = {  # analyses with a number per head -> the title of their column
    "attention_distance": "distance",
    "attention_entropy": "entropy",
    "head_types": "type",
}
SCRIPTS = ("theme_button.js", "table.js", "maps.js", "attention.js")
MOST = 1_000_000  # bytes of maps in a page of pictures; further images are left out
SHOWN = 60  # letters of a text's name
LEVELS = 255  # a row's largest value, in the page's whole numbers


# ---- what the report links to


@dataclass(frozen=True)
class Group:
    """A model's line in the report: links to its runs' pages, or why there are none."""

    model: str
    pages: list[tuple[str, str]]  # label, address
    note: str = ""
    command: str = ""


def write_attention_pages(results: Results) -> list[Group]:
    """Write the page of each run that has maps; return a group per model for the report. Raises UserError."""
    written = {run for run in results.run_files if write_page(results, run)}
    models = groupby(results.rows, key=lambda row: row["model"])
    return [make_group(results, model, list(rows), written) for model, rows in models]


def make_group(results: Results, model: str, rows: Rows, written: set[str]) -> Group:
    pages, last = list(link_pages(results, rows, written)), results.run_files[rows[-1]["run"]]
    if last.lacks_attention and not any(row["run"] in written for row in rows):
        return Group(model, pages, "has no attention." if last.reads_text else "has no attention over patches.")
    if pages:
        return Group(model, pages)
    command = format_command(results.files, rows[-1]["run"], "" if last.reads_text else MAPS)
    return Group(model, [], "has no attention page yet.", command)


def link_pages(results: Results, rows: Rows, written: set[str]) -> Iterator[tuple[str, str]]:
    """(label, address) of a run's page: of a text model by `vitlab analyze`, without attention of receptive fields."""
    for row in rows:
        run = results.run_files[row["run"]]
        label = f"{plural(row['train_size'], results.metric.sized_by)}, seed {row['seed']}"
        fields = "receptive_field.png" if run.lacks_attention else ""
        if row["run"] in written:
            yield label, page_link(row["run"])
        elif path := run.find_file("attention.html" if run.reads_text else fields):
            address = link(*path.relative_to(results.files.folder).parts)
            yield label if run.reads_text else f"receptive fields, {label}", address


def page_link(run: str) -> str:
    return link("attention", f"{run}.html")


def format_command(study: StudyFiles, run: str, analyses: str = MAPS) -> str:
    """The command that adds analyses of a run ("" for all) to the pages; run it where the study was started."""
    analyze = f"vitlab analyze {shlex.quote(study.path_from_start(run))} {analyses}".rstrip()
    return f"{analyze} && vitlab report {shlex.quote(study.path_from_start())}"


# ---- pictures


def write_page(results: Results, run: str) -> bool:
    """Write a run's page if it has maps; return whether it has. Only one run's maps are in memory at a time."""
    maps = results.run_files[run].attention_maps()
    if maps is None:
        return False
    count, layers, heads, *grid = maps.maps.shape
    shown = count_fitting(MOST, maps.maps, maps.rollout)
    pictures = encode_pictures(maps, shown)
    found = {name: results.run_files[run].last_analysis(name) for name in MEASURES}
    analyses = {name: analysis for name, analysis in found.items() if analysis is not None}
    missing = [name for name in MEASURES if name not in analyses]
    text = render_page(
        [
            {
                "name": pictures[place]["name"],
                "layers": [
                    {"grid": grid, "attention": quantize(one.reshape(heads, -1)), "rollout": quantize(rollout.ravel())}
                    for one, rollout in zip(maps.maps[place], maps.rollout[place], strict=True)
                ],
            }
            for place in range(shown)
        ],
        [f"layer {layer} of {layers}" for layer in range(1, layers + 1)],
        [heads] * layers,
        list_heads(analyses),
        list_columns(analyses),
        title=f"Attention maps: {run}",
        name="Attention maps",
        heading=run,
        up="../" * len(Path(run).parts),
        compare=f"compare.html#{link(run)}" if len(results.rows) > 1 else "",
        class_token=maps.class_token,
        grid=grid,
        pictures=pictures,
        left_out=count - shown,
        missing=missing,
        command=format_command(results.files, run, " ".join(missing)),
    )
    write_text(results.files.folder / "attention" / f"{run}.html", text)
    return True


def list_heads(analyses: Mapping[str, Mapping[str, Any]]) -> Rows:
    """A row per head of every layer, with a cell for each measure: its number, for a type with the name."""
    cells: dict[tuple[int, int], dict[str, tuple[str, float | None]]] = {}
    for name, analysis in analyses.items():
        for row in analysis["rows"]:
            of_head = cells.setdefault((row["layer"], row["head"]), dict.fromkeys(analyses, (DASH, None)))
            text = f"{printable(str(row.get('type', '')))} {significant(row['value'])}"
            of_head[name] = text.strip(), finite(row["value"])
    return [
        {"layer": layer, "head": head, "label": "", "cells": list(of_head.values())}
        for (layer, head), of_head in sorted(cells.items())
    ]


def list_columns(analyses: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The title of each measure's column, such as `distance (pixels)`, and its largest number."""
    columns = {}
    for name, analysis in analyses.items():
        unit = "" if name == "head_types" else printable(str(analysis.get("unit") or ""))
        most = max(finite(row["value"]) or 0 for row in analysis["rows"])
        columns[f"{MEASURES[name]} ({unit})" if unit else MEASURES[name]] = most or 1
    return columns


def count_fitting(most: int, *arrays: np.ndarray) -> int:
    """How many images fit: the arrays (B, ...) take one byte per value and at most `most` bytes; at least one image."""
    return max(1, min(len(arrays[0]), most // sum(array[0].size for array in arrays)))


def encode_pictures(maps: AttentionMaps, count: int) -> list[dict[str, str]]:
    """`{"src", "name"}` of the first images."""
    shown = zip(maps.pictures[:count], maps.names[:count], strict=True)
    return [{"src": draw_picture(image), "name": printable(name)} for image, name in shown]


# ---- texts


def pack_text(
    words: Mapping[str, Sequence[str]],
    layers: Mapping[str, Sequence[tuple[ArrayLike, str, str]]],
    segments: Sequence[int] | None = None,
    name: str = "",
) -> dict[str, Any]:
    """A text for `write_text_page`: lists of tokens by name, one of them `tokens`, and the weights of its layers.

    By the name of a part of the model `layers` has the weights (heads, queries, keys) of each of its layers, and which
    lists attend and are attended to. `segments` are those of `tokens`, after which the text is named if it has no name.
    """
    tokens = {
        which: [printable(token).replace(" ", "\N{OPEN BOX}") or "\N{EMPTY SET}" for token in some]
        for which, some in words.items()
    }
    name = printable(name) or " ".join(tokens["tokens"])
    packed = {
        f"{part} {number}": {  # each query's row by its own largest: a causal model's first has one key of weight 1
            "grid": [len(tokens[queries]), len(tokens[keys])],
            "queries": queries,
            "keys": keys,
            "heads": len(weights),
            "attention": quantize(weights),
        }
        for part, some in layers.items()
        for number, (weights, queries, keys) in enumerate(some, 1)
    }
    return {
        "name": name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}",
        "tokens": tokens,
        "segments": segments,
        "names": list(packed),
        "layers": list(packed.values()),
    }


def write_text_page(path: Path, title: str, texts: Rows, heads: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Write the page of one or more packed texts, all of one model; return its path.

    `heads` are the labels of the heads: rows of `vitlab.analysis.head_patterns.HeadPatterns`. A weight in the page is
    off by at most 1/510 of its query's largest; a text takes 4/3 bytes per layer, head, query and key.
    """
    from vitlab.analysis.head_patterns import PATTERNS  # imports torch, which pages of pictures do without

    rows = []
    for row in heads:
        scores = [finite(row["scores"].get(pattern)) for pattern in PATTERNS]
        cells = [(DASH if score is None else f"{score:.2f}", score) for score in scores]
        rows.append({**row, "label": str(row["label"]), "score": f"{row['score']:.2f}", "cells": cells})
    text = render_page(
        texts,
        texts[0]["names"],
        [layer["heads"] for layer in texts[0]["layers"]],
        rows,
        dict.fromkeys(PATTERNS, 1),
        title=printable(title),
        name="Attention between tokens",
        heading=printable(title),
        texts=[text["name"] for text in texts],
        by_head={(row["layer"], row["head"]): row["label"] for row in rows},
        patterns=PATTERNS,
        accents=dict(zip(PATTERNS, ACCENTS, strict=True)),
        missing=(),
    )
    write_text(path, text)
    return path


# ---- both


def render_page(
    items: Rows,
    layers: Sequence[str],
    heads: Sequence[int],
    rows: Rows,
    columns: Mapping[str, float],
    **values: Any,
) -> str:
    """The document of pictures or texts, `items` as the script reads them, with the heads of each layer.

    `rows` are of the table of heads, whose cells are (text, number); `columns` are their titles, each with the number
    that has a bar of full length.
    """
    return render(
        "attention.html.j2",
        styles=["maps.css", "attention.css"],
        scripts=[source(name) for name in SCRIPTS],
        script_data={"items": items, "layers": layers, "shades": None if "texts" in values else SHADE_TABLE},
        gradient="linear-gradient(to right, transparent, var(--vit))" if "texts" in values else GRADIENT,
        about=[f"{plural(len(layers), 'layer')}, {plural(max(heads), 'head')} each"],
        layers=layers,
        heads=heads,
        rows=rows,
        labels=list(dict.fromkeys(row["label"] for row in rows if row["label"])),
        columns=list(columns.items()),
        **values,
    )


def quantize(values: ArrayLike) -> dict[str, str]:
    """Values >= 0 (..., N) in 255ths of each row's largest, which is float32; off by at most 1/510 of it."""
    values = np.asarray(values, np.float64)
    largest = values.max(axis=-1)
    levels = np.rint(LEVELS * (values / np.where(largest > 0, largest, 1)[..., None]))
    return {"largest": encode_bytes(largest.astype("<f4")), "levels": encode_bytes(levels.astype(np.uint8))}


def encode_bytes(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


SHADE_TABLE = encode_bytes(SHADES.round().astype(np.uint8))  # 256 colours of three bytes
STOPS = ", ".join("rgb({:.0f} {:.0f} {:.0f})".format(*shade) for shade in SHADES[::15])
GRADIENT = f"linear-gradient(to right, {STOPS})"
