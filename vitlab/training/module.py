"""The one LightningModule: a model, its task, its recipe."""

import math
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as L
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.tasks.base import Task
from vitlab.training.optimization.optimizers import build_optimizer
from vitlab.training.optimization.schedules import build_schedule

SEED_STRIDE = 1_000_003  # runs of different seeds share no step's seed before their millionth step


class TrainingModule(L.LightningModule):
    """Trains `model` on `task` for `steps` optimizer steps.

    All randomness of a step (augmentation, dropout, stochastic depth) is seeded by (seed, step), so that a resumed
    training repeats the step bit for bit. `shape` is what the model was built for, `classes` are the names of its
    classes; `width` is the model's, for the schedule noam.

    `train/loss` is in the trainer's `callback_metrics` at every `log_every_n_steps`, the task's metrics as
    `validation/NAME` after every validation; with `log_to_loggers` in its loggers too.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        recipe: DictConfig,
        *,
        steps: int,
        seed: int,
        shape: dict[str, Any],
        classes: Sequence[str],
        width: int | None = None,
        log_to_loggers: bool = True,
    ):
        super().__init__()
        self.model = model
        self.task = task
        self.recipe = recipe
        self.steps = steps
        self.seed = seed
        self.shape = shape
        self.classes = classes
        self.width = width
        self.log_to_loggers = log_to_loggers
        self.loss: Tensor | None = None  # of the last step, on its device
        self.grad_norm: Tensor | None = None
        self.rate = math.nan  # the learning rate of the last step
        self.validation: dict[str, float] = {}
        self.evaluated_step = -1
        self.metrics = task.metrics()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what the model was built for, so that it can be built again without its data."""
        checkpoint["shape"] = {k: list(v) if isinstance(v, tuple) else v for k, v in self.shape.items()}
        checkpoint["classes"] = list(self.classes)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        torch.manual_seed(self.seed * SEED_STRIDE + self.global_step)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        # not the stream that dropout draws from
        generator = torch.Generator(self.device).manual_seed(~(self.seed * SEED_STRIDE + self.global_step))
        with torch.autocast(self.device.type, enabled=False):  # bfloat16 is too coarse for the positions of pixels
            batch = self.task.prepare(batch, generator)
        loss = self.task.loss(self.model, batch)
        self.loss = loss.detach()
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        every = self.trainer.log_every_n_steps  # 0: never
        if every and self.global_step % every == 0:  # self.log is slow: 0.4 ms a call
            self.log("train/loss", self.loss, logger=self.log_to_loggers)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self.rate = max(group["lr"] for group in optimizer.param_groups)  # with layer-wise decay: of the last layer
        limit = self.recipe.clip_norm
        self.grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), float("inf") if limit is None else limit)

    def on_validation_epoch_start(self) -> None:
        self.metrics.reset()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.task.update(self.metrics, self.model, self.task.prepare(batch))

    def on_validation_epoch_end(self) -> None:
        self.validation = {name: float(value) for name, value in self.metrics.compute().items()}
        self.evaluated_step = self.global_step
        named = {f"validation/{name}": value for name, value in self.validation.items()}
        self.log_dict(named, logger=self.log_to_loggers)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = build_optimizer(self.model, self.recipe)
        scheduler = build_schedule(optimizer, self.recipe, self.steps, self.width)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
