"""The Matthews correlation of two or more classes."""

from typing import Any

from vitlab.tasks.metrics import MOST_CONFUSED, TAGS, TEXTS, Metric

METRICS = (
    Metric(
        "matthews",
        "Matthews correlation",
        gap_unit="in correlation",
        priority=40,
        of=(TEXTS, TAGS),
        classes=(2, MOST_CONFUSED),
        detailed=False,
    ),
)


def build(key: str, outputs: int) -> Any:
    from vitlab.tasks.common.metrics import Matthews

    return Matthews(outputs)
