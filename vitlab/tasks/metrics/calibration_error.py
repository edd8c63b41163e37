"""Expected calibration error: how far confidence is from accuracy, over bins (Guo et al., 2017)."""

from typing import Any

from vitlab.tasks.metrics import CHOICES, CLASSES, Metric

BINS = 15  # of confidence
METRICS = (
    Metric(
        "calibration_error", "calibration error", False, False, priority=620, is_compared=False, of=(*CLASSES, CHOICES)
    ),
)


def build(key: str, outputs: int) -> Any:
    from torchmetrics.classification import MulticlassCalibrationError

    return MulticlassCalibrationError(outputs, n_bins=BINS, norm="l1", validate_args=False)
