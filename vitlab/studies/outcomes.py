"""Read what runs left: outcomes on test items, the trial that counts, metrics and analyses."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from vitlab.config import UserError, read_yaml
from vitlab.files import read_json, reading, replacing
from vitlab.formatting import finite
from vitlab.tasks.metrics import Metric, main_metric
from vitlab.training.files import RunFiles

Rows = list[dict[str, Any]]  # of a table, by column


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Each test item's mean over its answers, and their number; float32 and int32 (n,).

    `key`: accuracy, exact_match, loss, or a score of the texts that a task writes, which `list_influences` computes.
    """

    key: str
    means: np.ndarray
    counts: np.ndarray

    def of_metric(self, metric: Metric, value: float) -> np.ndarray | None:
        """Return the metric's value plus each item's influence on it (n,); None for a metric that items do not tell.

        The mean is the metric's value, and the variation that of the metric with the items. An item counts by its
        answers; perplexity is the exponential of the loss.
        """
        if not self.counts.sum() or (not metric.percent and not np.ptp(self.means)):  # or no BLEU on any
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


def count_trials(rows: Rows) -> dict[str, str]:
    """Count each model's trials over sizes and seeds, `8` or `4 to 8`; `1` in a study that does not tune."""
    counts = dict[str, set[int]]()
    for (model, *_), trials in group_trials(rows).items():
        counts.setdefault(model, set()).add(len(trials))
    return {model: " to ".join(map(str, sorted({min(found), max(found)}))) for model, found in counts.items()}


def rank_trials(trials: Rows, metric: Metric) -> Rows:
    """Rank the trials with a result, best on validation items first; the lower validation loss breaks ties."""

    def score(row: Mapping[str, Any]) -> tuple[float, float]:
        value, loss = (finite(row.get(key)) for key in (metric.on_validation, "validation_loss"))
        return math.inf if value is None else metric.lead(0.0, value), math.inf if loss is None else loss

    return sorted((row for row in trials if metric.value(row) is not None), key=score)


MAPS = "attention_maps"
OVER_PATCHES = ("attention_distance", MAPS, "head_types", "rollout")  # apply to every model with such attention
OVER_TOKENS = ("attention_entropy", "head_patterns")


class RunResults:
    """A run's files as values. A missing file is empty or None; one that does not parse warns or raises UserError."""

    def __init__(self, files: RunFiles):
        self.files = files
        self.read_heads = cache(self.read_heads)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.yaml."""
        return read_yaml(self.files.config_path) if self.files.config_path.is_file() else {}

    @cached_property
    def result(self) -> dict[str, Any]:
        """The content of result.json; empty if it is damaged."""
        return self.files.read_result()[0] or {}

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return self.files.metrics()

    @cached_property
    def outcomes(self) -> Outcomes | None:
        """The outcomes of the test items; None with a warning if their file is damaged."""
        try:
            return read_outcomes(self.files.heldout_path)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            return None

    @property
    def generated(self) -> list[dict[str, str]]:
        """A dict `{"source", "reference", "generated"}` for each test item of a task that generates texts; else []."""
        return read_json(self.files.generated_path) or []

    @property
    def wandb(self) -> dict[str, Any]:
        """The dict with `mode`, and `id`, `path` or `url` of the run in W&B; empty if it was not logged there."""
        return self.result.get("wandb") or {}

    @property
    def analyses(self) -> list[str]:
        """The names of the analyses that the training left."""
        return sorted(path.stem for path in self.files.analysis_folder.glob("*.json"))

    def analysis(self, name: str) -> dict[str, Any] | None:
        """Read `{"name", "unit", "rows": [{"step", "layer", "head", "value"}, ...]}`; None without rows of heads."""
        return self.read_heads(self.files.analysis_folder / f"{name}.json")

    def last_analysis(self, name: str) -> dict[str, Any] | None:
        """Read an analysis of heads at the trained model alone, also if it was added later."""
        heads = self.analysis(name) or self.read_heads(self.files.analysis_folder / "trained" / f"{name}.json")
        if not heads:
            return None
        last = max(row["step"] for row in heads["rows"])
        return {**heads, "rows": [row for row in heads["rows"] if row["step"] == last]}

    def read_heads(self, path: Path) -> dict[str, Any] | None:
        document = read_json(path)
        return document if document and document["rows"] and "head" in document["rows"][0] else None

    def attention_maps(self) -> SimpleNamespace | None:
        """Load attention over B images, without keeping it; None where the analysis attention_maps did not run.

        `maps` (B, L, H, gy, gx) and `rollout` (B, L, gy, gx) are float32 shares in 0..1, of L layers, H heads, gy x gx
        patches. `pictures` are uint8 (B, C, Y, X), `names` their classes. `class_token`: True for the class token's
        attention, False for the mean of the patches'.
        """
        path = self.find_file(f"{MAPS}.npz")
        if path is None:
            return None
        again = f"delete it, then vitlab analyze {self.files.folder} {MAPS}"
        with reading(str(path), again), np.load(path, allow_pickle=False) as arrays:
            found = SimpleNamespace(**{key: arrays[key] for key in ("maps", "rollout", "pictures", "names")})
            found.class_token = bool(arrays["class_token"])
        found.maps, found.rollout = found.maps.astype(np.float32), found.rollout.astype(np.float32)
        found.names = found.names.tolist()
        return found

    def find_file(self, name: str) -> Path | None:
        """Find a file of an analysis; None if it does not exist."""
        folder = self.files.analysis_folder
        return next((path for path in (folder / name, folder / "trained" / name) if path.is_file()), None)

    @property
    def reads_text(self) -> bool:
        return (self.config.get("data") or {}).get("modality") == "text"

    @property
    def lacks_attention(self) -> bool:
        """Whether an analysis of attention over tokens or patches was asked for and did not apply to the model."""
        wanted = set(OVER_TOKENS if self.reads_text else OVER_PATCHES) & set(self.config.get("analyses") or [])
        return bool(wanted) and not wanted & set(self.analyses)
