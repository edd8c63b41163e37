"""What limits each cell of a study: its data, its budget or its model."""

from collections import Counter
from typing import Any

Rows = list[dict[str, Any]]


def list_limits(rows: Rows) -> dict[tuple[str, float], str]:
    """ "data", "budget", "model" or "undecided" by model and training-set size; no entry where a run does not tell."""
    votes: dict[tuple[str, float], Counter[str]] = {}
    for row in rows:
        if row.get("limit"):
            votes.setdefault((row["model"], row["train_size"]), Counter())[row["limit"]] += 1
    return {cell: counts.most_common(1)[0][0] for cell, counts in votes.items()}


def predict_gain(rows: Rows) -> float | None:
    """The points that twice the budget is expected to bring."""
    return None
