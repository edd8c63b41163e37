"""How long runs take on this machine: training steps and evaluations of each model are timed in this process.

As many processes work side by side as in the study, for neighbours slow each other down.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from torchmetrics import MetricCollection

from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.loader import eval_loader
from vitlab.data.opening import open_data
from vitlab.hardware import list_gpus
from vitlab.models.counting.memory import checkpointed
from vitlab.signals import Stopping
from vitlab.studies.events import summarize_error
from vitlab.studies.executors.local import LocalExecutor
from vitlab.studies.grid import Spec
from vitlab.studies.job import log_to
from vitlab.studies.plan.study import Plan, describe_costs
from vitlab.training.prepare import prepare
from vitlab.training.run import Run
from vitlab.training.settings import Placement, evaluation_context
from vitlab.training.train import build_loaders, build_module
from vitlab.training.trainer import Endless, build_trainer

WARMUP = 3  # steps that are not timed: the first ones are slower
STEPS = 10  # that are timed
LONGEST = 10.0  # seconds of timed steps of a large model, for which fewer do


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
    specs, times, threads = [same[0] for same in alike.values()], {}, torch.get_num_threads()
    settled = {name: model.settled for name, model in plan.by_variant.items()}
    time_it, asked = partial(time_run, plan.cores, settled), (stopping := Stopping()).asked
    gpus = list_gpus(torch.cuda.device_count())
    try:
        with stopping, neighbours(specs, plan.neighbours - 1, time_it, gpus, asked):
            for place, same in enumerate(alike.values()):
                progress("timing the first steps of each model", place, len(alike))
                measured = time_it(same[0], asked)
                if asked():
                    raise KeyboardInterrupt
                times |= {spec.config["variant"]: measured for spec in same}
    finally:
        torch.set_num_threads(threads)
        torch.cuda.empty_cache()
    return times


@contextmanager
def neighbours(
    specs: Sequence[Spec], number: int, time_it: Callable[..., Times], gpus: Sequence[str], stop: Callable[[], bool]
) -> Iterator[None]:
    """While the block runs, `number` processes train the variants in a loop, each from another variant on.

    They load this machine as the study's other runs will: they are workers, each with the GPUs that a worker at its
    place gets, where this process is the first. One that fails is not replaced.
    """
    own = specs[0].config["trainer"]["devices"]
    with tempfile.TemporaryDirectory(prefix="vitlab-") as folder:
        job = partial(train_in_turn, specs, time_it)
        executor = LocalExecutor(job, number, Path(folder), [*gpus[own:], *gpus[:own]])
        try:
            for place in range(1, number + 1):
                executor.start(replace(specs[place % len(specs)], name=str(place)))
            begun: set[str] = set()
            while len(begun) < number and not stop():
                begun |= {event.run for event in executor.wait(1.0)}
            yield
        finally:
            executor.close()


def train_in_turn(
    specs: Sequence[Spec], time_it: Callable[..., Times], first: Spec, report: Callable, stop: Callable[[], bool]
) -> None:
    """The job of a neighbour, which is named by its place: to train without end."""
    for place in count(int(first.name)):
        report(None)  # it notices so that the process that times has ended
        if stop():
            return
        time_it(specs[place % len(specs)], stop)


def time_run(
    cores: int, settled: Mapping[str, Mapping[str, Any]], spec: Spec, stop: Callable[[], bool] = lambda: False
) -> Times:
    """The times of a run of a spec. A run of several devices is timed on one. Raises UserError with its variant."""
    with tempfile.TemporaryDirectory(prefix="vitlab-") as folder, log_to(Path(folder, "log.txt")):
        try:
            began = time.perf_counter()
            config = compose(TrainConfig, base=spec.config)
            config = replace(config, trainer=replace(config.trainer, devices=1, nodes=1, strategy="auto"))
            placement = Placement(cores, settled[spec.config["variant"]])
            run = Run(prepare(config, open_data(config.data), placement), Path(folder))
            start = time.perf_counter() - began
            step = time_training(run, stop)
            validation, test = (time_evaluation(run, run.task.metrics(detailed)) for detailed in (False, True))
            return Times(start, step, validation, test)
        except Exception as error:
            raise UserError(f"{spec.config['variant']}: {summarize_error(error)}") from error


def time_training(run: Run, stop: Callable[[], bool]) -> float:
    """The mean seconds of the steps after the first ones, as the run trains them, without evaluations and files."""
    run.set_memory_format()
    if run.settings.compile:
        run.model.compile()
    stopwatch = Stopwatch(run, stop)
    trainer = build_trainer(
        run.settings,
        lambda: None,
        run.ranks,
        unused=False,
        max_steps=WARMUP + STEPS,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        callbacks=[stopwatch],
        default_root_dir=run.files.folder,
    )
    batches, _ = build_loaders(run)
    with checkpointed(run.model) if run.config.trainer.checkpoint_activations else nullcontext():
        trainer.fit(build_module(run), Endless(batches))
    return stopwatch.measure_step()


class Stopwatch(L.Callback):
    """Notes when each step ended; ends training early where steps are long."""

    def __init__(self, run: Run, stop: Callable[[], bool]):
        self.run, self.stop = run, stop
        self.ends: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.ends.append(now(self.run))
        if self.stop() or (len(self.ends) > 1 and self.ends[-1] - self.ends[0] > LONGEST):
            trainer.should_stop = True

    def measure_step(self) -> float:
        ends = self.ends[WARMUP - 1 :] if len(self.ends) > WARMUP else self.ends
        return (ends[-1] - ends[0]) / (len(ends) - 1)


def time_evaluation(run: Run, metrics: MetricCollection) -> float:
    """The seconds of a validation item, in a batch of them; with the metrics of test they stand for a test item's."""
    _, autocast = evaluation_context(run.settings.precision, run.settings.accelerator)
    size = run.task.eval_batch_size or max(run.config.recipe.batch_size, 256)
    model, metrics = run.placed_model().eval(), metrics.to(run.device)
    began = now(run)
    batch = next(iter(eval_loader(run.task.validation, batch_size=size, device=run.device)))
    with torch.inference_mode(), autocast:
        run.task.update(metrics, model, run.task.prepare([part.to(run.device) for part in batch]))
    return (now(run) - began) / len(batch[0])


def now(run: Run) -> float:
    """Seconds of a clock, once the device has done all that it was given."""
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter()
