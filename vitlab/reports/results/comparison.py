"""The models at each training-set size: which is best, by how much, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitlab.formatting import finite
from vitlab.reports.results.aggregate import CellAverage
from vitlab.studies.paired import (
    Estimate,
    Spread,
    Values,
    estimate_mean,
    list_seed_differences,
    moderated_spreads,
    paired_difference,
)
from vitlab.tasks.metrics import Metric

Contenders = Mapping[str, Mapping[int, CellAverage]]  # by name and training-set size
Outcomes = Mapping[str, np.ndarray]  # the metric on each test item, by the run's name
NO_OUTCOMES: Outcomes = {}
MARGIN = 1.0  # points, of perplexity percent: models whose difference surely is within it are level


@dataclass(frozen=True)
class Comparison:
    """The contenders at one training-set size."""

    size: int
    ranking: tuple[str, ...]  # best mean first
    gap: Estimate  # from the best to the next, in `Metric.compared`
    seeds: tuple[int, int]  # of the best and of the next
    tied: tuple[str, ...]  # the best and those that it is not clearly ahead of; empty where it leads
    level: bool  # whether all differences among the tied surely are within the margin
    chance: float | None  # the accuracy of always choosing the largest class, where no contender is clearly above it

    @property
    def leader(self) -> str | None:
        return None if self.tied or self.chance is not None else self.ranking[0]

    @property
    def undecided(self) -> bool:
        """Whether the best is ahead, but neither clearly nor by so little that they are level."""
        return bool(self.tied) and self.gap.half_width is not None and not self.level and self.chance is None


def compare_sizes(
    contenders: Contenders, metric: Metric, outcomes: Outcomes = NO_OUTCOMES, margin: float = MARGIN
) -> dict[int, Comparison]:
    """A comparison of each size at which two contenders or more have a run, the smallest size first."""
    sizes = sorted({size for by_size in contenders.values() for size in by_size})
    spreads = PairSpreads(contenders, metric, outcomes)
    compared = {size: compare(size, contenders, metric, outcomes, spreads, margin) for size in sizes}
    return {size: comparison for size, comparison in compared.items() if comparison is not None}


class PairSpreads:
    """The spread over seeds of the difference of two models, at each size moderated by that at their other sizes."""

    def __init__(self, contenders: Contenders, metric: Metric, outcomes: Outcomes):
        self.contenders, self.metric, self.outcomes = contenders, metric, outcomes
        self.by_pair: dict[tuple[str, ...], dict[float, Spread]] = {}

    def find(self, first: CellAverage, second: CellAverage, size: int) -> Spread | None:
        """None where these cells or all others have too few seeds in common."""
        pair = tuple(sorted((name_model(first), name_model(second))))
        if pair not in self.by_pair:
            self.by_pair[pair] = moderated_spreads(self.list_differences(pair))
        spread = self.by_pair[pair].get(size)
        rows = [row for by_size in self.contenders.values() for one in by_size.values() for row in one.rows]
        fewer = min(first, second, key=lambda cell: len(cell.rows))
        return spread and replace(spread, std=spread.std * correct_for_overlap(fewer, rows))

    def list_differences(self, pair: tuple[str, ...]) -> dict[float, list[float]]:
        cells: dict[int, dict[str, CellAverage]] = {}
        for by_size in self.contenders.values():
            for size, cell in by_size.items():
                if name_model(cell) in pair:
                    cells.setdefault(size, {})[name_model(cell)] = cell
        values = {
            size: [compared_values(cell, self.metric, self.outcomes) for cell in here.values()]
            for size, here in cells.items()
            if len(here) == 2
        }
        return {size: list_seed_differences(*pair) for size, pair in values.items()}


def correct_for_overlap(cell: CellAverage, rows: Sequence[Mapping[str, Any]]) -> float:
    """By how much seeds that draw their own test sets out of the same items vary too little; 1 with one test set.

    Their training and test items overlap: Nadeau and Bengio, "Inference for the generalization error" (2003),
    equation 9. `rows` are those of all sizes, of which the largest is nearly all that is not tested.
    """
    if cell.rows[0].get("holdout") is None:
        return 1.0
    share = cell.rows[0]["test_items"] / max(row["train_items"] for row in rows)
    return math.sqrt(1 + len(cell.rows) * share)


def name_model(cell: CellAverage) -> str:
    return str(cell.rows[0]["model"])


def compare(
    size: int, contenders: Contenders, metric: Metric, outcomes: Outcomes, spreads: PairSpreads, margin: float
) -> Comparison | None:
    """None when fewer than two contenders have a run of this size."""
    here = {name: by_size[size] for name, by_size in contenders.items() if size in by_size}
    if len(here) < 2:
        return None
    ranking = sorted(here, key=lambda name: metric.lead(here[name].mean, 0.0), reverse=True)
    best, *others = ranking
    gaps = {
        name: difference(here[best], here[name], metric, outcomes, spreads.find(here[best], here[name], size))
        for name in others
    }
    unclear = [name for name in others if not is_lead(gaps[name], metric)]
    within = margin * metric.point
    level = all(gaps[name].half_width is not None and is_within(gaps[name], within) for name in unclear)
    above = any(beats_chance(cell, metric, outcomes) for cell in here.values())
    return Comparison(
        size,
        tuple(ranking),
        gaps[others[0]],
        (len(here[best].rows), len(here[others[0]].rows)),
        (best, *unclear) if unclear else (),
        level,
        None if above else find_chance([*here.values()], metric),
    )


def is_lead(gap: Estimate, metric: Metric) -> bool:
    """Whether the 95% interval says so; where there is none, whether the numbers as they are shown differ."""
    if gap.half_width is None:
        return gap.mean > 0 and metric.number(gap.mean) != metric.number(0.0)
    return gap.clear and gap.mean > 0


def is_within(gap: Estimate, margin: float) -> bool:
    return -margin <= gap.low and gap.high <= margin


def difference(
    one: CellAverage, other: CellAverage, metric: Metric, outcomes: Outcomes, spread: Spread | None = None
) -> Estimate:
    """By how much the first is better, in `Metric.compared`, paired by the seeds and test items that both have."""
    values = [compared_values(cell, metric, outcomes) for cell in (one, other)]
    return paired_difference(*(values if metric.higher_is_better else values[::-1]), spread)


def values_of(cell: CellAverage, metric: Metric, outcomes: Outcomes) -> Values:
    """By seed what the metric is on each test item, or as a whole where that was not kept."""
    return {row["seed"]: outcomes.get(row.get("run"), metric.value(row)) for row in cell.rows}


def compared_values(cell: CellAverage, metric: Metric, outcomes: Outcomes) -> Values:
    """`values_of` in `Metric.compared`; to first order where they are of items."""
    values = values_of(cell, metric, outcomes)
    if not metric.relative:
        return values
    means = {seed: float(np.mean(value)) for seed, value in values.items()}
    return {seed: metric.compared(means[seed]) + (value - means[seed]) / means[seed] for seed, value in values.items()}


def find_chance(cells: list[CellAverage], metric: Metric) -> float | None:
    """The share of the largest class in the test set; None where the metric is not accuracy, or it was not kept."""
    chances = [finite(row.get("chance")) for cell in cells for row in cell.rows] if metric.key == "accuracy" else []
    return max((chance for chance in chances if chance is not None), default=None)


def beats_chance(cell: CellAverage, metric: Metric, outcomes: Outcomes) -> bool:
    """Whether the interval of a model's mean lies above chance; True where chance is not known."""
    chance = find_chance([cell], metric)
    if chance is None:
        return True
    values = [*values_of(cell, metric, outcomes).values()]
    same = len({np.shape(value) for value in values}) == 1
    mean = estimate_mean(np.array(values if same else [np.mean(value) for value in values]))
    return is_lead(replace(mean, mean=mean.mean - chance), metric)


def format_gap(gap: Estimate, metric: Metric, seeds: str = "") -> str:
    """`8.1 ± 1.3 points`: a difference, and how far its 95% interval reaches; behind it the `seeds`, if given.

    One that would reach beyond 100 points, and one of ratios, whose ends are not equally far: `30 points (-5 to 100)`.
    """
    unit = "" if metric.relative else metric.gap_unit
    text, ends = format_difference(gap.mean, metric), ""
    if gap.half_width is not None and (metric.relative or (metric.percent and max(gap.high, -gap.low) > 1)):
        low, high = (max(-1.0, min(1.0, end)) if metric.percent else end for end in (gap.low, gap.high))
        ends = f"{format_difference(low, metric)} to {format_difference(high, metric)}"
    elif gap.half_width is not None:
        text += f" ± {metric.number(gap.half_width)}"
    behind = "; ".join(filter(None, [ends, seeds]))
    return f"{text} {unit}".rstrip() + (f" ({behind})" if behind else "")


def format_difference(value: float, metric: Metric) -> str:
    """Of a relative metric by how many percent the better value is below the other one."""
    return f"{-100 * math.expm1(-value):.1f}%" if metric.relative else metric.number(value)


def describe_seeds(one: Comparison) -> str:
    """`3 seeds`, `4 and 2 seeds`; nothing of one seed each, which the end of a headline speaks of."""
    best, other = one.seeds
    if best == other:
        return f"{best} seeds" if best > 1 else ""
    return f"{best} and {other} seeds"
