"""Mean average precision: the mean over the labels of the area under precision against recall, as of VOC and COCO."""

import sys
from typing import Any

from vitlab.tasks.metrics import LABELS, Metric

METRICS = (
    Metric(
        "map",
        "mAP",
        percent=True,
        gap_unit="points",
        loss="binary cross-entropy, nats",
        priority=10,
        gives_error=True,
        of=(LABELS,),
        classes=(1, sys.maxsize),
        detailed=False,
    ),
)


def build(key: str, outputs: int) -> Any:
    from vitlab.tasks.common.metrics import AveragePrecision

    return AveragePrecision(outputs, average="none", validate_args=False)
