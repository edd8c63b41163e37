"""The figures of one model: classes taken for others, what a confidence is worth, how alike its positions are."""

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from vitlab.formatting import finite, plural
from vitlab.reports.figures.cells import draw_cells
from vitlab.reports.figures.figure import COLOURS, DASHED, Figure, axis, by_look
from vitlab.reports.figures.theme import Look

MOST_CLASSES = 50  # of a confusion matrix: more have no room for their names
OTHERS = "(other classes)"
PLACES = tuple(i / 5 for i in range(6))
Matrix = Sequence[Sequence[float]]


def plot_confusion_matrix(counts: np.ndarray, classes: Sequence[str], subject: str) -> Figure:
    """A row per true class: the share of its images by predicted class, and their number where there is room.

    `counts` int (C, C). Of more than MOST_CLASSES those are shown that are right least often, and all other predictions
    are one column.
    """
    title, rows = f"Predicted by true class, {subject}", list(classes)
    columns, totals = rows, counts.sum(axis=1)
    if len(rows) > MOST_CLASSES:
        accuracy = np.where(totals > 0, counts.diagonal() / np.maximum(totals, 1), np.inf)  # no images: not bad
        worst = np.lexsort((-totals, accuracy))[:MOST_CLASSES]
        title += f": the {MOST_CLASSES} worst of {len(rows):,} classes"
        rows, totals = [classes[place] for place in worst], totals[worst]
        among = counts[np.ix_(worst, worst)]
        counts, columns = np.column_stack([among, totals - among.sum(axis=1)]), [*rows, OTHERS]
    pairs = zip(counts.tolist(), totals.tolist(), strict=True)
    chart = draw_cells(
        [[n / total if total else None for n in row] for row, total in pairs],
        rows,
        columns,
        x="predicted class",
        y="true class",
        texts=[[f"{n}" if n else "" for n in row] for row in counts.tolist()],
        scale="share of the true class's images",
    )
    return Figure("confusion_matrix", title, chart)


def plot_reliability(bins: Sequence[Sequence[float]], error: float | None, subject: str) -> Figure:
    """Accuracy against confidence (Guo et al., 2017, figure 1), a point per bin that has images.

    `bins` are three rows: images, mean confidence, accuracy; `error` is the expected calibration error.
    """
    frame = pd.DataFrame(dict(zip(("images", "confidence", "accuracy"), bins, strict=True))).query("images > 0")
    frame["share of all images"] = frame.images / frame.images.sum()
    suffix = "" if finite(error) is None else f" (expected calibration error {error:.1%})"
    shown = {"accuracy": Look("vit"), "share of all images": Look("third", "square")}
    x = axis(
        alt.X, "confidence", "confidence: the probability of the predicted class", (0, 1), percent=True, ticks=PLACES
    )
    y = axis(alt.Y, "share", "share of the images, dashed: perfectly calibrated", (0, 1), percent=True, ticks=PLACES)
    look, perfect = by_look("label", shown), pd.DataFrame({"confidence": [0.0, 1.0], "share": [0.0, 1.0]})
    points = alt.Chart(frame.melt("confidence", [*shown], "label", "share")).encode(x=x, y=y)
    chart = alt.layer(
        alt.Chart(perfect, name="perfect").mark_line(strokeDash=DASHED, color=COLOURS["untrained"]).encode(x=x, y=y),
        points.mark_line().encode(color=look["color"]).properties(name="lines"),
        points.mark_point().encode(**look).properties(name="points"),
    )
    seen = f"Accuracy against confidence in {plural(len(frame), 'bin')} that hold images{suffix}."
    return Figure("calibration", f"Accuracy by confidence{suffix}, {subject}", chart, alt=seen)


def plot_distances(distances: Matrix, subject: str) -> Figure:
    """Euclidean distances (N, N) of `vitlab.analysis.position_similarity.position_distances`."""
    largest = max(map(max, distances))
    return plot_positions("distance", distances, "Euclidean distance", (0.0, largest or 1.0), subject)


def plot_similarities(similarities: Matrix, subject: str) -> Figure:
    """Cosine similarities (N, N) of `vitlab.analysis.position_similarity.position_similarities`."""
    return plot_positions("similarity", similarities, "cosine similarity", (-1.0, 1.0), subject)


def plot_positions(what: str, values: Matrix, scale: str, ends: tuple[float, float], subject: str) -> Figure:
    places = [str(place) for place in range(len(values))]
    chart = draw_cells(values, places, places, x="position", y="position", scale=scale, ends=ends)
    return Figure(f"position_{what}", f"{what.title()} of position embeddings, {subject}", chart)
