"""Images as points in the plane, in the colour and marker of their class."""

from collections.abc import Iterator

import numpy as np
from omegaconf import DictConfig

from vitlab.analysis.findings import Findings
from vitlab.reports.colours import MARKERS
from vitlab.reports.drawings.groups import COLOURS, look
from vitlab.reports.figure import Axis, Figure, Panel, Series
from vitlab.reports.links import file_stem


def figures(found: Findings, config: DictConfig, title: str) -> Iterator[Figure]:
    """Of an array (B, 2). More classes than can be told apart are not listed."""
    points = found.array
    labels = np.zeros(len(points), dtype=int) if found.labels is None else found.labels
    present = [int(label) for label in np.unique(labels)]
    listed = len(present) <= len(COLOURS) * len(MARKERS)
    series = []
    for place, label in enumerate(present):
        colour_key, marker = look(place)
        name = str(found.classes[label]) if label < len(found.classes) else f"class {label}"
        chosen = points[labels == label]
        series.append(
            Series(
                label=name,
                x=chosen[:, 0].tolist(),
                y=chosen[:, 1].tolist(),
                colour_key=colour_key,
                marker=marker,
                style="points",
                hover=[name] * len(chosen),
                legend=listed,
            )
        )
    yield Figure(
        name=file_stem(found.name),
        title=title,
        x=Axis("first dimension (no unit)"),
        y=Axis("second dimension (no unit)"),
        panels=(Panel(tuple(series)),),
        alt=f"{len(points)} images of {len(present)} classes as points.",
    )
