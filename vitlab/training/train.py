"""Training: a prepared run, Lightning's Trainer as this program uses it, and what others do while it trains."""

import json
import logging
import math
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import lightning.pytorch as L
import numpy as np
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy

from vitlab.data.loader import eval_loader, train_loader
from vitlab.data.split import examples
from vitlab.files import replacing
from vitlab.models.counting import checkpointed
from vitlab.tasks import writes_texts
from vitlab.tasks.base import evaluate
from vitlab.training.callbacks import (
    Checkpointing,
    Clock,
    Measurements,
    OwnSignals,
    PeriodicAnalysis,
    Reporting,
    Selection,
    refuse_not_finite,
)
from vitlab.training.checkpoints import read_checkpoint
from vitlab.training.distributed import PATIENCE, Ranks
from vitlab.training.files import Progress, RunFiles
from vitlab.training.module import TrainingModule
from vitlab.training.optim import build_averages
from vitlab.training.run import Run, leaves_unused
from vitlab.training.settings import Settings, evaluation_context


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes whole files or none; Lightning's own moves files across file systems. Unpickles nothing.

    `check_claim` is called before a file takes the place of another, and raises where it must not.
    """

    def __init__(self, check_claim: Callable[[], None]):
        super().__init__()
        self.check_claim = check_claim

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with replacing(path) as file:
            torch.save(checkpoint, file)
            self.check_claim()

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(path, map_location)


class Place(LightningEnvironment):
    """What Lightning asks of a process's place; it starts no others, here or inside SLURM."""

    creates_processes_externally = True

    def __init__(self, ranks: Ranks):
        super().__init__()
        self.ranks = ranks
        self.set_global_rank(ranks.rank)
        self.set_world_size(ranks.size)

    def local_rank(self) -> int:
        return self.ranks.local_rank

    def node_rank(self) -> int:
        return self.ranks.node

    def teardown(self) -> None:
        """Lightning's own takes WORLD_SIZE out of the environment."""


LOG, CUDNN = logging.getLogger("lightning.pytorch"), torch.backends.cudnn
PROCESS = (  # how to read, and to set, what a run or Lightning sets for the whole process
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_rng_state, torch.set_rng_state),
    (np.random.get_state, np.random.set_state),
    (random.getstate, random.setstate),
    (partial(getattr, CUDNN, "benchmark"), partial(setattr, CUDNN, "benchmark")),
    (partial(getattr, LOG, "level"), LOG.setLevel),
)
VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "PL_GLOBAL_SEED", "PL_SEED_WORKERS")


@contextmanager
def keep_process_settings() -> Iterator[None]:
    """Set back what a run changes for its whole process, so that a notebook goes on with its own."""
    before = [(put, get()) for get, put in PROCESS]
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for put, value in before:
            put(value)
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(variables)


def build_trainer(
    settings: Settings,
    check_claim: Callable[[], None],
    ranks: Ranks,
    *,
    unused: bool,
    callbacks: Sequence[L.Callback],
    **options: Any,
) -> L.Trainer:
    """A trainer on these settings; `check_claim` is that of its checkpoints, `options` are Lightning's.

    `unused`: the loss does not depend on all parameters of the model.
    """
    # advice on hardware, loaders and srun, which this program decides on
    LOG.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(lightning\.pytorch\.(trainer|loops|utilities)|torchmetrics)\..*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers|The `srun` command is available on your")
    return L.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.nodes,
        # buffers are those of synchronised BatchNorm, the same everywhere
        strategy=DDPStrategy(find_unused_parameters=unused, forward_sync_buffers=False, timeout=PATIENCE)
        if ranks.size > 1
        else "auto",
        sync_batchnorm=ranks.size > 1 and settings.accelerator == "gpu",
        use_distributed_sampler=False,  # the loaders know of the devices
        precision=settings.precision,
        deterministic=settings.deterministic,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        plugins=[AtomicCheckpointIO(check_claim), Place(ranks)],
        callbacks=[OwnSignals(), *callbacks],
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


class JsonLines(Logger):
    """Appends a JSON object per line to metrics.jsonl, `step` first. Values that are not finite become null."""

    name, version = "metrics", ""

    def __init__(self, files: RunFiles, check_claim: Callable[[], None]):
        super().__init__()
        self.check_claim = check_claim
        files.folder.mkdir(parents=True, exist_ok=True)
        self.file = files.metrics_path.open("a")

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.check_claim()
        row = {"step": step, **metrics}
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        self.file.write(json.dumps(finite) + "\n")
        self.file.flush()


class Endless:
    """A loader without a length, so that Lightning ends at max_steps, at whatever step the loader begins."""

    def __init__(self, loader: Iterable[Any]):
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


SAMPLE = 2000  # training items, at most, on which a trained model is measured


@dataclass(frozen=True)
class Hooks:
    """What others do while a run trains, on rank 0; their order has no effect."""

    progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] | None = None  # asked after each step whether training is to stop there
    check_claim: Callable[[], None] = lambda: None  # before a file is written; raises where another process trains it
    analyze: Callable[[int], None] | None = None  # every `trainer.analyze_every` steps, with the weights evaluated
    loggers: Sequence[Logger] = ()  # of the rows of metrics.jsonl


class Trained(NamedTuple):
    """What training gives, with its weights in the run's model."""

    validation: dict[str, float]  # of the weights that are kept
    columns: dict[str, Any]  # of results.csv


class Tested(NamedTuple):
    columns: dict[str, float | int | None]  # of results.csv
    outcomes: np.ndarray  # what each item gave (2, items), as the metric of that name says
    texts: list[str] | None  # that a task generated


def train(run: Run, hooks: Hooks = Hooks()) -> Trained:
    """Train on every rank, from last.ckpt where there is one, with evaluations on the validation data.

    Raises Interrupted when `hooks.stop` says so, Diverged for a loss or a metric that is not finite.
    """
    config, settings, ranks = run.config, run.settings, run.ranks
    recipe, batch_size = config.recipe, config.recipe.batch_size
    run.set_memory_format()
    if settings.compile:
        run.model.compile()
    module = build_module(run)
    clock = Clock()
    averages = build_averages(recipe, run.prepared.steps, run.device)
    show_average = averages[0].show_average if averages else nullcontext
    measurements = Measurements(clock, config.trainer.log_every, batch_size)
    selection = Selection(recipe, run.task.metric, show_average)
    lines = JsonLines(run.files, hooks.check_claim) if ranks.is_main else None
    trainer = build_trainer(
        settings,
        hooks.check_claim,
        ranks,
        unused=ranks.size > 1 and leaves_unused(config, run.task),
        max_steps=run.last_step,
        val_check_interval=max(1, math.ceil(run.prepared.steps / config.trainer.evaluations)),
        log_every_n_steps=config.trainer.log_every,
        logger=[lines, *hooks.loggers] if lines else False,
        callbacks=[
            clock,  # the others read it
            *averages,  # and show these; Lightning calls Checkpointing last
            measurements,
            selection,
            PeriodicAnalysis(hooks.analyze, config.trainer.analyze_every, clock, show_average),
            Reporting(hooks.progress, measurements),
            Checkpointing(run.files.checkpoint_path, config.trainer.checkpoint_every, clock, hooks.stop, ranks.agree),
        ],
        default_root_dir=run.files.folder,
    )
    batches, validation = build_loaders(run)
    resumed_from = run.files.checkpoint_path if run.resumed_step else None
    try:
        with checkpointed(run.model) if config.trainer.checkpoint_activations else nullcontext():
            trainer.fit(module, Endless(batches), validation, ckpt_path=resumed_from, weights_only=True)
        for average in averages:
            average.on_train_end(trainer, module)  # a run resumed at its last step skips it
        if module.evaluated_step != trainer.global_step:  # resumed at its end
            trainer.validate(module, validation, verbose=False)
    finally:
        if lines:
            lines.file.close()
    run.last_step = trainer.global_step
    columns = {
        "train_loss": measurements.train_loss,
        "images_per_s": round(clock.steps_timed * batch_size / clock.train_s, 1) if clock.train_s else None,
        "wall_s": round(clock.wall_s, 2),
    }
    if not selection.keep:
        return Trained(module.validation, columns)
    run.model.load_state_dict(selection.weights)
    if ranks.is_main:
        state = {"state_dict": module.state_dict(), "global_step": selection.step}
        module.on_save_checkpoint(state)
        AtomicCheckpointIO(hooks.check_claim).save_checkpoint(state, run.files.best_path)
    return Trained(selection.metrics, {"kept_step": selection.step, **columns})


def build_module(run: Run) -> TrainingModule:
    """The LightningModule of a run."""
    return TrainingModule(
        run.model,
        run.task,
        run.config.recipe,
        steps=run.prepared.steps,
        seed=run.config.seed,
        shape=run.task.shape,
        classes=run.task.classes,
        width=vars(run.config.model).get("width"),
        log_to_loggers=False,  # Measurements writes the rows
        part=run.ranks.part,
        accumulate=run.config.trainer.accumulate,
    )


def build_loaders(run: Run) -> tuple[Any, Any]:
    """This rank's part of the training batches that are left, and of the validation data."""
    recipe = run.config.recipe
    shared = {"workers": run.settings.workers, "device": run.device, "part": run.ranks.part}
    batches = train_loader(
        run.task.train,
        run.prepared.indices,
        batch_size=recipe.batch_size,
        steps=run.prepared.steps,
        seed=run.config.seed,
        start=run.resumed_step,
        repeats=recipe.repeats,
        **shared,
    )
    together = run.task.eval_batch_size or max(recipe.batch_size, 256)
    return batches, eval_loader(run.task.validation, batch_size=together, **shared)


def test(run: Run) -> Tested:
    """The metrics of results.csv on the test data, by the weights in the run's model. Nothing reads these data before.

    Raises Diverged for a metric that is not finite.
    """
    _, autocast = evaluation_context(run.settings.precision, run.settings.accelerator)
    collected = evaluate(
        run.placed_model().eval(), run.task, run.task.test, autocast, run.settings.workers, detailed=True
    )
    values, texts = collected.compute(), dict(collected).get("texts")
    metrics = {name: float(value) for name, value in values.items() if not value.ndim}
    for name, value in metrics.items():
        refuse_not_finite(f"test {name}", value, run.last_step, run.config.recipe)
    return Tested(
        {"accuracy": None, **metrics, "test_items": len(run.task.test)},
        values["outcomes"].cpu().numpy(),
        texts.list_texts() if texts is not None else None,
    )


def compare_splits(run: Run, validation: dict[str, float]) -> dict[str, float]:
    """Columns of results.csv that tell whether data or budget limit a run; reads no test data.

    `validation_NAME` and `train_sample_NAME` are the metrics of the weights that count, on the validation items (also
    those of texts that the model writes) and on a fixed, stratified sample of the run's own training items without
    augmentation. `validation_slope` is the fall of the log validation error (of the loss without an accuracy) for each
    doubling of the steps, over the last quarter.
    """
    _, autocast = evaluation_context(run.settings.precision, run.settings.accelerator)
    split, indices = run.task.train, run.prepared.indices
    sample = indices[examples(split.labels[indices], min(SAMPLE, len(run.task.validation)))]
    model = run.placed_model().eval()
    fitted = evaluate(model, run.task, split, autocast, run.settings.workers, indices=sample).compute()
    if writes_texts(run.task):  # at the end alone: to write takes longer than to train
        found = evaluate(model, run.task, run.task.validation, autocast, run.settings.workers, detailed=True).compute()
        validation = {name: float(value) for name, value in found.items() if not value.ndim} | validation
    columns = {f"validation_{name}": value for name, value in validation.items()}
    columns |= {f"train_sample_{name}": float(value) for name, value in fitted.items()}
    key = "validation/accuracy" if "accuracy" in validation else "validation/loss"
    late = [row for row in run.files.metrics() if row.get(key) is not None and row["step"] >= 0.75 * run.last_step]
    if len(late) > 1:
        lowest = 0.5 / len(run.task.validation)
        first, last = (
            math.log(max(1 - row[key] if key == "validation/accuracy" else row[key], lowest))
            for row in (late[0], late[-1])
        )
        columns["validation_slope"] = (first - last) / math.log2(late[-1]["step"] / late[0]["step"])
    return columns
