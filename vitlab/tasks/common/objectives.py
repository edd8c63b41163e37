"""Objectives of text tasks: a class per text or per token, the right one of several choices, or a number.

Shapes: M items (texts, or tokens that carry a tag), C classes.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from vitlab.data.base import NO_TAG
from vitlab.tasks.classification import build_class_metrics, update_class_metrics
from vitlab.tasks.common.metrics import ItemOutcomes, MacroF1, Mean
from vitlab.tasks.metrics import CHOICES, NUMBERS, TAGS, TEXTS, build_metrics


class Classes:
    """One of `outputs` classes each: cross-entropy; items whose label is NO_TAG do not count."""

    dtype = torch.int64  # of targets
    scale = None  # as a task has it

    def __init__(self, outputs: int, label_smoothing: float):
        self.outputs = outputs
        self.label_smoothing = label_smoothing

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(..., C), (...) -> the sum over the items with a label; 0 where none has one."""
        options = {"ignore_index": NO_TAG, "label_smoothing": self.label_smoothing, "reduction": "sum"}
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), **options)

    def metrics(self, detailed: bool) -> dict[str, Metric]:
        return build_class_metrics(self.outputs, detailed, TEXTS)

    def update(self, metrics: MetricCollection, logits: Tensor, labels: Tensor) -> None:
        update_class_metrics(metrics, logits, labels, labels != NO_TAG)


class Tags(Classes):
    """A class of each token that carries one; f1 is the mean over classes, also over two: neither is the one sought."""

    def metrics(self, detailed: bool) -> dict[str, Metric]:
        return build_class_metrics(self.outputs, detailed, TAGS) | {"f1": MacroF1(self.outputs)}


class Choices(Classes):
    """The right one of as many choices as there are outputs; their order means nothing, so neither does an F1."""

    def metrics(self, detailed: bool) -> dict[str, Metric]:
        return build_class_metrics(self.outputs, detailed, CHOICES)


class Numbers:
    """A number each: mean squared error of standardised targets.

    The model gives (target - mean) / std, `scale`, of all training targets, so that a recipe's rate fits any unit; the
    loss of what always says the mean is 1.
    """

    outputs = 1
    dtype = torch.float32

    def __init__(self, targets: np.ndarray):
        """`targets` float (N,), of training; not all the same."""
        self.scale = float(targets.mean(dtype=np.float64)), float(targets.std(dtype=np.float64))

    def standardise(self, targets: Tensor) -> Tensor:
        """float32; computed in float64, for numbers far from 0."""
        return ((targets.double() - self.scale[0]) / self.scale[1]).float()

    def restore(self, numbers: Tensor) -> Tensor:
        """Standardised numbers in the unit of the targets."""
        return numbers * self.scale[1] + self.scale[0]

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(M, 1), (M,) -> the sum."""
        return F.mse_loss(logits[:, 0].float(), self.standardise(targets), reduction="sum")

    def metrics(self, detailed: bool) -> dict[str, Metric]:
        """loss, of standardised targets, and the metrics of numbers; `detailed` adds `ItemOutcomes`."""
        metrics = {**dict(build_metrics(NUMBERS, self.outputs, detailed)), "loss": Mean()}
        return metrics | ({"outcomes": ItemOutcomes()} if detailed else {})

    def update(self, metrics: MetricCollection, logits: Tensor, targets: Tensor) -> None:
        for name, metric in metrics.items():
            if name in ("loss", "outcomes"):
                metric.update(F.mse_loss(logits[:, 0], self.standardise(targets), reduction="none"))
            else:
                metric.update(logits[:, 0], targets)
