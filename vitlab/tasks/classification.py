"""One label per image: cross-entropy, accuracy; in detail top-5, calibration, confusion.

Shapes: B batch, C channels, Y x X pixels.
"""

from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassCalibrationError

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.augment import Mixing
from vitlab.data.base import ImageData
from vitlab.tasks.common.images import ImageTask
from vitlab.tasks.common.metrics import Confusion, ItemOutcomes, Mean, Reliability
from vitlab.tasks.metrics import CHOICES, IMAGES, MOST_CONFUSED, build_metrics
from vitlab.tasks.metrics.classification import BINS

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X), labels (B,) or (B, classes)


class Classification(ImageTask):
    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        if not data.classes:
            raise UserError(f"data={data.name}: has no classes; give task={data_config.task}")
        if data.train.targets is not None:
            raise UserError(f"data={data.name}: has several labels for an image; give task=multilabel")
        super().__init__(recipe, data, data_config)
        self.train, self.validation, self.test = data.train, data.validation, data.test
        self.classes = self.strata = data.classes
        self.outputs = len(data.classes)
        self.shape = {**data.shape, "num_classes": self.outputs}
        self.label_smoothing, self.class_weights = recipe.label_smoothing, recipe.class_weights
        self.mixing = Mixing(recipe, self.outputs)

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        """Normalised images, and labels (B,), or (B, classes) of shares where the recipe mixed them."""
        images, labels = self.images(batch[0], generator), batch[1]
        return (images, labels) if generator is None else self.mixing(images, labels, generator)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        weight = None if self.class_weights is None else self.balanced_weights.to(images.device)
        options = {"weight": weight, "label_smoothing": self.label_smoothing, "reduction": "sum"}
        return F.cross_entropy(model(images), labels, **options)[None]

    @cached_property
    def balanced_weights(self) -> Tensor:
        """(classes,): items / (classes * items of the class) of the training set; their mean over its items is 1."""
        chosen = slice(None) if self.training_indices is None else self.training_indices
        counts = np.bincount(self.train.labels[chosen], minlength=self.outputs)
        return torch.from_numpy(counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1))).float()

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """accuracy and loss; `detailed` adds what `build_class_metrics` says."""
        return MetricCollection(build_class_metrics(self.outputs, detailed), compute_groups=False)

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Batch) -> None:
        update_class_metrics(metrics, self.logits(model, batch), batch[1])


def build_class_metrics(outputs: int, detailed: bool = False, of: str = IMAGES) -> dict[str, Metric]:
    """The loss and the metrics of `vitlab.tasks.metrics` of a choice among as many classes as there are outputs.

    `detailed` adds reliability (see `Reliability`), outcomes (see `ItemOutcomes`: which items are right) and, up to
    MOST_CONFUSED classes that mean the same in every item, confusion_matrix (C, C), a row per true class.
    """
    metrics: dict[str, Metric] = {**dict(build_metrics(of, outputs, detailed)), "loss": Mean()}
    if detailed:
        metrics["outcomes"] = ItemOutcomes()
        metrics["reliability"] = Reliability(outputs, n_bins=BINS, validate_args=False)
        if of != CHOICES and outputs <= MOST_CONFUSED:
            metrics["confusion_matrix"] = Confusion(outputs)
    return metrics


def update_class_metrics(
    metrics: MetricCollection, logits: Tensor, labels: Tensor, counted: Tensor | None = None
) -> None:
    """Add logits (B, classes) and labels (B,) to metrics of classes.

    With bool `counted` of the shape of the labels, which may then be (B, N), only these count.
    """
    if "outcomes" in metrics:
        metrics["outcomes"].update(logits.argmax(dim=-1) == labels, counted if labels.ndim > 1 else None)
    if counted is not None:
        logits, labels = logits[counted], labels[counted]
    for name, metric in metrics.items():
        if name == "outcomes":
            continue
        if name == "loss":
            # a mean takes one value per example, so that a short last batch weighs what it should
            metric.update(F.cross_entropy(logits, labels, reduction="none"))
        elif isinstance(metric, MulticlassCalibrationError):
            metric.update(logits.softmax(dim=1), labels)  # it would take logits in 0..1 for probabilities
        else:
            metric.update(logits, labels)


def build(config: TaskConfig, *, recipe: RecipeConfig, data: ImageData, data_config: DataConfig) -> Classification:
    return Classification(config, recipe, data, data_config)
