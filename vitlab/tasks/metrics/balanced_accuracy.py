"""Balanced accuracy: the mean over the classes of the share that is right (Brodersen et al., 2010)."""

from typing import Any

from vitlab.tasks.metrics import CLASSES, Metric

METRICS = (Metric("balanced_accuracy", "balanced accuracy", percent=True, gap_unit="points", priority=90, of=CLASSES),)


def build(key: str, outputs: int) -> Any:
    from vitlab.tasks.common.metrics import BalancedAccuracy

    return BalancedAccuracy(outputs)
