"""A number per image: mean squared error of standardised targets; metrics are in the targets' own unit.

Shapes: B batch, C channels, Y x X pixels.
"""

import numpy as np
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
from vitlab.tasks.common.objectives import Numbers
from vitlab.tasks.metrics import MEASURES, build_metrics

Batch = tuple[Tensor, Tensor]  # images (B, C, Y, X), targets float (B,)


class Regression(ImageTask):
    target_dtype = torch.float32
    outputs = 1

    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: ImageData, data_config: DataConfig):
        if data.train.targets is None or data.train.targets.ndim != 1:
            raise UserError(f"data={data.name}: has no number for each image; give task={data_config.task}")
        if np.ptp(data.train.targets) == 0:
            raise UserError(f"data={data.name}: all training targets are {data.train.targets[0]:g}: nothing to learn")
        refuse_mixing(recipe, config.name)
        super().__init__(recipe, data, data_config)
        self.objective = Numbers(data.train.targets)
        self.scale = self.objective.scale
        self.train, self.validation, self.test = data.train, data.validation, data.test
        self.shape = {**data.shape, "num_classes": self.outputs}

    def prepare(self, batch: Batch, generator: Generator | None = None) -> Batch:
        return self.images(batch[0], generator), batch[1]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.objective.loss(model(batch[0]), batch[1])[None]

    def metrics(self, detailed: bool = False) -> MetricCollection:
        metrics = {**dict(build_metrics(MEASURES, self.outputs, detailed)), "loss": Mean()}
        return MetricCollection(metrics | ({"outcomes": ItemOutcomes()} if detailed else {}), compute_groups=False)

    def update(self, metrics: MetricCollection, model: nn.Module, batch: Batch) -> None:
        predicted, targets = self.logits(model, batch)[:, 0], batch[1]
        losses = F.mse_loss(predicted, self.objective.standardise(targets), reduction="none")
        for name, metric in metrics.items():
            if name in ("loss", "outcomes"):
                metric.update(losses)
            else:
                metric.update(self.objective.restore(predicted), targets)


def build(config: TaskConfig, *, recipe: RecipeConfig, data: ImageData, data_config: DataConfig) -> Regression:
    return Regression(config, recipe, data, data_config)
