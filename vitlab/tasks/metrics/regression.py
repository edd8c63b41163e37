"""Metrics of numbers: of pictures, how far off they are; of texts, their correlation with the true ones."""

from typing import Any

from vitlab.tasks.metrics import MEASURES, NUMBERS, Metric

COMMON: dict[str, Any] = {  # of one output
    "loss": "squared error of standardised numbers",
    "classes": (1, 1),
    "detailed": False,
}
WORSE: dict[str, Any] = {"higher_is_better": False, "is_error": True, "of": (MEASURES,), **COMMON}
TEXT: dict[str, Any] = {"gap_unit": "in correlation", "of": (NUMBERS,), **COMMON}
METRICS = (
    # over the standard deviation of the test targets: 1 is what always says their mean
    Metric("nrmse", "normalised RMSE", priority=20, gives_error=True, **WORSE),
    Metric("mae", "mean absolute error", priority=30, **WORSE),
    Metric("r2", "R2", priority=40, of=(MEASURES,), **COMMON),
    Metric("pearson", "Pearson correlation", priority=50, **TEXT),
    Metric("spearman", "Spearman correlation", priority=60, **TEXT),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics import MeanAbsoluteError, R2Score, SpearmanCorrCoef

    from vitlab.tasks.common.metrics import NormalisedError, Pearson

    of_key = {"nrmse": NormalisedError, "mae": MeanAbsoluteError, "r2": R2Score, "pearson": Pearson}
    return of_key.get(key, SpearmanCorrCoef)()
