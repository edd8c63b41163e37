"""The figures of `vitlab eval`: which classes are taken for which, and what a confidence is worth."""

from collections.abc import Sequence

import numpy as np

from vitlab.formatting import finite, plural
from vitlab.reports.figures.cells import draw_cells
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves

MOST_CLASSES = 50  # of a confusion matrix: more have no room for their names
OTHERS = "(other classes)"
PLACES = tuple(i / 5 for i in range(6))


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
    chart = draw_cells(
        [
            [n / total if total else None for n in row]
            for row, total in zip(counts.tolist(), totals.tolist(), strict=True)
        ],
        rows,
        columns,
        x="predicted class",
        y="true class",
        texts=[[f"{n}" if n else "" for n in row] for row in counts.tolist()],
        scale="share of the true class's images",
    )
    return Figure("confusion_matrix", title, {"": chart})


def plot_reliability(bins: Sequence[Sequence[float]], error: float | None, subject: str) -> Figure:
    """Accuracy against confidence (Guo et al., 2017, figure 1), a point per bin that has images.

    `bins` are three rows: images, mean confidence, accuracy; `error` is the expected calibration error.
    """
    images = sum(bins[0])
    points = [(int(n), confidence, right) for n, confidence, right in zip(*bins, strict=True) if n]
    suffix = "" if finite(error) is None else f" (expected calibration error {error:.1%})"
    keys = [
        Key("perfectly calibrated", "untrained", dash="dash", style="line"),
        Key("share of all images", "third", "square", "dot"),
        Key("accuracy", "vit"),
    ]
    drawn = [{"mark": "line", "label": keys[0].label, "x": at, "y": at} for at in (0.0, 1.0)]
    for n, confidence, right in points:
        text = f"{plural(n, 'image')} of {confidence:.0%} confidence\n{right:.0%} are right"
        for key, y in ((keys[1], n / images), (keys[2], right)):
            drawn += [
                {"mark": mark, "label": key.label, "x": confidence, "y": y, "text": text} for mark in ("line", "point")
            ]
    x = Axis("confidence: the probability of the predicted class", percent=True, ticks=PLACES, domain=(0.0, 1.0))
    y = Axis("share of the images", percent=True, ticks=PLACES, domain=(0.0, 1.0))
    return Figure(
        name="calibration",
        title=f"Accuracy by confidence{suffix}, {subject}",
        panels=draw_curves({"": drawn}, keys, x, y),
        keys=keys,
        alt=f"Accuracy against confidence in {plural(len(points), 'bin')} that hold images{suffix}.",
    )
