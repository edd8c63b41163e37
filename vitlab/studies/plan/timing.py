"""How long runs take on this machine: training steps and evaluations of each model are timed in worker processes.

As many processes work side by side as in the study, for neighbours slow each other down.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torchmetrics import MetricCollection

from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.base import Split
from vitlab.data.loader import eval_loader, train_loader
from vitlab.data.opening import open_data
from vitlab.models.counting.memory import checkpointed
from vitlab.studies.events import Event
from vitlab.studies.execute import execute
from vitlab.studies.executors.local import LocalExecutor
from vitlab.studies.grid import Spec
from vitlab.studies.job import log_to
from vitlab.studies.plan.study import Plan, describe_costs
from vitlab.training.optimization.optimizers import build_optimizer
from vitlab.training.prepare import prepare
from vitlab.training.run import Run
from vitlab.training.settings import Placement, evaluation_context

WARMUP = 3  # steps that are not timed: the first ones are slower
STEPS = 10  # that are timed
LONGEST = 20.0  # seconds of timed steps of a large model, for which fewer do


@dataclass(frozen=True)
class Times:
    """Seconds of a run's parts: its start, a training step, a validation item, a test item."""

    start: float
    step: float
    validation: float
    test: float


def time_variants(plan: Plan, progress: Callable[[str, int, int], None]) -> dict[str, Times]:
    """The times of each variant of a study, by variant. Raises UserError for one that fails.

    Of variants that cost the same one is timed.
    """
    alike: dict[str, list[Spec]] = {}
    for spec in {spec.config["variant"]: spec for spec in reversed(plan.specs)}.values():
        alike.setdefault(describe_costs(spec.config), []).append(spec)
    copies = [
        replace(same[0], name=f"{same[0].config['variant']}/{copy}")
        for same in alike.values()
        for copy in range(plan.neighbours)
    ]
    times: dict[str, list[Times]] = {}

    def notify(event: Event) -> None:
        variant = event.run.rpartition("/")[0]
        if event.kind in ("failed", "retried"):
            raise UserError(f"{variant}: {event.value}")
        if event.kind == "done":
            times.setdefault(variant, []).append(event.value)
        progress("timing the first steps of each model", sum(map(len, times.values())), len(copies))

    settled = {name: model.settled for name, model in plan.by_variant.items()}
    with tempfile.TemporaryDirectory(prefix="vitlab-") as folder:
        job = partial(time_run, Path(folder), plan.cores, settled)
        execute(LocalExecutor(job, plan.neighbours, Path(folder)), copies, Path(folder), notify)
    return {
        spec.config["variant"]: average(times[same[0].config["variant"]]) for same in alike.values() for spec in same
    }


def average(copies: list[Times]) -> Times:
    """The mean of each part."""
    return Times(*(mean(values) for values in zip(*map(astuple, copies), strict=True)))


def time_run(
    folder: Path,
    cores: int,
    settled: Mapping[str, Mapping[str, Any]],
    spec: Spec,
    report: Callable[[Any], None],
    stop: Callable[[], bool],
) -> Times:
    """What a worker does with a spec. A run of several devices is timed on one."""
    path = folder / spec.name
    path.mkdir(parents=True)
    with log_to(path / "log.txt"):
        began = time.perf_counter()
        config = compose(TrainConfig, base=spec.config)
        config = replace(config, trainer=replace(config.trainer, devices=1, nodes=1, strategy="auto"))
        placement = Placement(cores, settled[spec.config["variant"]])
        run = Run(prepare(config, open_data(config.data), placement), path)
        start = time.perf_counter() - began
        step = time_training(run, stop)
        validation = time_evaluation(run, run.task.validation, run.task.metrics())
        test = time_evaluation(run, run.task.test, run.task.metrics(detailed=True))
        return Times(start, step, validation, test)


def time_training(run: Run, stop: Callable[[], bool]) -> float:
    """The mean seconds of the steps after the first ones, on batches that the run would train on."""
    recipe, trainer = run.config.recipe, run.config.trainer
    run.set_memory_format()
    model = run.placed_model().train()
    if run.settings.compile:
        model.compile()
    optimizer = build_optimizer(model, recipe, fused=run.settings.precision != "16-mixed")
    loader = train_loader(
        run.task.train,
        run.prepared.indices,
        batch_size=recipe.batch_size,
        steps=WARMUP + STEPS,
        seed=run.config.seed,
        repeats=recipe.repeats,
        workers=run.settings.workers,
        device=run.device,
    )
    ends = []
    with checkpointed(model) if trainer.checkpoint_activations else nullcontext():
        for batch in loader:
            train_step(run, model, optimizer, batch)
            ends.append(now(run))
            if stop() or (len(ends) > 1 and ends[-1] - ends[0] > LONGEST):
                break
    timed = ends[WARMUP - 1 :] if len(ends) > WARMUP else ends
    return (timed[-1] - timed[0]) / (len(timed) - 1)


def train_step(run: Run, model: nn.Module, optimizer: Optimizer, batch: list[torch.Tensor]) -> None:
    """A step as a run takes it, with the batch in `trainer.accumulate` parts."""
    _, autocast = evaluation_context(run.settings.precision, run.settings.accelerator)
    generator = torch.Generator(run.device).manual_seed(run.config.seed)
    optimizer.zero_grad()
    parts = zip(*(tensor.to(run.device).chunk(run.config.trainer.accumulate) for tensor in batch), strict=True)
    examples = [run.task.prepare(part, generator) for part in parts]
    counts = sum(run.task.count_targets(part) for part in examples).clamp(min=1)
    for part in examples:
        with autocast:
            loss = (run.task.loss(model, part) / counts).sum()
        loss.backward()
    if run.config.recipe.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), run.config.recipe.clip_norm)
    optimizer.step()


def time_evaluation(run: Run, split: Split, metrics: MetricCollection) -> float:
    """The seconds of an item of held-out data, in a batch of them."""
    _, autocast = evaluation_context(run.settings.precision, run.settings.accelerator)
    size = run.task.eval_batch_size or max(run.config.recipe.batch_size, 256)
    model, metrics = run.model.eval(), metrics.to(run.device)
    began = now(run)
    batch = next(iter(eval_loader(split, batch_size=size, device=run.device)))
    with torch.inference_mode(), autocast:
        run.task.update(metrics, model, run.task.prepare([part.to(run.device) for part in batch]))
    return (now(run) - began) / len(batch[0])


def now(run: Run) -> float:
    """Seconds of a clock, once the device has done all that it was given."""
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter()
