"""What a run gave on each test item: `RUN/heldout.npz`, so that two models are compared on the same items.

Of tasks with right and wrong answers it holds `right`, packed bits in the order of the test set, `count`, and `key`,
what they are counted as where that is not accuracy; where an item has several answers (the tags of a text) `accuracy`
float32 (n,) and `tokens` int32 (n,), how many there are. Of other tasks `loss` float32 (n,), the mean nats of a
sequence, and `tokens`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitlab.config import UserError
from vitlab.config.errors import first_line
from vitlab.files import replacing
from vitlab.tasks.metrics import Metric


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The mean of each item's answers, and how many these are; float32 and int32 (n,).

    `key`: accuracy, exact_match or loss.
    """

    key: str
    means: np.ndarray
    counts: np.ndarray

    def of_metric(self, metric: Metric, value: float) -> np.ndarray | None:
        """Values (n,) whose mean is a metric's and which vary as it does with the items; None for other metrics.

        That is the metric's value plus each item's influence on it: an item counts by its answers, and perplexity is
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
    if outcomes.key != "loss" and (outcomes.counts == 1).all():
        arrays = {"right": np.packbits(outcomes.means > 0.5), "count": np.int64(len(outcomes.means))}
        arrays |= {} if outcomes.key == "accuracy" else {"key": np.str_(outcomes.key)}
    else:
        arrays = {outcomes.key: outcomes.means.astype(np.float32), "tokens": outcomes.counts.astype(np.int32)}
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_outcomes(path: Path) -> Outcomes | None:
    """None where there is no file, as of runs before version 0.4. Raises UserError for one that is damaged."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "right" in arrays:
                right = np.unpackbits(arrays["right"], count=int(arrays["count"])).astype(np.float32)
                key = str(arrays["key"]) if "key" in arrays else "accuracy"
                return Outcomes(key, right, np.ones(len(right), dtype=np.int32))
            key = "loss" if "loss" in arrays else "accuracy"
            return Outcomes(key, arrays[key], arrays["tokens"])
    except Exception as error:  # a damaged file fails in zip, zlib, the header or the shape
        raise UserError(
            f"{path}: cannot read it: {first_line(error)}; delete it, and the report compares this run by its values"
        ) from None
