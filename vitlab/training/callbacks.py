"""Callbacks of a run: timing, logging, progress, early stopping and the best weights, checkpoints."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.seed import isolate_rng

from vitlab.config.schema import RecipeConfig
from vitlab.tasks.metrics import Metric
from vitlab.training.files import Progress

REPORT_EVERY = 0.3  # seconds between two reports of progress


class Interrupted(Exception):
    """Training was asked to stop; its checkpoint is written."""


class Diverged(Exception):
    """The training loss, or a metric, is not finite."""


def refuse_not_finite(name: str, value: float, step: int, recipe: RecipeConfig) -> None:
    """Raise Diverged for a value that is not finite."""
    if not math.isfinite(value):
        raise Diverged(
            f"the {name} is {value} at step {step}: try a lower recipe.lr (now {recipe.lr:g}) or gradient clipping "
            f"with recipe.clip_norm (now {recipe.clip_norm})"
        )


class OwnSignals(L.Callback):
    """Keeps this program's handler of SIGTERM. Lightning's ends a run within an evaluation, without a checkpoint."""

    def setup(self, trainer: L.Trainer, module: L.LightningModule, stage: str) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def restore(self, *_: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)

    on_train_start = on_validation_start = restore


class Clock(L.Callback):
    """Seconds of the run and of its training steps alone, summed over interruptions."""

    def __init__(self) -> None:
        self.before = 0.0  # of earlier attempts
        self.train_s = 0.0
        self.steps_timed = 0
        self.started = time.perf_counter()
        self.mark = self.started  # when the current step began, waiting for its batch included

    @property
    def wall_s(self) -> float:
        return self.before + time.perf_counter() - self.started

    def leave_out(self, *_: Any) -> None:
        """Do not count the time since the last step as training."""
        self.mark = time.perf_counter()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock: this time counts neither for the run nor for its steps."""
        began = time.perf_counter()
        try:
            yield
        finally:
            gone = time.perf_counter() - began
            self.started += gone
            self.mark += gone

    on_train_start = leave_out
    on_validation_end = leave_out

    def wait_for_gpu(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Count what a GPU has still to do of the steps so far, before something else uses it."""
        if module.device.type == "cuda" and self.steps_timed:
            torch.cuda.synchronize(module.device)
            now = time.perf_counter()
            self.train_s += now - self.mark
            self.mark = now

    on_validation_start = wait_for_gpu
    on_train_end = wait_for_gpu

    def on_train_batch_end(self, *_: Any) -> None:
        now = time.perf_counter()
        self.train_s += now - self.mark
        self.mark = now
        self.steps_timed += 1

    def state_dict(self) -> dict[str, Any]:
        return {"wall_s": self.wall_s, "train_s": self.train_s, "steps_timed": self.steps_timed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.before = state["wall_s"]
        self.train_s, self.steps_timed = state["train_s"], state["steps_timed"]


@dataclass(eq=False)
class Measurements(L.Callback):
    """Writes rows to the loggers: mean loss since the last row, rate, norms, speed; validation metrics.

    Raises Diverged for a loss or a metric that is not finite.
    """

    clock: Clock
    every: int
    batch_size: int
    losses: list[torch.Tensor] = field(default_factory=list)
    train_loss: float = math.nan
    timed: tuple[float, int] = (0.0, 0)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.timed = (self.clock.train_s, self.clock.steps_timed)
        self.losses = [loss.to(module.device) for loss in self.losses]

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        self.losses.append(module.loss)
        if trainer.global_step % self.every == 0 or trainer.global_step == module.steps:
            self.write_row(trainer, module)

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if self.losses:  # it stopped early, between two rows
            self.write_row(trainer, module)

    def write_row(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        step = trainer.global_step
        self.train_loss = torch.stack(self.losses).mean().item()
        self.losses.clear()
        refuse_not_finite("loss", self.train_loss, step, module.recipe)
        seconds, steps = self.clock.train_s - self.timed[0], self.clock.steps_timed - self.timed[1]
        self.timed = (self.clock.train_s, self.clock.steps_timed)
        with torch.no_grad():
            norm = torch.stack(torch._foreach_norm(list(module.model.parameters()))).norm().item()
        row = {
            "examples_seen": step * self.batch_size,
            "wall_s": round(self.clock.wall_s, 3),
            "train/loss": self.train_loss,
            "train/lr": module.rate,
            "train/grad_norm": float(module.grad_norm),
            "train/param_norm": norm,
            "train/images_per_s": round(steps * self.batch_size / seconds, 1) if seconds else None,
        }
        log(trainer, row, step)

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        for name, value in module.validation.items():
            refuse_not_finite(f"validation {name}", value, module.evaluated_step, module.recipe)
        log(trainer, {f"validation/{name}": value for name, value in module.validation.items()}, module.evaluated_step)

    def state_dict(self) -> dict[str, Any]:
        return {"losses": [loss.item() for loss in self.losses], "train_loss": self.train_loss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.losses = [torch.tensor(loss) for loss in state["losses"]]
        self.train_loss = state["train_loss"]


def log(trainer: L.Trainer, row: dict[str, Any], step: int) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(row, step)


@dataclass(eq=False)
class PeriodicAnalysis(L.Callback):
    """Calls `analyze(step)` every `every` steps except the last, without an effect on training or its times.

    `show_evaluated(module)` is a context in which the module has the weights that are evaluated.
    """

    analyze: Callable[[int], None] | None
    every: int | None
    clock: Clock
    show_evaluated: Callable[[L.LightningModule], AbstractContextManager]

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if self.analyze and self.every and step % self.every == 0 and step < module.steps:
            with self.clock.stopped(), self.show_evaluated(module), isolate_rng():
                self.analyze(step)


@dataclass(eq=False)
class Reporting(L.Callback):
    """Reports to `progress` every `REPORT_EVERY` seconds at most.

    The loss is that of the last row: reading a step's own would wait for a GPU.
    """

    progress: Callable[[Progress], None] | None
    measurements: Measurements
    last: float = -math.inf
    first: tuple[float, int] | None = None  # time and step from which the pace is measured

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        step, now = trainer.global_step, time.perf_counter()
        if self.first is None:
            self.first = (now, step)  # the first step is slow and would spoil the pace
        if self.progress and (now - self.last >= REPORT_EVERY or step in (module.steps, trainer.max_steps)):
            self.last = now
            pace = (now - self.first[0]) / (step - self.first[1]) if step > self.first[1] else None
            left = None if pace is None else pace * (module.steps - step)
            loss = self.measurements.train_loss
            loss = None if math.isnan(loss) else loss
            self.progress(Progress(step, module.steps, left, loss, dict(module.validation)))


def score(metrics: Mapping[str, float], metric: Metric) -> tuple[float, float]:
    """How good an evaluation is, larger is better: by the task's metric, of equal ones the lower loss."""
    return metric.lead(metrics[metric.key], 0.0), -metrics["loss"]


class Selection(L.Callback):
    """Ends training after `patience` evaluations without a better one, and keeps the weights of the best (`keep`).

    Not Lightning's EarlyStopping and ModelCheckpoint: here best weights, counts and the decision to stop are part of
    last.ckpt, so that a run that is killed anywhere goes on to the same end. `show(module)` puts the weights that are
    evaluated into the module.
    """

    on_train_batch_end = None  # it looks at evaluations alone

    def __init__(self, recipe: RecipeConfig, metric: Metric, show: Callable[..., AbstractContextManager]):
        self.patience, self.keep = recipe.patience, recipe.keep == "best"
        self.metric = metric
        self.show = show
        self.evaluated = 0  # the last step that was
        self.waited = 0  # evaluations since the best
        self.step = 0  # of the best
        self.metrics: dict[str, float] = {}
        self.weights: dict[str, torch.Tensor] = {}  # on the CPU; empty unless they are kept

    @property
    def stopped(self) -> bool:
        return self.patience is not None and self.waited >= self.patience

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if module.evaluated_step <= self.evaluated:  # a finished training that is started again
            return
        self.evaluated = module.evaluated_step
        if not self.metrics or score(module.validation, self.metric) > score(self.metrics, self.metric):
            self.waited, self.step, self.metrics = 0, module.evaluated_step, dict(module.validation)
            if self.keep:
                with self.show(module):
                    state = module.model.state_dict()
                    self.weights = {key: value.detach().cpu().clone() for key, value in state.items()}
        else:
            self.waited += 1
        if self.stopped:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        names = ("evaluated", "waited", "step", "metrics", "weights")
        return {**{name: vars(self)[name] for name in names}, "stopped": self.stopped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: value for name, value in state.items() if name != "stopped"})


@dataclass(eq=False)
class Checkpointing(Checkpoint):  # Lightning calls callbacks of this type last
    """Writes last.ckpt every `seconds`, at the end, and when `stop` says that the run is to stop here.

    `agree` makes what the first of several processes decides what all of them do.
    """

    path: Path
    seconds: float
    clock: Clock
    stop: Callable[[], bool] | None
    agree: Callable[..., Sequence[bool]]
    saved_at: float = 0.0  # wall time, not `clock`, which stops during analyses: a kill would lose those too

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.saved_at = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        # this step's evaluation is still to come: a run resumed from here would miss it
        if trainer.global_step % trainer.val_check_batch == 0 and module.evaluated_step != trainer.global_step:
            return
        due = time.perf_counter() - self.saved_at >= self.seconds
        stopping, due = self.agree(self.stop is not None and self.stop(), due)
        if stopping or due:
            self.save(trainer)
        if stopping:
            raise Interrupted

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.path)
        self.saved_at = time.perf_counter()
        self.clock.leave_out()
