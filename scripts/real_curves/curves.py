"""Learning curves read from the CSV file, and the scaling laws of their first sizes."""

import csv
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

import vitlab

FITTED_SEEDS = 3  # that a law is given; means of measured errors are of all seeds
LAWS = ("auto", "m1", "m2", "m3", "m4")
CUTS = (4, 5, 6, 7)  # how many of the first sizes are kept


@dataclass(frozen=True)
class Curve:
    """chance: the error of guessing, None where the measure has none."""

    task: str
    model: str
    measure: str
    chance: float | None
    sizes: np.ndarray  # (N), ascending
    errors: np.ndarray  # (N, seeds)

    @property
    def means(self) -> np.ndarray:
        return self.errors.mean(1)

    def fit(self, kept: int, law: str):
        """A law of the first sizes. Raises UserError."""
        errors = self.errors[:kept, :FITTED_SEEDS]
        sizes = np.repeat(self.sizes[:kept], errors.shape[1])
        seeds = np.tile(np.arange(errors.shape[1]), kept)
        # a learner that is never better than guessing tells nothing by it
        chance = self.chance if self.chance is not None and self.chance > errors.mean(1).min() else None
        return vitlab.fit_scaling_law(sizes, errors.ravel(), law=law, chance=chance, seeds=seeds)


def read_curves(path: Path) -> dict[str, list[Curve]]:
    """The curves of each task. An error of 0 counts as half an error over the test items, as in `vitlab fit`."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    curves: dict[str, list[Curve]] = {}
    for (task, model), group in groupby(rows, key=lambda row: (row["task"], row["model"])):
        runs = list(group)
        errors = {(int(run["train_size"]), int(run["seed"])): read_error(run) for run in runs}
        sizes, seeds = (sorted(set(values)) for values in zip(*errors, strict=True))
        table = np.array([[errors[size, seed] for seed in seeds] for size in sizes])
        chance = 1 - float(runs[0]["chance"]) if runs[0]["chance"] else None
        curve = Curve(task, model, runs[0]["measure"], chance, np.array(sizes, float), table)
        curves.setdefault(task, []).append(curve)
    return curves


def read_error(run: dict[str, str]) -> float:
    return float(run["error"]) or 0.5 / int(run["test_items"])
