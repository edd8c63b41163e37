"""Accuracy: the share of items whose likeliest class is right."""

from typing import Any

from vitlab.tasks.metrics import CHOICES, CLASSES, Metric

METRICS = (
    Metric(
        "accuracy",
        "accuracy",
        percent=True,
        gap_unit="points",
        priority=0,
        gives_error=True,
        of=(*CLASSES, CHOICES),
        detailed=False,
    ),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(outputs, average="micro", validate_args=False)
