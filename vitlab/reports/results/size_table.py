"""The result of a study as a table of text: sizes down, models across, last the lead of the best over the next."""

from dataclasses import dataclass
from typing import Any

from vitlab.formatting import DASH, finite, plural, whole
from vitlab.reports.results.aggregate import CellAverage, aggregate
from vitlab.reports.results.comparison import (
    MARGIN,
    NO_OUTCOMES,
    Comparison,
    Outcomes,
    compare_sizes,
    find_chance,
    format_gap,
)
from vitlab.studies.limits import list_limits
from vitlab.studies.metrics import main_metric
from vitlab.tasks.metrics import Metric

Rows = list[dict[str, Any]]
AGAINST = "best vs. runner-up"


@dataclass(frozen=True)
class SizeTable:
    """`body` has a row per training-set size; `note` says what stands in the cells, and what chance is."""

    header: list[str]
    body: list[list[str]]
    note: str


def make_size_table(rows: Rows, outcomes: Outcomes = NO_OUTCOMES, margin: float = MARGIN) -> SizeTable:
    """A column per model, `84.2 ± 0.6% (data)`, the spread from two seeds on; last the best model's lead over the next.

    In brackets stands what limits the cell, where its runs tell.
    """
    metric = main_metric(rows)
    by_model = aggregate(rows, metric)
    sizes = sorted({row["train_size"] for row in rows})
    compared = compare_sizes(by_model, metric, outcomes, margin)
    counts = count_seeds(by_model)
    limits = list_limits(rows)
    header, body = [f"training {metric.sized_by}s", *by_model], []
    for size in sizes:
        cells = [
            cell_text(by_size.get(size), metric, len(counts) > 1, limits.get((model, size), ""))
            for model, by_size in by_model.items()
        ]
        body.append([whole(size), *cells])
        if compared:
            body[-1].append(describe_lead(compared.get(size), metric))
    note = describe_numbers(rows, by_model, list(compared.values()), metric)
    if limits:
        note = f"{note} (data), (budget): what limits the cell."
    return SizeTable([*header, AGAINST] if compared else header, body, note)


def count_seeds(by_model: dict[str, dict[int, CellAverage]]) -> list[int]:
    """How many seeds cells have, each number once, ascending."""
    return sorted({len(cell.rows) for by_size in by_model.values() for cell in by_size.values()})


def cell_text(cell: CellAverage | None, metric: Metric, with_count: bool, limit: str) -> str:
    if cell is None:
        return DASH
    spread = "" if cell.std is None else f" ± {metric.number(cell.std)}"
    more = ", ".join(filter(None, [f"n={len(cell.rows)}" if with_count else "", limit]))
    return f"{metric.number(cell.mean)}{spread}{'%' if metric.percent else ''}{f' ({more})' if more else ''}"


def describe_lead(one: Comparison | None, metric: Metric) -> str:
    """`vit_nano by 2.0 ± 0.6 points`, `undecided: vit_nano ahead by 0.3 ± 1.9 points`, `level: 0.3 ± 0.4 points`."""
    if one is None:
        return DASH
    if one.chance is not None:
        return "none beats chance"
    gap = format_gap(one.gap, metric)
    if one.leader:
        return f"{one.ranking[0]} by {gap}"
    if one.gap.half_width is None:
        return "equal"
    return f"level: {gap}" if one.level else f"undecided: {one.ranking[0]} ahead by {gap}"


def describe_numbers(
    rows: Rows, by_model: dict[str, dict[int, CellAverage]], compared: list[Comparison], metric: Metric
) -> str:
    """What ± is after a mean and after a difference, chance, and the number of held-out examples."""
    fewest, most = (count_seeds(by_model) or [1])[0], (count_seeds(by_model) or [1])[-1]
    seeds = plural(most, "seed") if fewest == most else f"{fewest} to {most} seeds (n)"
    texts = ["One seed." if most == 1 else f"Mean ± standard deviation over {seeds}."]
    gaps = [comparison.gap for comparison in compared if comparison.gap.half_width is not None]
    items = max((int(finite(row.get("test_items")) or 0) for row in rows), default=0)
    if gaps:
        over_seeds, over_items = any(gap.seeds > 1 for gap in gaps), any(gap.items for gap in gaps)
        over = " and ".join(["seeds"] * over_seeds + ["held-out examples"] * over_items)
        alone = "" if over_seeds else "; other seeds are not covered"
        if metric.relative:
            texts.append(f"Differences: percent of the higher {metric.name} (95% interval over {over}{alone}).")
        else:
            texts.append(f"Differences: ± half of the 95% interval over {over}{alone}.")
    chance = find_chance([cell for by_size in by_model.values() for cell in by_size.values()], metric)
    if chance is not None:
        texts.append(
            f"Chance, always choosing the largest class: {metric.text(chance)} of {items:,} held-out examples."
        )
    elif items:
        texts.append(f"{plural(items, 'held-out item')}.")
    return " ".join(texts)
