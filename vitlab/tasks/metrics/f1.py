"""F1: of the second of two classes (MRPC and QQP of GLUE: Wang et al., 2019), else the mean over the classes."""

from typing import Any

from vitlab.tasks.metrics import TEXTS, Metric

METRICS = (Metric("f1", "F1", gap_unit="F1", priority=70, of=(TEXTS,), detailed=False),)


def build(key: str, outputs: int) -> Any:
    from vitlab.tasks.common.metrics import MacroF1, SecondClassF1

    return SecondClassF1() if outputs == 2 else MacroF1(outputs)
