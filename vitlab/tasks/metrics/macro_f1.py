"""Macro F1: the mean over the classes of F1."""

from typing import Any

from vitlab.tasks.metrics import CLASSES, Metric

METRICS = (Metric("macro_f1", "macro F1", percent=True, gap_unit="points", priority=100, of=CLASSES),)


def build(key: str, outputs: int) -> Any:
    from vitlab.tasks.common.metrics import MacroF1

    return MacroF1(outputs)
