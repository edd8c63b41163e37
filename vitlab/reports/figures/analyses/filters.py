"""Filters as small pictures, in colour where they read red, green and blue."""

from collections.abc import Iterator

import numpy as np

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.cells import draw_tiles, to_pixels, wrap_images
from vitlab.reports.figures.figure import Figure
from vitlab.reports.urls import file_stem

COLUMNS = 7


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of an array (n, C, Y, X), each between its largest value's two signs: 0 is a middle grey."""
    largest = np.abs(found.array).max(axis=(1, 2, 3), keepdims=True)
    shown = (127.5 + 127.5 * found.array / np.where(largest > 0, largest, 1)).round().astype(np.uint8)
    tiles = wrap_images([to_pixels(component) for component in shown], COLUMNS)
    chart = draw_tiles(tiles, x="row by row, most variance first; grey is 0")
    yield Figure(file_stem(found.name), title, {"": chart})
