"""Mean and spread over seeds, per model and training-set size."""

import statistics
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from vitlab.tasks.metrics import Metric


@dataclass(frozen=True)
class CellAverage:
    """The runs of one model at one size. `std` is the sample standard deviation, None below two seeds."""

    mean: float
    std: float | None
    rows: tuple[dict[str, Any], ...]


def aggregate(rows: list[dict[str, Any]], metric: Metric) -> dict[str, dict[int, CellAverage]]:
    """model -> training-set size, ascending -> CellAverage of the runs with a finite value."""
    by_model: dict[str, dict[int, CellAverage]] = {row["model"]: {} for row in rows}
    key = itemgetter("model", "train_size")
    measured = sorted((row for row in rows if metric.value(row) is not None), key=key)
    for (model, size), group in groupby(measured, key=key):
        runs = tuple(group)
        values = [metric.value(row) for row in runs]
        by_model[model][size] = CellAverage(
            statistics.fmean(values), statistics.stdev(values) if runs[1:] else None, runs
        )
    return by_model
