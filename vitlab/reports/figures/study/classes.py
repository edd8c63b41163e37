"""The accuracy on each class (its recall) against the training-set size."""

import math
import statistics
from collections.abc import Iterator
from typing import Any

from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import families, looks
from vitlab.studies.results import Results

PLACE = 5
MOST = 12  # classes that have a panel: those with the lowest recall
Z = 1.96  # of a 95% interval


def draw(results: Results) -> Iterator[Figure]:
    """A panel per class, a line per model: the mean over seeds with its interval over seeds and test items."""
    counted = [
        (row, counts) for row in results.rows if (counts := results.run_files[row["run"]].result.get("by_class"))
    ]
    cells: dict[tuple[str, str, int], list[list[int]]] = {}
    for row, counts in counted:
        for name, right_and_all in counts.items():
            cells.setdefault((name, row["model"], row["train_size"]), []).append(right_and_all)
    shares = {cell: share for cell, runs in cells.items() if (share := estimate_share(runs)) is not None}
    sizes = sorted({size for _, _, size in shares})
    if len({name for name, _, _ in shares}) < 2:
        return
    largest = {
        name: [s[0] for (n, _, size), s in shares.items() if (n, size) == (name, sizes[-1])] for name, *_ in shares
    }
    order = sorted((name for name, values in largest.items() if values), key=lambda name: max(largest[name]))
    shown, style = order[:MOST], looks(families(results.rows))
    keys = [Key(model, look.colour, look.marker, look.dash, model=model) for model, look in style.items()]
    panels: dict[str, list[dict[str, Any]]] = {name: [] for name in shown}
    for (name, model, size), (share, low, high) in shares.items():
        if name in panels:
            here = {"label": model, "x": size, "y": share}
            text = f"{model}, {size:,} {results.metric.sized_by}s\n{share:.1%} of {name} ({low:.1%} to {high:.1%})"
            panels[name] += [
                {**here, "mark": "line"},
                {**here, "mark": "point", "text": text},
                {**here, "mark": "band", "low": low, "high": high},
            ]
    left_out = f" The {MOST} classes with the lowest recall of {len(order)}." if len(order) > MOST else ""
    x = Axis(f"training {results.metric.sized_by}s (log scale)", log=True, ticks=sizes)
    yield Figure(
        name="recall_by_class",
        title="Recall of each class against training-set size",
        panels=draw_curves(panels, keys, x, Axis("recall", percent=True, zero=True)),
        keys=keys,
        alt=f"Lowest with most data: {', '.join(f'{name} {max(largest[name]):.0%}' for name in shown[:3])}.",
        caption="The share of a class's test items that is right. Bands: 95% intervals over seeds and test items."
        + left_out,
        files=[("results of each run", "results.csv")],
    )


def estimate_share(runs: list[list[int]]) -> tuple[float, float, float] | None:
    """The mean share of right items over runs [right, all] of the same test items, and its 95% interval.

    Wilson's interval (1927) for as many items as have the variance that the items and the seeds give together. None
    without items.
    """
    items = runs[0][1]
    if not items:
        return None
    shares = [right / all_items for right, all_items in runs]
    mean, seeds = statistics.fmean(shares), len(shares)
    of_items = mean * (1 - mean) / items
    of_seeds = statistics.variance(shares) / seeds if seeds > 1 else 0.0
    count = items * of_items / (of_items + of_seeds) if of_items else items
    middle = (mean + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * math.sqrt(mean * (1 - mean) / count + Z**2 / (4 * count**2))
    return mean, max(0.0, middle - half), min(1.0, middle + half)
