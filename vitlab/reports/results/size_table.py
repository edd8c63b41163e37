"""The result of a study as a table of text: sizes down, models across, last the lead of the best over the next."""

from dataclasses import dataclass
from typing import Any

from vitlab.formatting import DASH, finite, plural, whole
from vitlab.reports.results.aggregate import Cell, aggregate
from vitlab.reports.results.comparison import (
    NO_OUTCOMES,
    Comparison,
    Outcomes,
    compare,
    find_chance,
    format_gap,
)
from vitlab.studies.metrics import Metric, main_metric

Rows = list[dict[str, Any]]
AGAINST = "best against next"


@dataclass(frozen=True)
class SizeTable:
    """`body` has a row per training-set size; `note` says what stands in the cells, and what chance is."""

    header: list[str]
    body: list[list[str]]
    note: str


def make_size_table(rows: Rows, outcomes: Outcomes = NO_OUTCOMES) -> SizeTable:
    """A column per model, `84.2 ± 0.6%`, the spread from two seeds on; last the best model's lead over the next."""
    metric = main_metric(rows)
    by_model = aggregate(rows, metric)
    sizes = sorted({row["train_size"] for row in rows})
    compared = {size: compare(size, by_model, metric, outcomes) for size in sizes}
    found = [one for one in compared.values() if one]
    header, body = [f"training {metric.sized_by}s", *by_model], []
    for size in sizes:
        body.append([whole(size), *(cell_text(by_size.get(size), metric) for by_size in by_model.values())])
        if found:
            body[-1].append(describe_lead(compared[size], metric))
    return SizeTable([*header, AGAINST] if found else header, body, describe_numbers(rows, by_model, found, metric))


def cell_text(cell: Cell | None, metric: Metric) -> str:
    if cell is None:
        return DASH
    spread = "" if cell.std is None else f" ± {metric.number(cell.std)}"
    return f"{metric.number(cell.mean)}{spread}{'%' if metric.percent else ''}"


def describe_lead(one: Comparison | None, metric: Metric) -> str:
    """`vit_nano by 2.0 ± 0.6 points`, `level: 0.3 ± 0.9 points`, `equal`, `none beats chance`."""
    if one is None:
        return DASH
    if one.chance is not None:
        return "none beats chance"
    if one.leader or len(one.tied) > 2:
        return f"{one.ranking[0]} by {format_gap(one.gap, metric)}"
    return "equal" if one.gap.half_width is None else f"level: {format_gap(one.gap, metric)}"


def describe_numbers(
    rows: Rows, by_model: dict[str, dict[int, Cell]], compared: list[Comparison], metric: Metric
) -> str:
    """What ± is after a mean and after a difference, chance, and the number of held-out examples."""
    seeds = max((len(cell.rows) for by_size in by_model.values() for cell in by_size.values()), default=1)
    texts = ["One seed." if seeds == 1 else f"Mean ± standard deviation over {plural(seeds, 'seed')}."]
    known = [one.gap for one in compared if one.gap.half_width is not None]
    items = max((int(finite(row.get("test_items")) or 0) for row in rows), default=0)
    if known:
        over_seeds, over_items = any(gap.seeds > 1 for gap in known), any(gap.items for gap in known)
        over = " and ".join(["seeds"] * over_seeds + ["held-out examples"] * over_items)
        alone = "" if over_seeds else "; other seeds are not covered"
        texts.append(f"Differences: ± half of the 95% interval over {over}{alone}.")
    chance = find_chance([cell for by_size in by_model.values() for cell in by_size.values()], metric)
    if chance is not None:
        texts.append(
            f"Chance, always choosing the largest class: {metric.text(chance)} of {items:,} held-out examples."
        )
    elif items:
        texts.append(f"{plural(items, 'held-out item')}.")
    return " ".join(texts)
