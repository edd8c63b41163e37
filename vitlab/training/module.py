"""The one LightningModule: a model, its task, its recipe."""

import math
from functools import cached_property
from typing import Any, Literal

import lightning.pytorch as L
import torch
from torch import Tensor, nn

from vitlab.data.loader import Part
from vitlab.tasks.base import fill
from vitlab.training.optim import build_optimizer, build_schedule
from vitlab.training.run import Run

# Independent RNG streams, so adding draws in one does not shift another. Initial weights: torch's generator with the
# run's seed; subset: `subset_seed`; order of items: the seed and the epoch; steps: `step_seed`.
SEED_STRIDE = 1_000_003  # runs of different seeds share no step's seed before their millionth step
PART_STRIDE = 2_000_000_011  # likewise parts of a batch; a CPU's generator takes 32 bits of a seed


class TrainingModule(L.LightningModule):
    """Trains a run's model on its task for the run's optimizer steps.

    Each process computes its part of a batch in `accumulate` parts, one after another. The run's seed, the step and the
    number of the part in the whole batch seed all randomness of a step (augmentation, dropout, stochastic depth), so a
    resumed training repeats the step bit for bit.

    Logs `train/loss` to the trainer's `callback_metrics` and loggers every `log_every_n_steps`, the task's metrics as
    `validation/NAME` after every validation.
    """

    def __init__(self, run: Run):
        super().__init__()
        self.run, self.model, self.task, self.recipe = run, run.model, run.trained, run.config.recipe
        self.part, self.accumulate = run.ranks.part, run.settings.accumulate
        self.loss: Tensor | None = None  # of the last step, on its device
        self.clipped_norm: Tensor | None = None  # of the last step's gradients, before they were clipped
        self.rate = math.nan  # the learning rate of the last step
        self.validation: dict[str, float] = {}
        self.evaluated_step = -1
        self.metrics = self.task.metrics()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the model's build arguments, its classes and the targets' scale: the model is usable without its data."""
        checkpoint["shape"] = {k: list(v) if isinstance(v, tuple) else v for k, v in self.task.shape.items()}
        checkpoint["classes"] = list(self.task.classes)
        checkpoint["scale"] = self.task.scale

    def step_seed(self, use: Literal["dropout", "augmentation"], number: int) -> int:
        """Compute the seed of a use at this step, in this process's `number`-th part; "dropout" seeds depth too."""
        part = self.part.number * self.accumulate + number
        seed = self.run.config.seed * SEED_STRIDE + self.global_step + part * PART_STRIDE
        return ~seed if use == "augmentation" else seed

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.accumulate > 1:
            self.trainer.optimizers[0].zero_grad()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Run the backward passes of all parts but the last; return the last part's loss.

        Divides each sum over targets by their number in the whole batch, on all devices.
        """
        parts = [self.prepare(batch, number) for number in range(self.accumulate)]
        counts = self.add_devices(sum(self.task.count_targets(part) for part in parts)).clamp(min=1)
        losses: list[Tensor] = []
        for number, part in enumerate(parts):
            # torch.manual_seed would keep a traceback for each missing kind of device
            torch.default_generator.manual_seed(seed := self.step_seed("dropout", number))
            if self.device.type == "cuda":
                torch.cuda.manual_seed(seed)
            loss = (self.task.loss(self.model, part) / counts).sum()
            losses.append(loss.detach())
            loss = loss * self.part.count  # DDP takes the mean of the devices' gradients
            if number < self.accumulate - 1:
                self.trainer.strategy.backward(loss, None)
                torch.clear_autocast_cache()  # its casts of weights belong to a freed graph
        self.loss = self.add_devices(torch.stack(losses).sum())
        return loss

    def prepare(self, batch: Any, number: int) -> Any:
        """Augment and normalize the `number`-th part of this process's batch."""
        generator = torch.Generator(self.device).manual_seed(self.step_seed("augmentation", number))
        rows = [Part(number, self.accumulate).of(each) for each in batch]
        with torch.autocast(self.device.type, enabled=False):  # bfloat16 is too coarse for the positions of pixels
            return self.task.prepare(rows, generator)

    def add_devices(self, values: Tensor) -> Tensor:
        """Sum values over the devices, in place, and return them."""
        if self.part.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def optimizer_zero_grad(self, *args: Any) -> None:
        if self.accumulate == 1:  # else `training_step` already adds up gradients
            super().optimizer_zero_grad(*args)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        every = self.trainer.log_every_n_steps  # 0: never
        if every and self.global_step % every == 0:  # self.log is slow: 0.4 ms a call
            self.log("train/loss", self.loss)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch if device.type == "cpu" else super().transfer_batch_to_device(batch, device, dataloader_idx)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self.rate = max(group["lr"] for group in optimizer.param_groups)  # with layer-wise decay: of the last layer
        if self.recipe.clip_norm is not None:
            self.clipped_norm = nn.utils.clip_grad_norm_(self.trained, self.recipe.clip_norm)

    @cached_property
    def trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def grad_norm(self) -> Tensor:
        """The norm of the last step's gradients, before clipping."""
        norm = self.clipped_norm
        if norm is None:  # the gradients are those of the step until the next one
            norm = nn.utils.get_total_norm([p.grad for p in self.trained if p.grad is not None])
        return norm

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        fill(self.metrics, self.task.measure(self.run.model, self.task.prepare(batch)))

    def on_validation_epoch_end(self) -> None:
        self.validation = {name: float(value) for name, value in self.metrics.compute().items()}
        self.metrics.reset()
        self.evaluated_step = self.global_step
        named = {f"validation/{name}": value for name, value in self.validation.items()}
        self.log_dict(named)

    def configure_optimizers(self) -> dict[str, Any]:
        # with a scaled loss a fused optimizer unscales gradients itself, after clipping: too late
        fused = self.trainer.precision != "16-mixed"
        optimizer = build_optimizer(self.model, self.recipe, fused=fused)
        width = vars(self.run.config.model).get("width")  # for the schedule noam
        scheduler = build_schedule(optimizer, self.recipe, self.run.steps, width)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
