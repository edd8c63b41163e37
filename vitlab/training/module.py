"""The one LightningModule: a model, its task, its recipe."""

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import lightning.pytorch as L
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.data.parts import Part, PartGenerator
from vitlab.tasks.base import Task
from vitlab.training.optimization.optimizers import build_optimizer
from vitlab.training.optimization.schedules import build_schedule

SEED_STRIDE = 1_000_003  # runs of different seeds share no step's seed before their millionth step
PART_STRIDE = 2_000_000_011  # likewise parts of a batch; a CPU's generator takes 32 bits of a seed


class TrainingModule(L.LightningModule):
    """Trains `model` on `task` for `steps` optimizer steps.

    All randomness of a step (augmentation, dropout, stochastic depth) is seeded by (seed, step), so that a resumed
    training repeats the step bit for bit. This process has the `part` of each batch, which it computes in `accumulate`
    parts: augmentation is that of the whole batch, dropout differs from part to part. `shape` is what the model was
    built for, `classes` are the names of its classes; `width` is the model's, for the schedule noam.

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
        part: Part | None = None,
        accumulate: int = 1,
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
        self.part = part or Part()
        self.accumulate = accumulate
        self.loss: Tensor | None = None  # of the last step, on its device
        self.clipped_norm: Tensor | None = None  # of the last step's gradients, before they were clipped
        self.rate = math.nan  # the learning rate of the last step
        self.validation: dict[str, float] = {}
        self.evaluated_step = -1
        self.metrics = task.metrics()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what the model was built for, so that it can be built again without its data."""
        checkpoint["shape"] = {k: list(v) if isinstance(v, tuple) else v for k, v in self.shape.items()}
        checkpoint["classes"] = list(self.classes)

    @property
    def step_seed(self) -> int:
        return self.seed * SEED_STRIDE + self.global_step

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.accumulate > 1:
            self.trainer.optimizers[0].zero_grad()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of the last part, after the backward passes of those before it."""
        parts = self.part.split(self.accumulate)
        prepared, weights = (self.prepare(batch, part) for part in parts), itertools.repeat(None)
        if parts[0].count > 1 and hasattr(self.task, "count_targets"):
            prepared = list(prepared)
            weights = self.weigh_terms([self.task.count_targets(examples) for examples in prepared])
        losses: list[Tensor] = []
        for part, examples, of_terms in zip(parts, prepared, weights, strict=False):
            seed_dropout(self.step_seed + part.number * PART_STRIDE, self.device)
            loss = self.task.loss(self.model, examples, *([] if of_terms is None else [of_terms]))
            loss = loss / len(parts) if len(parts) > 1 else loss
            losses.append(loss.detach())
            if len(losses) < len(parts):
                self.trainer.strategy.backward(loss, None)
                torch.clear_autocast_cache()  # of weights whose graph is gone
        total = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        self.loss = self.add_devices(total) / self.part.count if self.part.count > 1 else total
        return loss

    def prepare(self, batch: Any, part: Part) -> Any:
        """What the model sees of a part of what this process read."""
        seed = ~self.step_seed  # not the stream that dropout draws from
        if part.count == 1:
            generator = torch.Generator(self.device).manual_seed(seed)
        else:
            size = self.recipe.batch_size
            generator = PartGenerator(self.device, part, size).manual_seed(seed)
            batch = [part.take(rows, self.part, size) for rows in batch]
        with torch.autocast(self.device.type, enabled=False):  # bfloat16 is too coarse for the positions of pixels
            return self.task.prepare(batch, generator)

    def weigh_terms(self, counts: Sequence[Tensor | None]) -> Iterable[Tensor | None]:
        """What makes the mean of the parts' losses that of the whole batch: for each part the weights of its terms.

        counts: of each of this process's parts the targets of each term.
        """
        if counts[0] is None:
            return counts
        total = self.add_devices(torch.stack(counts).sum(dim=0))
        return [own * len(counts) * self.part.count / total.clamp(min=1) for own in counts]

    def add_devices(self, values: Tensor) -> Tensor:
        """The sum over the devices of what each one has."""
        if self.part.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def optimizer_zero_grad(self, *args: Any) -> None:
        if self.accumulate == 1:  # else `training_step` has begun to add them up
            super().optimizer_zero_grad(*args)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        every = self.trainer.log_every_n_steps  # 0: never
        if every and self.global_step % every == 0:  # self.log is slow: 0.4 ms a call
            self.log("train/loss", self.loss, logger=self.log_to_loggers)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch if device.type == "cpu" else super().transfer_batch_to_device(batch, device, dataloader_idx)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self.rate = max(group["lr"] for group in optimizer.param_groups)  # with layer-wise decay: of the last layer
        if self.clip_norm is not None:
            self.clipped_norm = nn.utils.clip_grad_norm_(self.trained, self.clip_norm)

    @cached_property
    def clip_norm(self) -> float | None:
        return self.recipe.clip_norm  # a DictConfig reads slowly

    @cached_property
    def trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def grad_norm(self) -> Tensor:
        """Of the last step, before clipping."""
        norm = self.clipped_norm
        if norm is None:  # the gradients are those of the step until the next one
            norm = nn.utils.get_total_norm([p.grad for p in self.trained if p.grad is not None])
        return gather(norm)

    def on_validation_epoch_start(self) -> None:
        self.metrics.reset()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.task.update(self.metrics, self.model, self.task.prepare(batch))

    def on_validation_epoch_end(self) -> None:
        self.validation = {name: float(value) for name, value in self.metrics.compute().items()}
        self.evaluated_step = self.global_step
        named = {f"validation/{name}": value for name, value in self.validation.items()}
        self.log_dict(named, logger=self.log_to_loggers)

    @property
    def can_fuse(self) -> bool:
        """Not with a scaled loss: a fused optimizer would scale gradients back by itself, after they were clipped."""
        return self.trainer.precision != "16-mixed"

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = build_optimizer(self.model, self.recipe, fused=self.can_fuse)
        scheduler = build_schedule(optimizer, self.recipe, self.steps, self.width)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def seed_dropout(seed: int, device: torch.device) -> None:
    """As torch.manual_seed does it for a device: that keeps a traceback for each other kind of device there is not."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def gather(tensor: Tensor) -> Tensor:
    """A tensor whole, where it is sharded."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
