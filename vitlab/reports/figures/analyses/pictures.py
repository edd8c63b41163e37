"""Drawings of shaded cells and small pictures: tables of layers, alignments, maps over pictures, filters."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.formatting import TIMES, file_stem
from vitlab.reports.figures.cells import (
    LETTERS,
    draw_cells,
    draw_tiles,
    scale_values,
    shade_values,
    to_pixels,
    wrap_images,
)
from vitlab.reports.figures.figure import Figure

MOST = 8  # pictures of maps
PICTURE = 0.45  # of a tile's brightness that is the picture's
COLUMNS = 7  # filters beside each other
ENDS = (-1.0, 1.0)  # of similarities


def matrix(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """A row and a column per layer, named where the names are short.

    Of rows with "layer", "other" and "value" in 0..1, perhaps "name" and "other_name" of the two. With `config.other`
    the columns are the layers of that run. A value that is None has no shade.
    """
    cells = {(row["layer"], row["other"]): row["value"] for row in found.rows}
    rows, columns = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    against = vars(config).get("other")
    values = [[cells.get((row, column)) for column in columns] for row in rows]
    chart = draw_cells(
        values,
        label_layers({row["layer"]: row.get("name", "") for row in found.rows}),
        label_layers({row["other"]: row.get("other_name", "") for row in found.rows}),
        x=f"layer of {Path(against).name}" if against else "layer",
        y="layer",
        texts=[["" if value is None else f"{value:.2f}" for value in line] for line in values],
        scale=found.unit,
        ends=(0.0, 1.0),
    )
    yield Figure(file_stem(found.name), title, chart)


def label_layers(names: dict[int, str]) -> list[str]:
    """The names of layers in their order; their numbers where one has no name, or one that would be cut."""
    readable = all(name and len(name) <= LETTERS for name in names.values())
    return [names[layer] if readable else str(layer) for layer in sorted(names)]


def alignment(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Attention of target tokens, down, over source tokens, across.

    Of arrays "weights" (B, H, N, S), "sources" (B, S) and "targets" (B, N): the last head of each pair, which is the
    mean of several heads; of the first pair each head is drawn too.
    """
    heads = [row["head"] for row in found.rows[-found.arrays["weights"].shape[1] :]]
    for pair, (weights, sources, targets) in enumerate(
        zip(*(found.arrays[name] for name in ("weights", "sources", "targets")), strict=True), 1
    ):
        sources, targets = ([token for token in tokens if token] for tokens in (sources.tolist(), targets.tolist()))
        for head, values in list(zip(heads, weights, strict=True))[0 if pair == 1 else -1 :]:
            name = {"mean": ", mean of the heads", 1: ""}.get(head if len(heads) > 1 else 1, f", head {head}")
            values = values[: len(targets), : len(sources)].astype(float)
            chart = draw_cells(
                values.tolist(),
                targets,
                sources,
                x="source",
                y="target",
                texts=[[f"{100 * value:.0f}" if value >= 0.005 else "" for value in row] for row in values],
                scale="attention of the target token",
            )
            suffix = "" if head in ("mean", heads[-1]) else f"-head{head}"
            yield Figure(file_stem(f"{found.name}-{pair}{suffix}"), f"{title}{name}", chart)


def attention_overlay(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Maps of attention over their pictures: a picture a row, a head a column; of one map the other way.

    Of an array (B, gy, gx), or the last layer of (B, layers, heads, gy, gx).
    """
    maps = found.array[:MOST]
    maps = maps[:, None] if maps.ndim == 3 else maps[:, -1]
    drawn = resize_maps(maps, found.images.shape[-2:])
    pictures = [to_pixels(image) for image in found.images[:MOST]]
    pairs = zip(pictures, drawn, strict=False)
    images = np.array([[picture, *(overlay(picture, of_head) for of_head in heads)] for picture, heads in pairs])
    labels = [] if found.labels is None else found.labels[: len(images)]
    rows = [str(found.classes[label]) if label < len(found.classes) else "" for label in labels]
    heads = drawn.shape[1]
    columns = ["picture", *(f"head {head + 1}" for head in range(heads))] if heads > 1 else ["picture", "map"]
    if heads == 1:  # a narrow column of pairs would waste the page
        images, rows, columns = images.swapaxes(0, 1), columns, rows
    yield Figure(file_stem(found.name), title, draw_tiles(images, rows, columns, scale="within each map"))


def resize_maps(maps: np.ndarray, image_size: tuple[int, ...]) -> np.ndarray:
    """Maps (B, heads, gy, gx) in the size of the images: float32 (B, heads, Y, X), bilinear between patch centres."""
    return F.interpolate(torch.from_numpy(maps.astype(np.float32)), size=tuple(image_size), mode="bilinear").numpy()


def overlay(picture: np.ndarray, values: np.ndarray) -> np.ndarray:
    """uint8 (Y, X, 3): a picture (Y, X, 3) below the shades of values (Y, X)."""
    grey = picture.mean(axis=-1, keepdims=True)
    return (PICTURE * grey + (1 - PICTURE) * shade_values(scale_values(values), (0.0, 1.0))).round().astype(np.uint8)


def filters(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Filters, of an array (n, C, Y, X), in colour where they read red, green and blue.

    Each is between its largest value's two signs: 0 is a middle grey.
    """
    largest = np.abs(found.array).max(axis=(1, 2, 3), keepdims=True)
    shown = (127.5 + 127.5 * found.array / np.where(largest > 0, largest, 1)).round().astype(np.uint8)
    tiles = wrap_images([to_pixels(component) for component in shown], COLUMNS)
    chart = draw_tiles(tiles, x="row by row, most variance first; grey is 0")
    yield Figure(file_stem(found.name), title, chart)


def receptive_fields(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """A picture per layer, each from 0 to its peak.

    Of an array (n, Y, X) with values from 0 on, and as many rows with "layer" and "grid", the units of its map.
    """
    chart = draw_tiles(
        np.stack([shade_values(field, (0.0, float(field.max()))) for field in found.array])[None],
        columns=[f"layer {row['layer']}, {TIMES.join(map(str, row['grid']))}" for row in found.rows],
        x="what the middle unit of each layer's map sees",
        scale="share of the peak",
    )
    yield Figure(file_stem(found.name), title, chart)


def similarity_grid(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """A small map at each place: how alike it is to every place. Of an array (rows, columns, Y, X) in -1..1."""
    rows, columns = ([str(place + 1) for place in range(count)] for count in found.array.shape[:2])
    names = {"x": "column of the patch", "y": "row of the patch", "scale": found.unit, "ends": ENDS}
    yield Figure(file_stem(found.name), title, draw_tiles(shade_values(found.array, ENDS), rows, columns, **names))


DRAWINGS = (matrix, alignment, attention_overlay, filters, receptive_fields, similarity_grid)
