"""Maps of attention over their pictures: a picture a row, a head a column; of one map the other way."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.cells import draw_tiles, scale_values, shade_values, to_pixels
from vitlab.reports.figures.figure import Figure
from vitlab.reports.urls import file_stem

MOST = 8  # pictures
PICTURE = 0.45  # of a tile's brightness that is the picture's


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of an array (B, gy, gx), or the last layer of (B, layers, heads, gy, gx)."""
    maps = found.array[:MOST]
    maps = maps[:, None] if maps.ndim == 3 else maps[:, -1]
    drawn = resize_maps(maps, found.images.shape[-2:])
    rows = []
    for image, heads in zip(found.images, drawn, strict=False):
        picture = to_pixels(image)
        rows.append([picture, *(overlay(picture, of_head) for of_head in heads)])
    heads = drawn.shape[1]
    labels = [] if found.labels is None else found.labels[: len(rows)]
    named = [str(found.classes[label]) if label < len(found.classes) else "" for label in labels]
    images = np.array(rows)
    maps_named = ["picture", *(f"head {head + 1}" for head in range(heads))] if heads > 1 else ["picture", "map"]
    if heads == 1:  # a narrow column of pairs would waste the page
        images, named, maps_named = images.swapaxes(0, 1), maps_named, named
    chart = draw_tiles(images, named, maps_named, scale="within each map")
    yield Figure(file_stem(found.name), title, {"": chart})


def resize_maps(maps: np.ndarray, image_size: Sequence[int]) -> np.ndarray:
    """Maps (B, heads, gy, gx) in the size of the images: float32 (B, heads, Y, X), bilinear between patch centres."""
    return F.interpolate(torch.from_numpy(maps.astype(np.float32)), size=tuple(image_size), mode="bilinear").numpy()


def overlay(picture: np.ndarray, values: np.ndarray) -> np.ndarray:
    """uint8 (Y, X, 3): a picture (Y, X, 3) below the shades of values (Y, X)."""
    grey = picture.mean(axis=-1, keepdims=True)
    return (PICTURE * grey + (1 - PICTURE) * shade_values(scale_values(values), (0.0, 1.0))).round().astype(np.uint8)
