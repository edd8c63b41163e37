"""Rounds of more seeds for the cells of a study whose means are less sure than asked for.

A cell, variant x size, needs more seeds while the 95% interval of its mean over seeds, on this test set, is wider than
asked for, whether or not a comparison comes out significant: stopping at significance would find differences that are
not there. What a round adds follows from the results before it alone: a command repeats its rounds.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from vitlab.formatting import plural, whole
from vitlab.studies.grid import name_trial
from vitlab.studies.results import Results
from vitlab.studies.stats import quantile
from vitlab.studies.store import RunKey

MOST_SEEDS = 1000  # of a cell


@dataclass(frozen=True)
class Target:
    """The precision to reach: `points`, an interval's largest half-width (some in percent); `max_runs`, of all runs."""

    points: float
    max_runs: int | None = None

    def describe(self) -> str:
        """Describe the rounds that follow a plan's runs."""
        most = "" if self.max_runs is None else f", up to {plural(self.max_runs, 'run')} in all"
        return f"then more seeds, in rounds, until every mean is within ± {self.points:g}{most} (not counted above)"


class WideCell(NamedTuple):
    """A cell whose mean is less sure than asked for, and the runs that would make it so."""

    name: str
    half_width: float  # of the 95% interval, in `Metric.compared`; infinite with one seed and no spread to borrow
    line: str
    runs: list[RunKey]


def plan_round(
    rows: Sequence[dict[str, Any]], target: Target, stopped: Collection[tuple[str, int]] = ()
) -> tuple[list[RunKey], str]:
    """Plan the runs that the next round adds to the finished ones, none where it stops; return them and a text.

    `stopped` are cells, (variant, size), that get no more; a cell without a result gets none, and is named.
    A cell lacks as many seeds as would do if its spread, moderated by that of the variant's other sizes, stayed; at
    most as many again as it has, for the spread is a guess.
    """
    # over seeds alone, on this test set: neither items nor the overlap of test sets become fewer with more seeds
    results = Results([{**row, "holdout": None} for row in rows], outcomes={})
    metric, wide = results.metric, {}
    until = target.points * metric.point
    cells = {(variant, size): cell for variant, of in results.by_model.items() for size, cell in of.items()}
    trained: dict[tuple[str, int], set[int]] = {cell: set() for cell in sorted(stopped)}  # also seeds without a result
    trials: dict[str, dict[str, None]] = {}  # of a variant, or its own name
    for row in rows:
        trials.setdefault(row["model"], {})[name_trial(row["model"], row.get("trial"))] = None
        trained.setdefault((row["model"], row["train_size"]), set()).add(row["seed"])
    for (variant, size), cell in cells.items():
        seeds, count = trained[variant, size], len(cell.rows)
        width, missing, text = math.inf, 2, "one seed"  # one more would leave an interval of 12.7 standard errors
        if spread := results.floor_spread(cell.spread, cell.rows):
            more = range(max(2 - count, count))
            widths = [quantile(spread.degrees + n) * spread.std / math.sqrt(count + n) for n in more]
            width, missing = widths[0], next((n for n in more if widths[n] <= until), len(more))
            text = f"± {metric.width(width)} over {plural(count, 'seed')}"
        if missing:  # the smallest seeds that it lacks: so the runs of several models are pairs
            lacking = islice((seed for seed in range(MOST_SEEDS) if seed not in seeds), missing)
            name = f"{variant} at {whole(size)}"
            runs = [(trial, size, seed) for seed in lacking for trial in trials[variant]]
            wide[variant, size] = WideCell(name, width, f"  {name}: {text}, {missing} more", runs)
    open_cells = [one for cell, one in wide.items() if cell not in stopped]
    widest = sorted(open_cells, key=lambda one: -one.half_width)
    added = [run for one in widest for run in one.runs]
    if target.max_runs is not None:
        added = added[: max(target.max_runs - len(rows), 0)]
    aim = f"± {metric.width(until)}"
    if added:
        head = f"{plural(len(added), 'run')} more: the 95% interval over seeds is wider than {aim} at"
        sure = len(cells) - len(wide)
        rest = [f"  {plural(sure, 'other cell')} sure enough"] if sure else []
        return added, "\n".join([head, *(one.line for one in widest), *rest])
    of_wide, of_open = (", ".join(one.name for one in some) for some in (wide.values(), open_cells))
    unknown = ", ".join(f"{cell[0]} at {whole(cell[1])}" for cell in trained if cell not in cells)
    if not cells:
        text = f"no run has a result in {metric.name}."
    elif not wide:
        text = f"every mean's 95% interval over seeds, on this test set, is within {aim}."
    elif not open_cells:
        text = f"runs failed at {of_wide}, where intervals are wider than {aim}."
    elif target.max_runs is None or len(rows) < target.max_runs:
        text = f"{of_open} has {MOST_SEEDS} already, and is wider than {aim}."
    else:
        text = f"--max-runs {target.max_runs} is reached; wider than {aim} is {of_open}."
    text += f" Without a result in {metric.name}: {unknown}." if cells and unknown else ""
    # how wide the test set itself leaves an accuracy
    tested = [(metric.value(row), row.get("test_items") or 0) for row in rows if metric.percent]
    tested = [(value, items) for value, items in tested if value is not None and items > 1]
    if tested:
        widest = max(quantile(items - 1) * math.sqrt(max(value * (1 - value), 0) / items) for value, items in tested)
        items = whole(max(items for _, items in tested))
        text += f" Other test sets of {items} items would move a result by up to ± {metric.gap(widest)}, "
        text += "however many seeds there are."
    return [], f"No more seeds: {text}"
