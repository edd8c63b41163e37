"""Train a run: Lightning's Trainer as this program uses it, and hooks into other code."""

import logging
import math
import os
import random
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import lightning.pytorch as L
import numpy as np
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader

from vitlab.data.base import Show
from vitlab.data.loader import eval_loader, train_loader
from vitlab.data.split import subset
from vitlab.files import replacing
from vitlab.models.counting import checkpointed
from vitlab.tasks.base import by_length
from vitlab.training.distributed import PATIENCE
from vitlab.training.loop import NO_HOOKS, Hooks, Loop, refuse_not_finite
from vitlab.training.module import TrainingModule
from vitlab.training.run import Run, make_meta_model


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes whole files or none, with no move across file systems; loads the run's checkpoint.

    Calls `check_claim` before it replaces a file; `check_claim` raises if another process owns the run.
    """

    def __init__(self, run: Run, check_claim: Callable[[], None]):
        super().__init__()
        self.run, self.check_claim = run, check_claim

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with replacing(path) as file:
            torch.save(checkpoint, file)
            self.check_claim()

    def load_checkpoint(self, *_: Any, **__: Any) -> dict[str, Any]:
        state, self.run.checkpoint = self.run.checkpoint, None  # Lightning frees the state after restoring it
        return state


LOG, CUDNN = logging.getLogger("lightning.pytorch"), torch.backends.cudnn
PROCESS = (  # functions that read and set the process-wide settings a run or Lightning changes
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_rng_state, torch.set_rng_state),
    (np.random.get_state, np.random.set_state),
    (random.getstate, random.setstate),
    (partial(getattr, CUDNN, "benchmark"), partial(setattr, CUDNN, "benchmark")),
    (partial(getattr, LOG, "level"), LOG.setLevel),
)
VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "PL_GLOBAL_SEED", "PL_SEED_WORKERS", "WORLD_SIZE")


@contextmanager
def keep_process_settings() -> Iterator[None]:
    """Restore on exit the process-wide settings that a run changes, so that a notebook keeps its own."""
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


def build_trainer(run: Run, loop: Loop) -> L.Trainer:
    """Build Lightning's trainer of a run; it writes no files of its own."""
    # silence advice on hardware, loaders and srun: this program decides on them
    LOG.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(lightning\.pytorch\.(trainer|loops|utilities)|torchmetrics)\..*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers|The `srun` command is available on your")
    # Lightning alone would find SLURM's environment, also for a single process inside it
    config, settings, strategy, environment = run.config, run.settings, "auto", LightningEnvironment()
    if run.ranks.size > 1:  # all ranks have the same buffers: those of synchronised BatchNorm
        environment = TorchElasticEnvironment()
        model = make_meta_model(config, run.task).eval()
        run.task.loss(model, run.task.example()).sum().backward()
        unused = any(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
        strategy = DDPStrategy(find_unused_parameters=unused, forward_sync_buffers=False, timeout=PATIENCE)
    return L.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.nodes,
        strategy=strategy,
        sync_batchnorm=run.ranks.size > 1 and settings.accelerator == "gpu",
        use_distributed_sampler=False,  # the loaders know of the devices
        precision=settings.precision,
        deterministic=settings.deterministic,
        max_epochs=-1,
        max_steps=run.last_step,
        check_val_every_n_epoch=None,
        val_check_interval=max(1, math.ceil(run.steps / config.trainer.evaluations)),
        num_sanity_val_steps=0,
        log_every_n_steps=0,  # `loop` does
        plugins=[AtomicCheckpointIO(run, loop.hooks.check_claim), environment],
        callbacks=[loop],
        logger=False,
        enable_checkpointing=False,  # `loop` writes them
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=run.files.folder,
    )


SAMPLE = 2000  # training items, at most, to measure a trained model on


class Trained(NamedTuple):
    """Hold the outcome of training; the run's model holds the weights."""

    validation: dict[str, float]  # of the kept weights
    columns: dict[str, Any]  # of results.csv


class Tested(NamedTuple):
    columns: dict[str, float | int | None]  # of results.csv
    outcome: str  # the metric of the outcomes: accuracy, exact_match, a score of texts, or loss
    outcomes: np.ndarray  # of each item (2, items), as `measures.ItemOutcomes` returns them
    texts: list[str] | None  # that a task generated


def train(run: Run, hooks: Hooks = NO_HOOKS) -> Trained:
    """Train on every rank, from last.ckpt if there is one, with evaluations on the validation data.

    Raises Interrupted when `hooks.stop` returns True, Diverged for a loss or a metric that is not finite.
    """
    recipe, batch_size = run.config.recipe, run.config.recipe.batch_size
    if run.settings.compile:
        run.model.compile()
    module, loop = TrainingModule(run), Loop(run, hooks)
    if run.plan.head:
        run.trained.train.read(run.indices[:1])  # compute all features before timing the steps
    trainer = build_trainer(run, loop)
    batches, validation = build_loaders(run)
    resumed_from = run.files.checkpoint_path if run.checkpoint else None
    saving = checkpointed(module.model) if run.settings.checkpoint_activations else nullcontext()
    with closing(batches), saving:  # close ends the workers
        trainer.fit(module, batches, validation, ckpt_path=resumed_from, weights_only=True)
    if module.evaluated_step != trainer.global_step:  # resumed at the end of training
        trainer.validate(module, validation, verbose=False)
    run.last_step = trainer.global_step
    columns = {
        "train_loss": loop.train_loss,
        "images_per_s": round(loop.steps_timed * batch_size / loop.train_s, 1) if loop.train_s else None,
        "wall_s": round(loop.wall_s - loop.shared[1], 2),
        **({"shared_steps": loop.shared[0]} if run.fork else {}),
    }
    if recipe.keep != "best":
        return Trained(module.validation, columns)
    run.model.load_state_dict(loop.weights)
    if run.ranks.is_main:
        module.model = run.model
        state = {"state_dict": module.state_dict(), "global_step": loop.kept_step}
        module.on_save_checkpoint(state)
        AtomicCheckpointIO(run, hooks.check_claim).save_checkpoint(state, run.files.best_path)
    return Trained(loop.metrics, {"kept_step": loop.kept_step, **columns})


def build_loaders(run: Run) -> tuple[Generator[Any], DataLoader]:
    """Build this rank's loaders: the remaining training batches, and the validation data.

    Gives the batches no length, so that Lightning ends at max_steps, whichever step they begin at.
    """
    recipe = run.config.recipe
    shared = {"workers": run.settings.workers, "device": run.device, "part": run.ranks.part}
    batches = train_loader(
        run.trained.train,
        run.indices,
        batch_size=recipe.batch_size,
        steps=run.steps,
        seed=run.config.seed,
        start=run.resumed_step,
        repeats=recipe.repeats,
        **shared,
    )
    together = run.task.eval_batch_size or max(recipe.batch_size, 256)
    return iter(batches), eval_loader(run.trained.validation, batch_size=together, **shared)


def test(run: Run, progress: Show) -> Tested:
    """Test the weights in the run's model for results.csv. No earlier step reads the test data.

    Raises Diverged for a metric that is not finite.
    """
    order = by_length(run.trained.test)
    collected, place = run.evaluate(run.trained.test, detailed=True, indices=order, progress=progress), order.argsort()
    values, texts = collected.compute(), dict(collected).get("texts")
    metrics = {name: float(value) for name, value in values.items() if not value.ndim}
    for name, value in metrics.items():
        refuse_not_finite(f"test {name}", value, run.last_step, run.config.recipe)
    outcomes, scores = values["outcomes"].cpu(), ("bleu", "rouge_l") if run.config.task.metric is None else ()
    key = next((key for key in ("accuracy", "exact_match", *scores) if key in metrics), "loss")
    if key in scores:
        outcomes = np.stack([texts.list_influences(key), np.ones(len(texts.hypotheses))])
    return Tested(
        {"accuracy": None, **metrics, "test_items": len(run.task.test)},
        key,
        np.asarray(outcomes)[:, place],
        [*map(texts.list_texts().__getitem__, place)] if texts is not None else None,
    )


def compare_splits(run: Run, validation: dict[str, float], progress: Show) -> dict[str, float]:
    """Compute columns of results.csv that tell whether a run is undertrained; reads no test data.

    Measures the kept weights without augmentation: `validation_NAME` on the validation items (also metrics of texts
    that the model writes, for `task.test_items` of them), `train_sample_NAME` on a fixed, stratified sample of the
    run's own training items.
    """
    task, split, indices = run.trained, run.trained.train, run.indices
    sample = indices[subset(split.labels[indices], min(SAMPLE, len(task.validation)), seed=0)]
    fitted = run.evaluate(split, indices=sample).compute()
    if task.writes_texts:  # only at the end: writing takes longer than training
        count = min(task.test_items, len(task.validation))
        chosen = by_length(task.validation, subset(task.validation.labels, count, seed=0))
        found = run.evaluate(task.validation, detailed=True, indices=chosen, progress=progress).compute()
        validation = {name: float(value) for name, value in found.items() if not value.ndim} | validation
    columns = {f"validation_{name}": value for name, value in validation.items()}
    return columns | {f"train_sample_{name}": float(value) for name, value in fitted.items()}
