"""The accuracy of always choosing the most frequent class."""

from typing import Any

from vitlab.tasks.metrics import CHOICES, CLASSES, Metric

METRICS = (Metric("chance", "chance", percent=True, priority=600, is_compared=False, of=(*CLASSES, CHOICES)),)


def build(key: str, outputs: int) -> Any:
    from vitlab.tasks.common.metrics import LargestShare

    return LargestShare(outputs)
