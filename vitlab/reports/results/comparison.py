"""The models at one training-set size: which is best, by how much, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from vitlab.formatting import finite
from vitlab.reports.results.aggregate import Cell
from vitlab.studies.metrics import Metric
from vitlab.studies.paired import Estimate, Values, estimate_mean, paired_difference

Outcomes = Mapping[str, np.ndarray]  # the metric on each test item, by the run's name
NO_OUTCOMES: Outcomes = {}


@dataclass(frozen=True)
class Comparison:
    """The contenders at one training-set size."""

    size: int
    ranking: tuple[str, ...]  # best mean first
    gap: Estimate  # from the best to the next, in the metric
    tied: tuple[str, ...]  # the best and those that it is not clearly ahead of; empty where it leads
    chance: float | None  # the accuracy of always choosing the largest class, where no contender is clearly above it

    @property
    def leader(self) -> str | None:
        return None if self.tied or self.chance is not None else self.ranking[0]


def compare(
    size: int, contenders: Mapping[str, Mapping[int, Cell]], metric: Metric, outcomes: Outcomes
) -> Comparison | None:
    """None when fewer than two contenders have a run of this size."""
    here = {name: by_size[size] for name, by_size in contenders.items() if size in by_size}
    if len(here) < 2:
        return None
    ranking = sorted(here, key=lambda name: metric.lead(here[name].mean, 0.0), reverse=True)
    best, *others = ranking
    gaps = {name: difference(here[best], here[name], metric, outcomes) for name in others}
    unclear = [name for name in others if not is_lead(gaps[name], metric)]
    above = any(beats_chance(cell, metric, outcomes) for cell in here.values())
    chance = None if above else find_chance([*here.values()], metric)
    return Comparison(size, tuple(ranking), gaps[others[0]], (best, *unclear) if unclear else (), chance)


def is_lead(gap: Estimate, metric: Metric) -> bool:
    """Whether the 95% interval says so; where there is none, whether the numbers as they are shown differ."""
    if gap.half_width is None:
        return gap.mean > 0 and metric.number(gap.mean) != metric.number(0.0)
    return gap.clear and gap.mean > 0


def difference(one: Cell, other: Cell, metric: Metric, outcomes: Outcomes) -> Estimate:
    """By how much the first is better, over the seeds and test items that both have."""
    values = [values_of(cell, metric, outcomes) for cell in (one, other)]
    found = paired_difference(*(values if metric.higher_is_better else values[::-1]))
    return found or Estimate(metric.lead(one.mean, other.mean), None, 1)


def values_of(cell: Cell, metric: Metric, outcomes: Outcomes) -> Values:
    """By seed what the metric is on each test item, or as a whole where that was not kept."""
    return {row["seed"]: outcomes.get(row.get("run"), metric.value(row)) for row in cell.rows}


def find_chance(cells: list[Cell], metric: Metric) -> float | None:
    """The share of the largest class in the test set; None where the metric is not accuracy, or it was not kept."""
    found = [finite(row.get("chance")) for cell in cells for row in cell.rows] if metric.key == "accuracy" else []
    return max((one for one in found if one is not None), default=None)


def beats_chance(cell: Cell, metric: Metric, outcomes: Outcomes) -> bool:
    """Whether the interval of a model's mean lies above chance; True where chance is not known."""
    chance = find_chance([cell], metric)
    if chance is None:
        return True
    values = [*values_of(cell, metric, outcomes).values()]
    same = len({np.shape(value) for value in values}) == 1
    mean = estimate_mean(np.array(values if same else [np.mean(value) for value in values]))
    return is_lead(replace(mean, mean=mean.mean - chance), metric)


def format_gap(gap: Estimate, metric: Metric) -> str:
    """`8.1 ± 1.3 points`: a difference, and how far its 95% interval reaches."""
    around = "" if gap.half_width is None else f" ± {metric.number(gap.half_width)}"
    return f"{metric.number(gap.mean)}{around} {metric.gap_unit}".rstrip()
