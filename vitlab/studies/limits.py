"""What limits a cell of a study: its data or its budget (docs/rules.md; measured by scripts/data_or_budget.py)."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from vitlab.formatting import finite

Rows = Sequence[Mapping[str, Any]]
DATA, BUDGET = 0.15, 0.3  # loss on training items over loss on validation items: below, above
FALL = 0.2  # of the error by twice the budget, the median of cells of Fashion-MNIST that the budget limits


def fitted_share(rows: Rows) -> float | None:
    """The loss on the run's own training items as a share of its validation loss, a mean over runs that have both."""
    pairs = [(finite(row.get("train_sample_loss")), finite(row.get("validation_loss"))) for row in rows]
    shares = [seen / unseen for seen, unseen in pairs if seen is not None and unseen]
    return fmean(shares) if shares else None


def limit_of(rows: Rows) -> str | None:
    """`data`, `budget` or `undecided`: what limits the runs of one model, size and budget; None where nothing tells.

    A model that fits its own training items hardly better than new ones has not used up its data; one that is right
    in every validation item has nothing left to gain.
    """
    share = fitted_share(rows)
    if share is None:
        return None
    if all(row.get("validation_accuracy") == 1 for row in rows):
        return "undecided"
    return "budget" if share > BUDGET else "data" if share < DATA else "undecided"


def list_limits(rows: Rows) -> dict[tuple[str, float], str]:
    """(model, training-set size) -> what limits that cell; without cells whose runs lack the numbers."""
    cells: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["train_size"]), []).append(row)
    return {cell: limit for cell, runs in cells.items() if (limit := limit_of(runs)) is not None}


def predict_gain(rows: Rows) -> float | None:
    """Points of error that twice the budget is expected to bring to runs that it limits; None without their errors."""
    errors = [error for row in rows if (error := finite(row.get("error"))) is not None]
    return 100 * FALL * fmean(errors) if errors else None
