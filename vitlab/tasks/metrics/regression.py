"""How far predicted numbers are from the true ones."""

from typing import Any

from vitlab.tasks.metrics import MEASURES, Metric

COMMON: dict[str, Any] = {
    "loss": "squared error of standardised numbers",
    "of": (MEASURES,),
    "classes": (1, 1),  # one output
    "detailed": False,
}
METRICS = (
    Metric(
        "nrmse",
        "normalised RMSE",  # over the standard deviation of the test targets: 1 is what always says their mean
        higher_is_better=False,
        priority=20,
        is_error=True,
        gives_error=True,
        **COMMON,
    ),
    Metric("mae", "mean absolute error", higher_is_better=False, priority=30, is_error=True, **COMMON),
    Metric("r2", "R2", priority=40, **COMMON),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics import MeanAbsoluteError, R2Score

    from vitlab.tasks.common.metrics import NormalisedError

    return {"nrmse": NormalisedError, "mae": MeanAbsoluteError, "r2": R2Score}[key]()
