"""What a run gave on each test item, in its file; which of several trials counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.files import reading, replacing
from vitlab.formatting import finite
from vitlab.tasks.metrics import Metric, main_metric

Rows = list[dict[str, Any]]  # of a table, by column


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The mean of each item's answers and their number; float32 and int32 (n,).

    `key`: accuracy, exact_match or loss.
    """

    key: str
    means: np.ndarray
    counts: np.ndarray

    def of_metric(self, metric: Metric, value: float) -> np.ndarray | None:
        """Return values (n,) whose mean is a metric's and which vary as it does with the items; None for other metrics.

        They are the metric's value plus each item's influence on it: an item counts by its answers, and perplexity is
        the exponential of the loss.
        """
        if not self.counts.sum():
            return None
        mean = np.average(self.means, weights=self.counts)
        # of perplexity the mean is the logarithm, of the normalised RMSE the square but for a factor
        slopes = {("loss", "perplexity"): value, ("loss", "nrmse"): value / (2 * mean) if mean else 0.0}
        slope = 1.0 if self.key == metric.key else slopes.get((self.key, metric.key))
        if slope is None:
            return None
        return value + slope * self.counts / self.counts.mean() * (self.means - mean)


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    arrays = {"means": outcomes.means.astype(np.float32), "counts": outcomes.counts.astype(np.int32)}
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, key=np.str_(outcomes.key), **arrays)


def read_outcomes(path: Path) -> Outcomes | None:
    """Read outcomes; None where there is no file. Raises UserError for a damaged file."""
    if not path.is_file():
        return None
    advice = "its run is compared by its result alone; delete the run's folder and start again to have it back"
    with reading(str(path), advice), np.load(path, allow_pickle=False) as arrays:
        return Outcomes(str(arrays["key"]), arrays["means"], arrays["counts"])


def same_outcomes(first: Outcomes, second: Outcomes) -> bool:
    """Tell whether two runs gave the same on each test item, to the last bit."""
    pairs = ((first.means, second.means), (first.counts, second.counts))
    return first.key == second.key and all(np.array_equal(*pair) for pair in pairs)


# ---- trials


def choose_trials(rows: Rows) -> Rows:
    """Choose the trial of each model, size and seed that is best on validation; a run that is no trial stays."""
    metric = main_metric(rows)
    return [(rank_trials(trials, metric) or trials)[0] for trials in group_trials(rows).values()]


def group_trials(rows: Rows) -> dict[tuple[Any, ...], Rows]:
    """Group trials by model, size and seed; a run that is no trial is a group of its own."""
    groups = dict[tuple[Any, ...], Rows]()
    for row in rows:
        alone = () if row.get("trial") else (len(groups),)
        groups.setdefault((row["model"], row["train_size"], row["seed"], *alone), []).append(row)
    return groups


def count_trials(rows: Rows) -> dict[str, int]:
    """Count the trials of each model, the fewest of a size and seed; 1 in a study that does not tune."""
    counts = dict[str, int]()
    for (model, *_), trials in group_trials(rows).items():
        counts[model] = min(len(trials), counts.get(model, len(trials)))
    return counts


def rank_trials(trials: Rows, metric: Metric) -> Rows:
    """Rank the trials that have a result, the best on validation items first, of equal ones that of the lower loss."""

    def score(row: Mapping[str, Any]) -> tuple[float, float]:
        value, loss = (finite(row.get(key)) for key in (metric.on_validation, "validation_loss"))
        return math.inf if value is None else metric.lead(0.0, value), math.inf if loss is None else loss

    return sorted((row for row in trials if metric.value(row) is not None), key=score)
