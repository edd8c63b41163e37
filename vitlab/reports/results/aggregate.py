"""Mean and spread over seeds, per model and training-set size."""

import statistics
from dataclasses import dataclass
from typing import Any

from vitlab.studies.metrics import Metric


@dataclass(frozen=True)
class Cell:
    """The runs of one model at one size. `std` is the sample standard deviation, None below two seeds."""

    mean: float
    std: float | None
    rows: tuple[dict[str, Any], ...]


def cell(rows: list[dict[str, Any]], metric: Metric) -> Cell | None:
    """None when no run has a finite value."""
    rows = [row for row in rows if metric.value(row) is not None]
    values = [metric.value(row) for row in rows]
    if not values:
        return None
    return Cell(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, tuple(rows))


def cells(rows: list[dict[str, Any]], metric: Metric) -> dict[str, dict[int, Cell]]:
    """model -> training-set size, ascending -> Cell. Models without a finite value have no sizes."""
    found: dict[str, dict[int, Cell]] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        found[model] = {}
        for size in sorted({row["train_size"] for row in rows if row["model"] == model}):
            here = [row for row in rows if row["model"] == model and row["train_size"] == size]
            if (value := cell(here, metric)) is not None:
                found[model][size] = value
    return found
