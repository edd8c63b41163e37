"""Drawings of points and lines: heads by layer, the types of heads, values against a number, images in the plane."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import pandas as pd
from scipy.spatial import KDTree

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.formatting import file_stem, plural, significant
from vitlab.reports.figures.figure import COLOURS, Figure, axis, by_look
from vitlab.reports.figures.heads import Measured, draw_heads, draw_layers
from vitlab.reports.figures.theme import ACCENTS, MARKERS, group_look

KEYS = ("step", "layer", "head", "type", "value")
NO_PATTERN = ("mixed", "none")  # of a head that no single pattern fits
APART = 0.08  # layers between two heads of one layer: equal scores stay visible
OTHER = ("kind", "step", "value")
NEAR, CROWD = 0.02, 0.35  # of the picture's height: the least distance of two points, and of many times their root
ROUNDS = 100
ASPECT = 2.0  # width of the picture over its height
NAMED = 60  # classes that can be named in the picture itself


def value_axis(found: Findings, label: str) -> alt.Y:
    """The axis of an analysis's values, from 0: shares in percent, others with their unit."""
    percent = found.unit == "share"
    return axis(
        alt.Y, "value", f"{label} ({found.unit})" if found.unit and not percent else label, percent=percent, zero=True
    )


def heads(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """A point per head, of rows with "step", "layer", "head" and "value"; of more than two steps a line per layer."""
    measured = Measured(found.to_dict())
    yield draw_heads(file_stem(found.name), title, [measured], "vit")
    if len(measured.steps) > 2:
        yield draw_layers(file_stem(f"{found.name}-by-step"), f"{title} while training", [measured])


def head_types(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """A point per head against the layer, in the colour and marker of its type.

    Of the last step's rows with "layer", "head", "value", and what the head is, beside all that it could be: "type" and
    a score under the name of each type; or "label" and "scores" by pattern, or no single pattern. A type looks the same
    in every figure, whichever types its model has.
    """
    last = [row for row in found.rows if row["step"] == found.rows[-1]["step"]]
    count = max((row["head"] for row in last), default=1)
    labelled = "label" in last[0]
    types = [*last[0]["scores"], *NO_PATTERN] if labelled else [key for key in last[0] if key not in KEYS]
    frame = pd.DataFrame([{**row, "type": row["label" if labelled else "type"]} for row in last])
    frame["x"] = frame.layer + min(APART, 0.6 / count) * (frame["head"] - (count + 1) / 2)
    shown = {kind: group_look(place) for place, kind in enumerate(types) if (frame.type == kind).any()}
    chart = alt.Chart(frame[["x", "value", "type", "layer", "head"]], name="heads").mark_point()
    layer = axis(alt.X, "x", "layer, its heads side by side", ticks=sorted(set(frame.layer)))
    value = value_axis(found, "best pattern" if labelled else "score of the type")
    yield Figure(
        name=file_stem(f"{found.name}-labels" if labelled else found.name),
        title=f"{title}{f', all {next(iter(shown))}' if len(shown) == 1 else ''}",  # a legend of one is not drawn
        chart=chart.encode(x=layer, y=value, **by_look("type", shown)),
        alt=" ".join(f"{kind}: {plural(int((frame.type == kind).sum()), 'head')}." for kind in shown),
    )


def line(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Values against a number, such as the layer: a figure per "kind" of rows.

    Of rows with "value", a number under another key, and perhaps "kind"; `config.axes` names the axis of each.
    """
    for kind in dict.fromkeys(row.get("kind") for row in found.rows):
        rows = [row for row in found.rows if row.get("kind") == kind]
        key = next(key for key in rows[0] if key not in OTHER)
        label = (vars(config).get("axes") or {}).get(kind, key)
        frame = pd.DataFrame({"x": [row[key] for row in rows], "value": [row["value"] for row in rows]})
        chart = alt.Chart(frame, name="line").mark_line(point=True, color=COLOURS["vit"])
        ends = [f"{significant(row['value'])} at {row[key]}" for row in (rows[0], rows[-1])]
        across = axis(alt.X, "x", label, ticks=sorted(frame.x.tolist()))
        yield Figure(
            name=file_stem(f"{found.name}-{kind or 'curve'}"),
            title=f"{title}, {kind}" if kind else title,
            chart=chart.encode(x=across, y=value_axis(found, config.title)),
            alt=f"{ends[0]}, {ends[1]}.",
        )


def scatter(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Images as points in the plane, of an array (B, 2), in the colour and marker of their class.

    More classes than colours and markers tell apart are named in their midst, not listed.
    """
    places = apart(found.array)
    labels = np.zeros(len(places), dtype=int) if found.labels is None else found.labels
    present = [int(label) for label in np.unique(labels)]
    names = {label: str(found.classes[label]) if label < len(found.classes) else f"class {label}" for label in present}
    frame = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "class": [names[label] for label in labels.tolist()]})
    listed = len(present) <= len(ACCENTS) * len(MARKERS)
    looks = {names[label]: group_look(place) for place, label in enumerate(present)}
    base = {"x": axis(alt.X, "x", "first dimension (no unit)"), "y": axis(alt.Y, "y", "second dimension (no unit)")}
    layers = [alt.Chart(frame, name="images").mark_point().encode(**base, **by_look("class", looks, listed=listed))]
    if not listed and len(present) <= NAMED:
        middles = frame.groupby("class").median().reset_index()
        named = alt.Chart(middles, name="names").mark_text(color=COLOURS["ink"], fontWeight="bold")
        layers.append(named.encode(**base, text="class:N"))
    images = plural(len(places), "image")
    yield Figure(
        name=file_stem(found.name),
        title=f"{title}, {images}",
        chart=alt.layer(*layers),
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


DRAWINGS = (heads, head_types, line, scatter)
