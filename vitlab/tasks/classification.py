"""One label per image: cross-entropy, accuracy.

Shapes: B batch, C channels, Y x X pixels.
"""

import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Generator, Tensor, nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from vitlab.data.augment import augment, normalize
from vitlab.data.base import ImageData

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X), labels (B,)


class Classification:
    def __init__(self, config: DictConfig, recipe: DictConfig, data: ImageData, data_config: DictConfig):
        self.outputs = len(data.classes)
        self.label_smoothing = recipe.label_smoothing
        self.mean, self.std = list(data_config.mean), list(data_config.std)
        self.flip, self.shift = data_config.augment.flip, data_config.augment.shift

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        images, labels = batch
        if generator is not None:
            images = augment(images, self.flip, self.shift, generator)
        return normalize(images, self.mean, self.std), labels

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels, label_smoothing=self.label_smoothing)

    def metrics(self) -> MetricCollection:
        return MetricCollection(
            {"accuracy": MulticlassAccuracy(self.outputs, average="micro"), "loss": MeanMetric()},
            compute_groups=False,
        )

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Batch) -> None:
        images, labels = batch
        logits = model(images).float()
        metrics["accuracy"].update(logits, labels)
        # the metric of the mean takes one value per image, so that a short last batch weighs what it should
        metrics["loss"].update(F.cross_entropy(logits, labels, reduction="none"))


def build(config: DictConfig, *, recipe: DictConfig, data: ImageData, data_config: DictConfig) -> Classification:
    return Classification(config, recipe, data, data_config)
