"""Seeds where they count: which cells of a study, variant x size, need more of them, and how many.

A cell needs more while the 95% interval of its mean over seeds, on this test set, is wider than asked for, whether or
not a comparison comes out significant: stopping at significance would find differences that are not there. What a
round adds follows from the results before it alone, so the same command gives the same rounds.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from vitlab.formatting import plural, whole
from vitlab.studies.stats import Spread, estimate_mean, quantile
from vitlab.studies.store import Cell
from vitlab.tasks.metrics import Metric, main_metric

MOST_SEEDS = 1000  # of a cell


@dataclass(frozen=True)
class Target:
    """`points` is the largest half-width of an interval, percent of perplexity; `max_runs` counts the whole study."""

    points: float
    max_runs: int | None = None

    def describe(self) -> str:
        """What follows the runs of a plan."""
        most = "" if self.max_runs is None else f", up to {plural(self.max_runs, 'run')} in all"
        return f"then more seeds, in rounds, until every mean is within ± {self.points:g}{most} (not counted above)"


@dataclass(frozen=True)
class Round:
    """The runs that a round adds, none where it stops, and what it says."""

    added: list[Cell]
    text: str


@dataclass(frozen=True)
class Certainty:
    """How sure the mean of one cell is, and how many seeds would make it as sure as asked for."""

    variant: str
    size: int
    seeds: frozenset[int]
    half_width: float  # of the 95% interval, in `Metric.compared`; infinite with one seed and no spread to borrow
    missing: int  # seeds, 0 where it is sure enough

    def describe(self, metric: Metric) -> str:
        """`vit_nano at 250: ± 2.3 points over 3 seeds, 2 more`."""
        width = "one seed" if math.isinf(self.half_width) else f"± {metric.width(self.half_width)}"
        over = "" if math.isinf(self.half_width) else f" over {plural(len(self.seeds), 'seed')}"
        return f"{self.variant} at {whole(self.size)}: {width}{over}, {self.missing} more"


def plan_round(rows: Sequence[dict[str, Any]], target: Target, stopped: Collection[tuple[str, int]] = ()) -> Round:
    """What the finished runs ask for next; `stopped` are cells, (variant, size), that get no more."""
    metric = main_metric(list(rows))
    until = target.points * metric.point
    cells = measure_certainty(rows, until)
    wide = [cell for cell in cells if cell.missing]
    open_cells = [cell for cell in wide if (cell.variant, cell.size) not in stopped]
    wanted = sum(cell.missing for cell in open_cells)
    added = choose_cells(open_cells, wanted if target.max_runs is None else target.max_runs - len(rows))
    aim = f"± {metric.width(until)}"
    if added:
        lines = [f"  {cell.describe(metric)}" for cell in sorted(open_cells, key=lambda cell: -cell.half_width)]
        sure = len(cells) - len(wide)
        head = f"{plural(len(added), 'run')} more: the 95% interval over seeds is wider than {aim} at"
        rest = [f"  {plural(sure, 'other cell')} sure enough"] if sure else []
        return Round(added, "\n".join([head, *lines, *rest]))
    if not wide:
        text = f"No more seeds: every mean's 95% interval over seeds, on this test set, is within {aim}."
    elif not open_cells:
        text = f"No more seeds: runs failed at {join(wide)}, where intervals are wider than {aim}."
    elif target.max_runs is None or len(rows) < target.max_runs:
        text = f"No more seeds: {join(open_cells)} has {MOST_SEEDS} already, and is wider than {aim}."
    else:
        text = f"No more seeds: --max-runs {target.max_runs} is reached; wider than {aim} is {join(open_cells)}."
    return Round([], " ".join(filter(None, [text, describe_test_set(rows)])))


def join(cells: Sequence["Certainty"]) -> str:
    return ", ".join(f"{cell.variant} at {whole(cell.size)}" for cell in cells)


def measure_certainty(rows: Sequence[Mapping[str, Any]], until: float) -> list[Certainty]:
    """Every cell with a value; the spread over seeds is moderated by that of the variant's other sizes.

    `until` is the half-width that is asked for, in `Metric.compared`.
    """
    from vitlab.studies.results import Results  # it brings pandas

    # over seeds alone, on this test set: neither items nor the overlap of test sets become fewer with more seeds
    results = Results([{**row, "holdout": None} for row in rows], outcomes={})
    cells = []
    for variant, by_size in results.by_model.items():
        for size, cell in by_size.items():
            spread, width = results.floor_spread(results.spreads[variant].get(size), cell.rows), math.inf
            if spread:
                width = estimate_mean(np.array(results.compared(cell.rows)), spread).half_width
            seeds = frozenset(row["seed"] for row in cell.rows)
            cells.append(
                Certainty(
                    variant, size, seeds, width, 0 if width <= until else count_missing(len(seeds), spread, until)
                )
            )
    return cells


def count_missing(seeds: int, spread: Spread | None, until: float) -> int:
    """How many seeds more a cell would need if its spread stayed; at most as many again, for the spread is a guess."""
    if spread is None:
        return 2  # one more would leave an interval of 12.7 standard errors
    most = max(2, 2 * seeds)
    for more in range(1, most - seeds):
        total = seeds + more
        if quantile(spread.degrees + more) * spread.std / math.sqrt(total) <= until:
            return more
    return most - seeds


def choose_cells(cells: Iterable[Certainty], room: int) -> list[Cell]:
    """(variant, size, seed) of the runs to add, of the least sure cells first, `room` at most.

    The seeds are the smallest that a cell lacks: so the runs of several models are pairs.
    """
    chosen: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: -cell.half_width):
        free = (seed for seed in range(MOST_SEEDS) if seed not in cell.seeds)
        chosen += [(cell.variant, cell.size, seed) for seed in islice(free, cell.missing)]
    return chosen[: max(room, 0)]


def describe_test_set(rows: Sequence[Mapping[str, Any]]) -> str:
    """How wide the test set itself leaves an accuracy, whatever the number of seeds; empty where that is not known."""
    metric = main_metric(list(rows))
    values = [(metric.value(row), row.get("test_items")) for row in rows] if metric.percent else []
    widths = [
        quantile(items - 1) * math.sqrt(max(value * (1 - value), 0) / items)
        for value, items in values
        if value is not None and items and items > 1
    ]
    if not widths:
        return ""
    items = max(items for _, items in values if items)
    return (
        f"Other test sets of {whole(items)} items would move a result by up to ± {metric.gap(max(widths))}, "
        "however many seeds there are."
    )
