"""A picture per layer, each from 0 to its peak."""

from collections.abc import Iterator

import numpy as np

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.formatting import TIMES
from vitlab.reports.figures.cells import draw_tiles, shade_values
from vitlab.reports.figures.figure import Figure
from vitlab.reports.urls import file_stem


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of an array (n, Y, X) with values from 0 on, and as many rows with "layer" and "grid", the units of its map."""
    chart = draw_tiles(
        np.stack([shade_values(field, (0.0, float(field.max()))) for field in found.array])[None],
        columns=[f"layer {row['layer']}, {TIMES.join(map(str, row['grid']))}" for row in found.rows],
        x="what the middle unit of each layer's map sees",
        scale="share of the peak",
    )
    yield Figure(file_stem(found.name), title, {"": chart})
