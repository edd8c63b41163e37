"""Metrics of classes and labels: shares that are right, F1, Matthews, average precision, calibration."""

import sys
from typing import Any

from vitlab.tasks.metrics import CHOICES, CLASSES, LABELS, MOST_CONFUSED, TAGS, TEXTS, Metric

BINS = 15  # of confidence
POINTS: dict[str, Any] = {"percent": True, "gap_unit": "points"}
EVERY = (*CLASSES, CHOICES)
METRICS = (
    Metric("accuracy", "accuracy", **POINTS, priority=0, gives_error=True, of=EVERY, detailed=False),
    # the mean over the labels of the area under precision against recall, as of VOC and COCO
    Metric(
        "map",
        "mAP",
        **POINTS,
        loss="binary cross-entropy, nats",
        priority=10,
        gives_error=True,
        of=(LABELS,),
        classes=(1, sys.maxsize),
        detailed=False,
    ),
    Metric(
        "matthews",
        "Matthews correlation",
        gap_unit="in correlation",
        priority=40,
        of=(TEXTS, TAGS),
        classes=(2, MOST_CONFUSED),
        detailed=False,
    ),
    # of the second of two classes (MRPC and QQP of GLUE: Wang et al., 2019), else the mean over the classes
    Metric("f1", "F1", gap_unit="F1", priority=70, of=(TEXTS,), detailed=False),
    # the mean over the classes of the share that is right (Brodersen et al., 2010)
    Metric("balanced_accuracy", "balanced accuracy", **POINTS, priority=90, of=CLASSES),
    Metric("macro_f1", "macro F1", **POINTS, priority=100, of=CLASSES),
    Metric("chance", "chance", percent=True, priority=600, is_compared=False, of=EVERY),  # of the most frequent class
    Metric(
        "top5_accuracy",
        "top-5 accuracy",
        percent=True,
        priority=610,
        is_compared=False,
        of=EVERY,
        classes=(6, sys.maxsize),
    ),
    # how far confidence is from accuracy, over bins (Guo et al., 2017)
    Metric("calibration_error", "calibration error", False, False, priority=620, is_compared=False, of=EVERY),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

    from vitlab.tasks.common import metrics

    every = {"average": "micro", "validate_args": False}
    return {
        "accuracy": lambda: MulticlassAccuracy(outputs, **every),
        "map": lambda: metrics.AveragePrecision(outputs, average="none", validate_args=False),
        "matthews": lambda: metrics.Matthews(outputs),
        "f1": lambda: metrics.SecondClassF1() if outputs == 2 else metrics.MacroF1(outputs),
        "balanced_accuracy": lambda: metrics.BalancedAccuracy(outputs),
        "macro_f1": lambda: metrics.MacroF1(outputs),
        "chance": lambda: metrics.LargestShare(outputs),
        "top5_accuracy": lambda: MulticlassAccuracy(outputs, top_k=5, **every),
        "calibration_error": lambda: MulticlassCalibrationError(outputs, n_bins=BINS, norm="l1", validate_args=False),
    }[key]()
