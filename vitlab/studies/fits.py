"""The scaling laws of a study's models, and where they change places."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any

from vitlab.formatting import duration, finite, whole
from vitlab.studies.crossover import (
    SLOPES_COLUMN,
    Crossover,
    GroupFit,
    Name,
    Points,
    crossover,
    data_multiplier,
    describe_crossover,
    describe_multiplier,
    describe_slopes,
    fit_groups,
    make_law_table,
    rank_next_runs,
    select_points,
)
from vitlab.studies.fit import FEWEST, FEWEST_AVERAGED, Fit
from vitlab.studies.store import list_limits
from vitlab.tasks.metrics import Metric

if TYPE_CHECKING:
    from vitlab.studies.results import Results


@dataclass(frozen=True)
class Scale:
    """A metric as an error that a law can describe, and back."""

    name: str
    to_error: Callable[[float], float]
    to_metric: Callable[[Any], Any]  # arrays too

    @classmethod
    def of(cls, metric: Metric) -> "Scale | None":
        """None for a metric that is neither an accuracy nor a loss."""
        if metric.percent:
            return cls("error", metric.to_error, lambda error: 1 - error)
        if metric.key == "perplexity":
            import numpy as np

            return cls("loss", math.log, np.exp)
        if metric.is_error:
            return cls(metric.name, float, lambda error: error)
        return None


@dataclass(frozen=True)
class StudyFits:
    """Fits by model, and the crossover of each pair of models with a fit; both may be empty.

    Cells that the budget limits are left out of a model's fit where enough others remain (`left_out`: of some model);
    the laws of the models `on_budget` rest on them.
    """

    scale: Scale | None = None
    groups: Mapping[str, GroupFit] = field(default_factory=dict)
    crossovers: Mapping[tuple[str, str], Crossover] = field(default_factory=dict)
    unit: str = "example"
    costs: Mapping[tuple[str, float], float] = field(default_factory=dict)  # mean wall_s of a run, by model and size
    left_out: bool = False
    on_budget: frozenset[str] = frozenset()

    @property
    def fits(self) -> dict[str, Fit]:
        return {model: group_fit.fit for model, group_fit in self.groups.items()}

    @property
    def holding(self) -> dict[str, Fit]:
        """The laws that may be drawn."""
        return {model: fit for model, fit in self.fits.items() if fit.holds}

    @property
    def law_table(self) -> list[list[str]]:
        """The header and a row per model; empty without a fit."""
        table = make_law_table(self.groups, self.scale.name) if self.groups else []
        return [
            [self.warn(cell, line[0]) if column == SLOPES_COLUMN else cell for column, cell in enumerate(line)]
            for line in table
        ]

    def describe_law(self, model: str) -> str:
        """`each doubling of the data lowers the error by 31% (24 to 38) at 1,000 examples, by 4% (0 to 9) at 32,000`"""
        slopes = describe_slopes(self.fits[model], f" {self.unit}s", " by")
        return self.warn(f"each doubling of the data lowers the {self.scale.name} by {slopes}", model)

    def warn(self, text: str, *models: str) -> str:
        """The text, and before it that the laws of these models rest on cells that the budget limits."""
        return f"limited by the budget: {text}" if self.on_budget.intersection(models) else text

    @property
    def measured_by(self) -> str:
        """What the intervals rest on."""
        return " and ".join(sorted({fit.measured_by for fit in self.fits.values()}))

    def describe_headline(self) -> str:
        """Of two models where their curves cross, or that they are not seen to; else nothing."""
        if len(self.crossovers) != 1:
            return ""
        ((pair, crossing),) = self.crossovers.items()
        text = self.warn(describe_crossover(crossing, unit=self.unit), *pair)
        return f"{text[0].upper()}{text[1:]}."

    def describe_crossovers(self) -> list[str]:
        """A sentence for each pair of models."""
        return [
            f"{self.warn(describe_crossover(crossing, first, second, self.unit), first, second)}."
            for (first, second), crossing in self.crossovers.items()
        ]

    def describe_multipliers(self) -> list[str]:
        """A sentence for each pair of models with an error that both reach inside their data."""
        found = {pair: data_multiplier(*(self.fits[model] for model in pair)) for pair in self.crossovers}
        return [
            f"{describe_multiplier(one, *pair, self.scale.name)}."
            for pair, one in found.items()
            if one.ratio is not None
        ]

    def describe_next_runs(self) -> list[str]:
        """For each crossover whose interval is finite, the three runs that would narrow it most for their time."""
        sentences = []
        for pair, crossing in self.crossovers.items():
            costs = {(pair.index(model), size): cost for (model, size), cost in self.costs.items() if model in pair}
            texts = [
                f"{pair[run.model]} with {whole(run.size)} ({duration(run.cost)}, {run.gain:.0%} less variance)"
                for run in rank_next_runs(*(self.fits[model] for model in pair), crossing, costs)
            ]
            if texts:
                sentences.append(
                    f"To narrow the crossover of {' and '.join(pair)} most for the time, add a seed of "
                    f"{', '.join(texts)}."
                )
        return sentences


def fit_study(results: "Results") -> StudyFits:
    """The laws of all models with runs at enough sizes, on the study's metric, and where they cross.

    A model leads clearly where the gaps say so that the headline and the table rest on. Runs with an error of 0 count
    as half an error over the test items, where their number is known. Cells that the budget limits are left out of the
    fit of a model that has FEWEST_AVERAGED sizes without them.
    """
    metric, rows = results.metric, results.rows
    scale = Scale.of(metric)
    if scale is None:
        return StudyFits()
    points: dict[Name, Points] = {}
    times: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if (cost := finite(row.get("wall_s"))) is not None:
            times.setdefault((row["model"], row["train_size"]), []).append(cost)
        if (value := metric.value(row)) is None:
            continue
        # a loss may be below any bound, an error of 0 is of few test items
        error = scale.to_error(value) or 0.5 / (finite(row.get("test_items")) or math.inf)
        if error > 0:
            of_model = points.setdefault((row["model"],), Points())
            of_model.add(row["train_size"], error, row["seed"])
            if metric.key == "accuracy" and (chance := finite(row.get("chance"))) is not None:
                of_model.chance = 1 - chance
    limited = {cell for cell, limit in list_limits(rows).items() if limit == "budget"}
    fitted, on_budget = {}, set()
    for (model,), some in points.items():
        of_data = select_points(some, lambda size, model=model: (model, size) not in limited)
        enough = len(set(of_data.sizes)) >= FEWEST_AVERAGED
        if enough or len(set(some.sizes)) >= FEWEST:
            fitted[model,] = of_data if enough else some
        if not enough and len(of_data.sizes) < len(some.sizes):
            on_budget.add(model)
    groups = {model: group for (model,), group in fit_groups(fitted, "auto").items()}
    crossovers = {}
    for first, second in combinations(groups, 2):
        shared = results.by_model[first].keys() & results.by_model[second].keys()
        gaps = {size: results.gap(first, second, size) for size in sorted(shared)}
        leads = {size: gap.estimate.half_width is not None and gap.estimate.clear for size, gap in gaps.items()}
        crossovers[first, second] = crossover(groups[first].fit, groups[second].fit, leads=leads)
    return StudyFits(
        scale,
        groups,
        crossovers,
        metric.sized_by,
        {cell: fmean(values) for cell, values in times.items()},
        any(len(fitted[name].sizes) < len(points[name].sizes) for name in fitted),
        frozenset(on_budget),
    )
