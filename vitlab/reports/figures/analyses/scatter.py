"""Images as points in the plane, in the colour and marker of their class."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.formatting import plural
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import ACCENTS, MARKERS, group_look
from vitlab.reports.urls import file_stem

NEAR, CROWD = 0.02, 0.35  # of the picture's height: the least distance of two points, and of many times their root
ROUNDS = 100
ASPECT = 2.0  # width of the picture over its height
NAMED = 60  # classes that can be named in the picture itself


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of an array (B, 2). More classes than colours and markers tell apart are named in their midst, not listed."""
    points = apart(found.array)
    labels = np.zeros(len(points), dtype=int) if found.labels is None else found.labels
    present = [int(label) for label in np.unique(labels)]
    listed = len(present) <= len(ACCENTS) * len(MARKERS)
    keys: list[Key] = []
    marks: list[dict[str, Any]] = []
    for place, label in enumerate(present):
        colour, marker = group_look(place)
        name = str(found.classes[label]) if label < len(found.classes) else f"class {label}"
        chosen = points[labels == label]
        keys.append(Key(name, colour, marker, style="points"))
        marks += [{"mark": "point", "label": name, "x": x, "y": y, "text": name} for x, y in chosen.tolist()]
        if not listed and len(present) <= NAMED:
            x, y = np.median(chosen, axis=0).tolist()
            marks.append({"mark": "name", "label": name, "x": x, "y": y, "text": name})
    images = f"{plural(len(points), 'image')}"
    yield Figure(
        name=file_stem(found.name),
        title=f"{title}, {images}",
        panels=draw_curves({"": marks}, keys, Axis("first dimension (no unit)"), Axis("second dimension (no unit)")),
        keys=keys if listed else (),
        alt=f"{images} of {plural(len(present), 'class', 'classes')} as points.",
    )


def apart(points: np.ndarray) -> np.ndarray:
    """Points (B, 2) moved so that none hides another: those too near are pushed apart.

    A tight group of fewer images than t-SNE's perplexity becomes one point. Its distances within mean nothing, but
    how many it holds can be counted so.
    """
    span = np.ptp(points, axis=0)
    scale = np.where(span > 0, span, 1) / (ASPECT, 1)
    moved = (points / scale).astype(float)
    least = min(NEAR, CROWD / len(points) ** 0.5)
    angles = np.arange(len(points)) * np.pi * (3 - 5**0.5)  # the golden angle: directions for points in one place
    moved += 1e-3 * least * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for _ in range(ROUNDS):
        pairs = KDTree(moved).query_pairs(least * 0.999, output_type="ndarray")
        if not len(pairs):
            break
        way = moved[pairs[:, 0]] - moved[pairs[:, 1]]
        far = np.linalg.norm(way, axis=1, keepdims=True)
        push = way / far * (least - far) / 2
        np.add.at(moved, pairs[:, 0], push)
        np.add.at(moved, pairs[:, 1], -push)
    return moved * scale
