"""Top-5 accuracy: the share of items whose class is among the five likeliest."""

import sys
from typing import Any

from vitlab.tasks.metrics import CHOICES, CLASSES, Metric

METRICS = (
    Metric(
        "top5_accuracy",
        "top-5 accuracy",
        percent=True,
        priority=610,
        is_compared=False,
        of=(*CLASSES, CHOICES),
        classes=(6, sys.maxsize),
    ),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(outputs, average="micro", top_k=5, validate_args=False)
