"""One label per image: cross-entropy, accuracy.

Shapes: B batch, C channels, Y x X pixels.
"""

import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Generator, Tensor, nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from vitlab.config import UserError
from vitlab.data.augment import augment, crop, normalize
from vitlab.data.base import ImageData
from vitlab.data.mixing import Mixing
from vitlab.data.rand_augment import rand_augment

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X), labels (B,) or (B, classes)


class Classification:
    def __init__(self, config: DictConfig, recipe: DictConfig, data: ImageData, data_config: DictConfig):
        self.outputs = len(data.classes)
        self.label_smoothing = recipe.label_smoothing
        self.mean, self.std = list(data_config.mean), list(data_config.std)
        self.flip, self.shift = data_config.augment.flip, data_config.augment.shift
        self.crop_scale = data_config.augment.crop_scale and list(data_config.augment.crop_scale)
        self.rand_augment = recipe.rand_augment if recipe.rand_augment.layers else None
        self.mixing = Mixing(recipe, self.outputs)
        if self.rand_augment is not None and data.channels not in (1, 3):
            raise UserError(
                f"recipe.rand_augment.layers={recipe.rand_augment.layers}: its operations take images of 1 or 3 "
                f"channels, data={data.name} has {data.channels}; give recipe.rand_augment.layers=0"
            )

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        """Normalised images, and labels (B,), or (B, classes) of shares where the recipe mixed them."""
        images, labels = batch
        if generator is None:
            return normalize(images, self.mean, self.std), labels
        images = crop(images, self.crop_scale, generator)
        images = augment(images, self.flip, self.shift, generator)
        images = rand_augment(images, self.rand_augment, generator)
        return self.mixing(normalize(images, self.mean, self.std), labels, generator)

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
