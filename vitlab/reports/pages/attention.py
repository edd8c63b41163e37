"""Pages of attention: of a run over pictures, `attention/<run>.html` in the study's folder, and of texts over tokens.

A text model has heat maps of its position embeddings, too.

Shapes: B images, L layers, H heads, gy x gx patches. All heads of a text at once, and one as a heat map, are after
BertViz (Vig, 2019, arXiv 1906.05714).
"""

import base64
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vitlab.config import printable
from vitlab.files import write_text
from vitlab.formatting import DASH, finite, link, plural, significant
from vitlab.reports import ACCENTS, encode_picture
from vitlab.reports.figures import save_figure
from vitlab.reports.figures.images import SHADES, plot_positions
from vitlab.reports.pages import render
from vitlab.studies.outcomes import MAPS, Rows
from vitlab.studies.results import Results

if TYPE_CHECKING:  # pages of pictures do without torch, which takes 2 s to import
    from torch import nn

    from vitlab.analysis.alignment import TextInput
    from vitlab.data.text.tokenization import Tokenizer
    from vitlab.tasks.base import Task

# analyses with a number per head -> the title of their column
MEASURES = {"attention_distance": "distance", "attention_entropy": "entropy", "head_types": "type"}
SCRIPTS = ("table.js", "maps.js", "attention.js")
MOST = 1_000_000  # bytes of maps in a page of pictures; further images are left out
LETTERS = 60  # of a text's name
LEVELS = 255  # a row's largest value, in the page's whole numbers


# ---- what the report links to


def write_attention_pages(results: Results) -> list[dict[str, Any]]:
    """Write the page of each run that has maps. Raises UserError.

    Returns for the report each model's `model`, `pages` (label, address), and the `command` that adds pages where there
    are none; nothing of a model without attention. A text model's page is the page of `vitlab analyze`.
    """
    groups = []
    for model, rows in groupby(results.rows, key=lambda row: row["model"]):
        pages = []
        for row in rows:
            run = results.run_files[row["run"]]
            label = f"{plural(row['train_size'], results.metric.sized_by)}, seed {row['seed']}"
            other = "attention.html" if run.reads_text else "receptive_field.png" if run.lacks_attention else ""
            if write_page(results, row["run"]):
                pages.append((label, link("attention", f"{row['run']}.html")))
            elif other and (path := run.find_file(other)):
                address = link(*path.relative_to(results.files.folder).parts)
                pages.append((label if run.reads_text else f"receptive fields, {label}", address))
        command = format_command(results, row["run"], "" if run.reads_text else MAPS)
        if pages or not run.lacks_attention:
            groups.append({"model": model, "pages": pages, "command": "" if pages else command})
    return groups


def format_command(results: Results, run: str, analyses: str) -> str:
    """Format the command that adds analyses of a run ("": all) to the pages, for the folder of the study's start."""
    files = results.files
    analyze = f"vitlab analyze {shlex.quote(files.path_from_start(run))} {analyses}".rstrip()
    return f"{analyze} && vitlab report {shlex.quote(files.path_from_start())}"


# ---- pictures


def write_page(results: Results, run: str) -> bool:
    """Write a run's page if it has maps; return whether it has. Holds only one run's maps in memory at a time."""
    maps = results.run_files[run].attention_maps()
    if maps is None:
        return False
    count, layers, heads, *grid = maps.maps.shape
    of_image = maps.maps[0].size + maps.rollout[0].size  # bytes: one for each value
    shown = max(1, min(count, MOST // of_image))
    names = [printable(name) for name in maps.names[:shown]]
    found = {name: results.run_files[run].last_analysis(name) for name in MEASURES}
    analyses = {name: analysis for name, analysis in found.items() if analysis is not None}
    missing = [name for name in MEASURES if name not in analyses]
    items = []
    for name, *of_image in zip(names, maps.maps, maps.rollout, strict=False):  # the first ones, as many as are shown
        of_layers = [
            {"grid": grid, "attention": quantize(of_heads.reshape(heads, -1)), "rollout": quantize(rollout.ravel())}
            for of_heads, rollout in zip(*of_image, strict=True)
        ]
        items.append({"name": name, "layers": of_layers})
    text = render_page(
        items,
        [f"layer {layer} of {layers}" for layer in range(1, layers + 1)],
        [heads] * layers,
        *list_heads(analyses),
        title=f"Attention maps: {run}",
        name="Attention maps",
        heading=run,
        up="../" * len(Path(run).parts),
        compare=f"compare.html#{link(run)}" if len(results.rows) > 1 else "",
        class_token=maps.class_token,
        grid=grid,
        pictures=[
            {"src": encode_picture(picture), "name": name} for picture, name in zip(maps.pictures, names, strict=False)
        ],
        left_out=count - shown,
        missing=missing,
        command=format_command(results, run, " ".join(missing)),
    )
    write_text(results.files.folder / "attention" / f"{run}.html", text)
    return True


def list_heads(analyses: Mapping[str, Mapping[str, Any]]) -> tuple[Rows, dict[str, float]]:
    """List a row per head of every layer, a cell (text, number) per measure; and columns, title -> largest number."""
    cells: dict[tuple[int, int], dict[str, tuple[str, float | None]]] = {}
    columns = {}
    for name, analysis in analyses.items():
        for row in analysis["rows"]:
            of_head = cells.setdefault((row["layer"], row["head"]), dict.fromkeys(analyses, (DASH, None)))
            text = f"{printable(str(row.get('type', '')))} {significant(row['value'])}"
            of_head[name] = text.strip(), finite(row["value"])
        unit = "" if name == "head_types" else printable(str(analysis.get("unit") or ""))
        title = f"{MEASURES[name]} ({unit})" if unit else MEASURES[name]
        columns[title] = max(finite(row["value"]) or 0 for row in analysis["rows"]) or 1
    rows = [
        {"layer": layer, "head": head, "label": "", "cells": list(of_head.values())}
        for (layer, head), of_head in sorted(cells.items())
    ]
    return rows, columns


# ---- packed texts


def pack_text(
    words: Mapping[str, Sequence[str]],
    layers: Mapping[str, Sequence[tuple[ArrayLike, str, str]]],
    segments: Sequence[int] | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Pack a text for `write_text_page`: lists of tokens by name, one of them `tokens`, and the weights of its layers.

    By the name of a part of the model `layers` has the weights (heads, queries, keys) of each of its layers, and which
    lists attend and are attended to. `segments` are of `tokens`. A text without a name is named after its tokens.
    """
    tokens = {
        which: [printable(token).replace(" ", "\N{OPEN BOX}") or "\N{EMPTY SET}" for token in some]
        for which, some in words.items()
    }
    name = printable(name) or " ".join(tokens["tokens"])
    name = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    packed = {}
    for part, some in layers.items():
        for number, (weights, queries, keys) in enumerate(some, 1):
            # each query's row by its own largest: a causal model's first has one key of weight 1
            of_layer = {"grid": [len(tokens[queries]), len(tokens[keys])], "queries": queries, "keys": keys}
            packed[f"{part} {number}"] = {**of_layer, "heads": len(weights), "attention": quantize(weights)}
    of_layers = {"names": list(packed), "layers": list(packed.values())}
    return {"name": name, "tokens": tokens, "segments": segments, **of_layers}


def write_text_page(path: Path, title: str, texts: Rows, heads: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Write the page of one or more packed texts, all of one model; return its path.

    `heads` are the labels of the heads: rows of `vitlab.analysis.heads.HeadPatterns`. A weight in the page is
    off by at most 1/510 of its query's largest; a text takes 4/3 bytes per layer, head, query and key.
    """
    from vitlab.analysis.heads import PATTERNS

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


# ---- texts of a model


def write_views(
    model: "nn.Module",
    task: "Task",
    tokenizer: "Tokenizer",
    texts: Sequence["TextInput"],
    heads: Sequence[dict[str, Any]],
    name: str,
    folder: Path,
) -> list[Path]:
    """Write the views of a text model's attention and positions, if it has such; return their paths.

    `texts` are shown, by default some of validation; `heads` are rows of the analysis head_patterns.
    """
    from vitlab.analysis.alignment import measure_attention, read_validation
    from vitlab.analysis.capture import find_attention_layers
    from vitlab.analysis.pictures import position_distances, position_similarities
    from vitlab.models.recurrent import RecurrentEncoderDecoder

    paths = []
    if find_attention_layers(model) or isinstance(model, RecurrentEncoderDecoder):
        given = texts or read_validation(task)
        shown = [pack_text(*measure_attention(model, tokenizer, text)) for text in given]
        paths.append(write_text_page(folder / "attention.html", f"Attention between tokens, {name}", shown, heads))
    if (table := model.text.embed.positions) is not None:
        for what, values in (("distance", position_distances(table)), ("similarity", position_similarities(table))):
            paths += save_figure(plot_positions(what, values.tolist(), name), folder)
    return paths


# ---- both


def render_page(
    items: Rows, layers: Sequence[str], heads: Sequence[int], rows: Rows, columns: Mapping[str, float], **values: Any
) -> str:
    """Render the document of pictures or texts, `items` as the script reads them, with the heads of each layer.

    `rows` are of the table of heads; `columns` are their titles with the number whose bar has full length.
    """
    return render(
        "attention.html.j2",
        styles=["maps.css", "attention.css"],
        scripts=SCRIPTS,
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
    """Quantize values >= 0 (..., N) to 255ths of each row's largest value; the error is at most 1/510 of it."""
    values = np.asarray(values, np.float64)
    largest = values.max(axis=-1)
    levels = np.rint(LEVELS * (values / np.where(largest > 0, largest, 1)[..., None]))
    return {"largest": encode_bytes(largest.astype("<f4")), "levels": encode_bytes(levels.astype(np.uint8))}


def encode_bytes(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


SHADE_TABLE = encode_bytes(SHADES.round().astype(np.uint8))  # 256 colours of three bytes
STOPS = ", ".join("rgb({:.0f} {:.0f} {:.0f})".format(*shade) for shade in SHADES[::15])
GRADIENT = f"linear-gradient(to right, {STOPS})"
