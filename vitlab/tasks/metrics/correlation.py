"""The correlations of predicted numbers with true ones: of values (Pearson) and of ranks (Spearman)."""

from typing import Any

from vitlab.tasks.metrics import NUMBERS, Metric

LOSS = "squared error of standardised numbers"
COMMON: dict[str, Any] = {
    "gap_unit": "in correlation",
    "loss": LOSS,
    "of": (NUMBERS,),
    "classes": (1, 1),  # one output
    "detailed": False,
}
METRICS = (
    Metric("pearson", "Pearson correlation", priority=50, **COMMON),
    Metric("spearman", "Spearman correlation", priority=60, **COMMON),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics import SpearmanCorrCoef

    from vitlab.tasks.common.metrics import Pearson

    return Pearson() if key == "pearson" else SpearmanCorrCoef()
