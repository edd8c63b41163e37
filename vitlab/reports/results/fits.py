"""The scaling laws of a study's models, and where they change places."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any

from vitlab.formatting import duration, finite, significant, whole
from vitlab.studies.laws.crossover import Crossover, describe_crossover, find_crossover
from vitlab.studies.laws.fit import Fit, fit_scaling_law
from vitlab.studies.laws.next_runs import rank_next_runs
from vitlab.studies.laws.table import FEWEST
from vitlab.studies.metrics import Metric, main_metric

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Scale:
    """A metric as an error that a law can describe, and back."""

    name: str
    to_error: Callable[[float], float]
    to_metric: Callable[[Any], Any]  # arrays too

    @classmethod
    def of(cls, metric: Metric) -> "Scale | None":
        """None for a metric that is no share of right answers and no loss."""
        if metric.percent:
            return cls("error", lambda value: 1 - value, lambda error: 1 - error)
        if metric.key == "perplexity":
            import numpy as np

            return cls("loss", math.log, np.exp)
        if metric.key in ("loss", "bits_per_byte"):
            return cls(metric.name, float, lambda error: error)
        return None


@dataclass(frozen=True)
class StudyFits:
    """Fits by model, and the crossover of each pair of models with a fit; both may be empty."""

    scale: Scale | None = None
    fits: Mapping[str, Fit] = field(default_factory=dict)
    crossovers: Mapping[tuple[str, str], Crossover] = field(default_factory=dict)
    unit: str = "example"
    costs: Mapping[tuple[str, float], float] = field(default_factory=dict)  # mean wall_s of a run, by model and size

    def describe_next_runs(self) -> list[str]:
        """For each crossover whose interval is finite, the three runs that would narrow it most for their time."""
        found = []
        for pair, one in self.crossovers.items():
            fits = [self.fits[model] for model in pair]
            costs = {
                (place, size): cost for place in (0, 1) for (m, size), cost in self.costs.items() if m == pair[place]
            }
            runs = rank_next_runs(*fits, one, costs)
            texts = [
                f"{pair[run.model]} with {whole(run.size)} ({duration(run.cost)}, variance -{run.gain:.0%})"
                for run in runs
            ]
            if texts:
                found.append(f"To narrow it most for the time, one more seed each of {', '.join(texts)}.")
        return found

    def describe_crossovers(self) -> list[str]:
        """A sentence for each pair of models."""
        return [
            f"{describe_crossover(found, first, second, self.unit)}."
            for (first, second), found in self.crossovers.items()
        ]

    def describe_laws(self) -> list[str]:
        """The law of each model with its parameters, or why none is drawn."""
        return [describe_law(model, fit) for model, fit in self.fits.items()]


def fit_study(rows: Rows) -> StudyFits:
    """The laws of all models with runs at enough sizes, on the study's metric.

    Runs with an error of 0 count as half an error over the test items, where their number is known.
    """
    metric = main_metric(rows)
    scale = Scale.of(metric)
    if scale is None:
        return StudyFits()
    found = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        runs = [
            (row, error)
            for row in rows
            if row["model"] == model and (value := metric.value(row)) is not None
            # a loss may be below any bound, an error of 0 is of few test items
            if (error := scale.to_error(value) or 0.5 / (finite(row.get("test_items")) or math.inf)) > 0
        ]
        if len({row["train_size"] for row, _ in runs}) < FEWEST:
            continue
        guessing = {finite(row.get("chance")) for row, _ in runs} - {None} if metric.key == "accuracy" else set()
        chance = 1 - guessing.pop() if len(guessing) == 1 else None
        sizes, errors, seeds = zip(*((row["train_size"], error, row["seed"]) for row, error in runs), strict=True)
        known = chance if chance is not None and chance > min(errors) else None
        found[model] = fit_scaling_law(sizes, errors, "auto", known, seeds)
    pairs = {pair: find_crossover(*(found[model] for model in pair)) for pair in combinations(found, 2)}
    times: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if (cost := finite(row.get("wall_s"))) is not None:
            times.setdefault((row["model"], row["train_size"]), []).append(cost)
    costs = {cell: fmean(values) for cell, values in times.items()}
    return StudyFits(scale, found, pairs, metric.sized_by, costs)


def describe_law(model: str, fit: Fit) -> str:
    """`vit: M2, error falls with the power -0.41 (-0.5 to -0.33) of the size to 0.02 (0 to 0.03)`."""
    if not fit.holds:
        return f"{model}: no law is drawn, the best one misses held-out sizes by a factor of {miss_factor(fit)}."
    intervals = fit.param_intervals()
    texts = [
        f"{name} = {significant(value, 2)} ({' to '.join(significant(end, 2) for end in intervals[name])})"
        for name, value in fit.params.items()
        if name in ("c", "e_inf")
    ]
    miss = f"; misses held-out sizes by a factor of {miss_factor(fit)}" if fit.rmse_holdout is not None else ""
    return f"{model}: {fit.law.upper()}, {', '.join(texts)}{miss}."


def miss_factor(fit: Fit) -> str:
    """How far off the law is at the largest sizes, held out, as a typical factor of the error: `1.08`."""
    return significant(math.exp(fit.rmse_holdout or 0.0))
