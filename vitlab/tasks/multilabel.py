"""Several labels per image: binary cross-entropy, mean average precision over the labels.

Shapes: B batch, C labels, Y x X pixels.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torchmetrics import MetricCollection

from vitlab.config import UserError
from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import ImageData
from vitlab.tasks.common.images import ImageTask, refuse_mixing
from vitlab.tasks.common.metrics import ItemOutcomes, Mean
from vitlab.tasks.metrics import LABELS, build_metrics

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X), targets float (B, C) of 0 and 1


class Multilabel(ImageTask):
    target_dtype = torch.float32

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        if not data.classes or data.train.targets is None:
            raise UserError(f"data={data.name}: has no images with several labels; give task={data_config.task}")
        refuse_mixing(recipe, config.name)
        super().__init__(recipe, data, data_config)
        self.train, self.validation, self.test = data.train, data.validation, data.test
        self.classes, self.outputs = data.classes, len(data.classes)
        self.target_shape = (self.outputs,)
        self.shape = {**data.shape, "num_classes": self.outputs}

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        return self.images(batch[0], generator), batch[1]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over the labels, summed over the images (1,)."""
        return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1], reduction="sum")[None] / self.outputs

    def metrics(self, detailed: bool = False) -> MetricCollection:
        metrics = {**dict(build_metrics(LABELS, self.outputs, detailed)), "loss": Mean()}
        return MetricCollection(metrics | ({"outcomes": ItemOutcomes()} if detailed else {}), compute_groups=False)

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Batch) -> None:
        logits, targets = self.logits(model, batch), batch[1]
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)
        for name, metric in metrics.items():
            if name in ("loss", "outcomes"):
                metric.update(losses)
            else:
                metric.update(logits, targets.long())


def build(config: TaskConfig, *, recipe: RecipeConfig, data: ImageData, data_config: DataConfig) -> Multilabel:
    return Multilabel(config, recipe, data, data_config)
