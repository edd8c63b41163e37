"""The work around training steps: times, rows, analyses, progress, the best weights, checkpoints."""

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn

from vitlab.config.schema import RecipeConfig
from vitlab.tasks.metrics import Metric
from vitlab.training.files import Progress
from vitlab.training.optim import list_averaged_steps
from vitlab.training.run import Run

REPORT_EVERY = 0.3  # seconds between two reports of progress, at least


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


def score(metrics: Mapping[str, float], metric: Metric) -> tuple[float, float]:
    """Score an evaluation by the task's metric, then by the lower loss; a larger score is better."""
    return metric.lead(metrics[metric.key], 0.0), -metrics["loss"]


@dataclass(frozen=True)
class Hooks:
    """Holds calls into other code while a run trains, on rank 0; their order has no effect."""

    progress: Callable[[Progress], None] = lambda _: None
    stop: Callable[[], bool] | None = None  # after each step; True stops training there
    check_claim: Callable[[], None] = lambda: None  # before writing a file; raises if another process trains the run
    analyze: Callable[[int], None] | None = None  # every `trainer.analyze_every` steps, on the evaluated weights
    log: Callable[[dict[str, Any]], None] | None = None  # each row of metrics.jsonl


NO_HOOKS = Hooks()
STATE = ("train_s", "steps_timed", "losses", "train_loss", "evaluated", "waited", "kept_step", "metrics", "weights")
STATE += ("averaged", "shared")


def list_averaged(module: nn.Module) -> list[torch.Tensor]:
    """List the averaged tensors: parameters, and floating-point buffers (BatchNorm's statistics)."""
    return [each for each in (*module.parameters(), *module.buffers()) if each.is_floating_point()]


class Loop(L.Callback):
    """Does the work around each step, in the order written here. Raises Diverged and Interrupted.

    If the recipe averages weights, the module trains one model and a copy, the run's model, holds the average: the
    loop evaluates, analyzes and saves the copy. last.ckpt holds best weights, counts and the decision to stop, so a run
    killed anywhere resumes to the same end; Lightning's EarlyStopping, ModelCheckpoint and WeightAveraging do not
    resume so.
    """

    def __init__(self, run: Run, hooks: Hooks):
        self.run, self.hooks = run, hooks
        self.recipe, self.settings = run.config.recipe, run.settings
        self.handler = signal.getsignal(signal.SIGTERM)
        # seconds of the run, and of its training steps alone; each adds up over interruptions
        self.started = self.mark = time.perf_counter()  # mark: when the current step began to wait for its batch
        self.train_s, self.steps_timed = 0.0, 0
        self.timed = (0.0, 0)  # train_s and steps_timed at the last row
        self.losses: list[torch.Tensor] = []  # since the last row
        self.train_loss = math.nan  # the mean loss in the last row
        self.reported = -math.inf  # time of the last progress report
        self.first: tuple[float, int] | None = None  # time and step at which the pace begins
        self.evaluated = 0  # the last evaluated step
        self.waited = 0  # evaluations since the best one
        self.kept_step = 0  # step of the best evaluation
        self.metrics: dict[str, float] = {}
        self.weights: dict[str, torch.Tensor] = {}  # of the best evaluation, on the CPU; {} without keep=best
        self.averaged_steps = list_averaged_steps(self.recipe, run.steps)
        if self.averaged_steps:
            run.model = deepcopy(run.model_on_device()).eval()
        self.averaged = 0  # steps whose weights are in the average
        self.shared = (0, 0.0)  # steps and seconds trained by another run: see `Run.find_trunk`

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self.started

    @property
    def stopped(self) -> bool:
        return self.recipe.patience is not None and self.waited >= self.recipe.patience

    def state_dict(self) -> dict[str, Any]:
        return {"wall_s": self.wall_s, "stopped": self.stopped, **{name: vars(self)[name] for name in STATE}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.started -= state["wall_s"]
        vars(self).update({name: state[name] for name in STATE})
        if self.run.trunk:
            self.shared = (self.run.resumed_step, state["wall_s"])

    def on_save_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the average as the run's weights; beside it save the weights from which training resumes."""
        if self.averaged_steps:
            average = {f"model.{name}": value for name, value in self.run.model.state_dict().items()}
            checkpoint |= {"state_dict": average, "training": checkpoint["state_dict"]}

    def on_load_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.averaged_steps:
            self.run.model.load_state_dict(module.model.state_dict())
            module.load_state_dict(checkpoint["training"])

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.keep_handler()
        self.losses = [each.to(module.device) for each in self.losses]
        self.timed = (self.train_s, self.steps_timed)
        # `saved_at` counts analyses, unlike `started`: a kill would lose them too
        self.mark = self.saved_at = time.perf_counter()

    def keep_handler(self) -> None:
        """Keep this program's SIGTERM handler: Lightning's ends a run within an evaluation, without a checkpoint."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        step, every = trainer.global_step, self.settings.analyze_every
        if self.averaged_steps:
            self.add_to_average(step, module)
        self.count_time()
        self.steps_timed += 1
        self.losses.append(module.loss)
        if step % self.settings.log_every == 0 or step == self.run.steps:
            self.write_row(step, module)
        if self.hooks.analyze and every and step % every == 0 and step < self.run.steps:
            began = time.perf_counter()
            with isolate_rng():
                self.hooks.analyze(step)
            passed = time.perf_counter() - began  # counts neither for the run nor for its steps
            self.started, self.mark = self.started + passed, self.mark + passed
        self.report(step, trainer, module)
        if self.run.trunks is not None and step == self.run.branch:
            self.save(trainer, self.run.files.trunk_path)
        # never save between a step and its evaluation: the resumed run would skip it
        if step % trainer.val_check_batch:
            self.save_or_stop(trainer)

    def save_or_stop(self, trainer: L.Trainer) -> None:
        due = time.perf_counter() - self.saved_at >= self.settings.checkpoint_every
        stopping, due = self.run.ranks.agree(self.hooks.stop is not None and self.hooks.stop(), due)
        if stopping or due:
            self.save(trainer)
        if stopping:
            raise Interrupted

    @torch.no_grad()
    def add_to_average(self, step: int, module: L.LightningModule) -> None:
        """Average the module's weights into the run's model; before the average begins, copy them."""
        self.averaged += step in self.averaged_steps
        if not self.averaged or step in self.averaged_steps:
            share = 1 - self.recipe.ema if self.recipe.ema and self.averaged > 1 else 1 / max(1, self.averaged)
            torch._foreach_lerp_(list_averaged(self.run.model), list_averaged(module.model), share)

    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.keep_handler()
        self.wait_for_gpu(module)

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Keep the best evaluation's weights (`keep`); end training after `patience` evaluations without a better."""
        step, metrics = module.evaluated_step, module.validation
        for name, value in metrics.items():
            refuse_not_finite(f"validation {name}", value, step, self.recipe)
        self.add_row({"step": step, **{f"validation/{name}": value for name, value in metrics.items()}})
        if step > self.evaluated:  # else somebody started a finished training again
            self.evaluated, metric, counts = step, self.run.task.metric, step > self.run.fork
            self.waited += counts  # runs of larger budgets share the steps before the cooldown: choose nothing there
            if counts and (not self.metrics or score(metrics, metric) > score(self.metrics, metric)):
                self.waited, self.kept_step, self.metrics = 0, step, dict(metrics)
                if self.recipe.keep == "best":
                    state = self.run.model.state_dict()
                    self.weights = {key: value.detach().cpu().clone() for key, value in state.items()}
            if self.stopped:
                trainer.should_stop = True
            elif step < self.run.steps:  # else the end of training saves
                self.save_or_stop(trainer)
        self.mark = time.perf_counter()

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.wait_for_gpu(module)
        if self.losses:  # training stopped early, between two rows
            self.write_row(trainer.global_step, module)
        self.save(trainer)

    def count_time(self) -> None:
        """Count the time since the mark as training."""
        now = time.perf_counter()
        self.train_s, self.mark = self.train_s + now - self.mark, now

    def wait_for_gpu(self, module: L.LightningModule) -> None:
        """Wait until a GPU has finished the steps so far; count that time before other work uses the GPU."""
        if module.device.type == "cuda" and self.steps_timed:
            torch.cuda.synchronize(module.device)
            self.count_time()

    def write_row(self, step: int, module: L.LightningModule) -> None:
        """Write a row with the mean loss since the last row, the learning rate, norms and speed."""
        batch_size = self.recipe.batch_size
        self.train_loss = torch.stack(self.losses).mean().item()
        self.losses.clear()
        refuse_not_finite("loss", self.train_loss, step, self.recipe)
        seconds, steps = self.train_s - self.timed[0], self.steps_timed - self.timed[1]
        self.timed = (self.train_s, self.steps_timed)
        with torch.no_grad():
            norm = torch.stack(torch._foreach_norm(list(module.model.parameters()))).norm().item()
        row = {
            "step": step,
            "examples_seen": step * batch_size,
            "wall_s": round(self.wall_s, 3),
            "train/loss": self.train_loss,
            "train/lr": module.rate,
            "train/grad_norm": float(module.grad_norm),
            "train/param_norm": norm,
            "train/images_per_s": round(steps * batch_size / seconds, 1) if seconds else None,
        }
        self.add_row(row)

    def add_row(self, row: dict[str, Any]) -> None:
        if self.run.ranks.is_main:
            self.hooks.check_claim()
            self.run.files.add_metrics(row)
            if self.hooks.log:
                self.hooks.log(row)

    def report(self, step: int, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Report progress with the last row's loss: reading this step's loss would wait for a GPU."""
        now = time.perf_counter()
        if self.first is None:
            self.first = (now, step)  # the first step is slow and would spoil the pace
        if now - self.reported >= REPORT_EVERY or step in (self.run.steps, trainer.max_steps):
            self.reported = now
            pace = (now - self.first[0]) / (step - self.first[1]) if step > self.first[1] else None
            left = None if pace is None else pace * (self.run.steps - step)
            loss = None if math.isnan(self.train_loss) else self.train_loss
            self.hooks.progress(Progress(step, self.run.steps, left, loss, dict(module.validation)))

    def save(self, trainer: L.Trainer, path: Path | None = None) -> None:
        trainer.save_checkpoint(path or self.run.files.checkpoint_path)
        self.mark = self.saved_at = time.perf_counter()
