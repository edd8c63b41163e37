"""Keep a run's outcome on each test item in a file; choose the trial that counts."""

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
    """Each test item's mean over its answers, and their number; float32 and int32 (n,).

    `key`: accuracy, exact_match or loss.
    """

    key: str
    means: np.ndarray
    counts: np.ndarray

    def of_metric(self, metric: Metric, value: float) -> np.ndarray | None:
        """Return the metric's value plus each item's influence on it (n,); None for a metric that items do not tell.

        The mean is the metric's value, and the variation that of the metric with the items. An item counts by its
        answers; perplexity is the exponential of the loss.
        """
        if not self.counts.sum():
            return None
        mean = np.average(self.means, weights=self.counts)
        # the mean is the log of perplexity; it is proportional to the square of the normalised RMSE
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
    """Choose the best trial on validation for each model, size and seed; keep runs that are no trials."""
    metric = main_metric(rows)
    return [(rank_trials(trials, metric) or trials)[0] for trials in group_trials(rows).values()]


def group_trials(rows: Rows) -> dict[tuple[Any, ...], Rows]:
    """Group trials by model, size and seed; put every other run in a group of its own."""
    groups = dict[tuple[Any, ...], Rows]()
    for row in rows:
        alone = () if row.get("trial") else (len(groups),)
        groups.setdefault((row["model"], row["train_size"], row["seed"], *alone), []).append(row)
    return groups


def count_trials(rows: Rows) -> dict[str, int]:
    """Count each model's trials, the fewest of any size and seed; 1 in a study that does not tune."""
    counts = dict[str, int]()
    for (model, *_), trials in group_trials(rows).items():
        counts[model] = min(len(trials), counts.get(model, len(trials)))
    return counts


def rank_trials(trials: Rows, metric: Metric) -> Rows:
    """Rank the trials with a result, best on validation items first; the lower validation loss breaks ties."""

    def score(row: Mapping[str, Any]) -> tuple[float, float]:
        value, loss = (finite(row.get(key)) for key in (metric.on_validation, "validation_loss"))
        return math.inf if value is None else metric.lead(0.0, value), math.inf if loss is None else loss

    return sorted((row for row in trials if metric.value(row) is not None), key=score)
