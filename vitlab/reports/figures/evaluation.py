"""The figures of `vitlab eval`: which classes are taken for which, and what a confidence is worth."""

from collections.abc import Sequence

import numpy as np

from vitlab.formatting import finite, plural
from vitlab.reports.figures.spec import Axis, Figure, HeatMap, Panel, Series

MOST_CLASSES = 50  # of a confusion matrix: more have no room for their names
OTHERS = "(other classes)"
PLACES = tuple(i / 5 for i in range(6))


def plot_confusion_matrix(counts: np.ndarray, classes: Sequence[str], subject: str) -> HeatMap:
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
    return HeatMap(
        name="confusion_matrix",
        title=title,
        x="predicted class",
        y="true class",
        rows=rows,
        columns=columns,
        values=[
            [n / total if total else None for n in row]
            for row, total in zip(counts.tolist(), totals.tolist(), strict=True)
        ],
        texts=[[f"{n}" if n else "" for n in row] for row in counts.tolist()],
        scale="share of the true class's images",
    )


def plot_reliability(bins: Sequence[Sequence[float]], error: float | None, subject: str) -> Figure:
    """Accuracy against confidence (Guo et al., 2017, figure 1), a point per bin that has images.

    `bins` are three rows: images, mean confidence, accuracy; `error` is the expected calibration error.
    """
    images = sum(bins[0])
    points = [(int(n), confidence, right) for n, confidence, right in zip(*bins, strict=True) if n]
    hover = [
        f"{plural(n, 'image')} of {confidence:.0%} confidence\n{right:.0%} are right" for n, confidence, right in points
    ]
    x = [confidence for _, confidence, _ in points]
    suffix = "" if finite(error) is None else f" (expected calibration error {error:.1%})"
    found = (
        Series("perfectly calibrated", (0.0, 1.0), (0.0, 1.0), "untrained", style="line", dash="dash", width=1.4),
        Series(
            "share of all images",
            x,
            [n / images for n, _, _ in points],
            "third",
            dash="dot",
            marker="square",
            width=1.2,
        ),
        Series("accuracy", x, [right for _, _, right in points], "vit", hover=hover),
    )
    return Figure(
        name="calibration",
        title=f"Accuracy by confidence{suffix}, {subject}",
        x=Axis("confidence: the probability of the predicted class", percent=True, ticks=PLACES),
        y=Axis("share of the images", percent=True, from_zero=True, ticks=PLACES),
        panels=(Panel(found),),
        alt=f"Accuracy against confidence in {plural(len(points), 'bin')} that hold images{suffix}.",
    )
