"""How long runs take on this machine: the first steps of each model are trained as the study would train them.

A rehearsal is a whole run in a worker process, with its analyses, evaluations, checkpoint and files, that ends after a
few steps; as many train side by side as in the study, for neighbours slow each other down.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from omegaconf import DictConfig

from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.base import Rows, Split
from vitlab.data.opening import open_data
from vitlab.data.subset import examples
from vitlab.studies.claims import hold
from vitlab.studies.events import Event
from vitlab.studies.executors.local import LocalExecutor
from vitlab.studies.experiment import Observer, train
from vitlab.studies.grid import Spec
from vitlab.studies.job import log_to
from vitlab.studies.plan.study import ModelPlan, Plan, describe_costs
from vitlab.training.progress import Progress
from vitlab.training.run import Run
from vitlab.training.settings import Placement

SECONDS = 1.5  # of training steps, and at most of an evaluation, as far as counted operations say
SPEED = 2e10  # operations a second of a process, roughly
STEPS = (3, 50)  # the first one is slower than the others and is not timed
FEWEST = 256  # items that a rehearsal evaluates; a model too slow for them is not analysed either


@dataclass(frozen=True)
class Times:
    """Seconds of the parts of a run: of a step, of an evaluation on the validation data, of the test, of a checkpoint,
    of a look of the analyses, and of all else that a run does once.
    """

    step: float
    evaluation: float
    test: float
    checkpoint: float
    look: float
    once: float
    analysed: bool = True

    def of_run(self, config: DictConfig, steps: int) -> dict[str, float]:
        """The seconds of a run of so many steps: training, evaluation, analyses, and the rest (start, files)."""
        training, evaluation = self.of_training(config, steps)
        every = config.trainer.analyze_every
        looks = 2 + ((steps - 1) // every if every else 0)
        rest = self.once + self.checkpoint * (1 + training // max(config.trainer.checkpoint_every, self.checkpoint))
        return {"training": training, "evaluation": evaluation + self.test, "analyses": looks * self.look, "rest": rest}

    def of_training(self, config: DictConfig, steps: int) -> tuple[float, float]:
        """The seconds of the steps and of the evaluations between them; several devices are taken to share the work."""
        devices = config.trainer.devices * config.trainer.nodes
        return steps * self.step / devices, count_evaluations(steps, steps, config) * self.evaluation / devices


def count_evaluations(steps: int, budget: int, config: DictConfig) -> int:
    """Evaluations of the first steps of a budget, with one at their end."""
    return math.ceil(steps / math.ceil(budget / config.trainer.evaluations))


def choose_length(model: ModelPlan, steps: int) -> int:
    """The steps of a rehearsal of a model that the study trains for so many."""
    least, most = STEPS
    return min(
        steps, max(least, min(most, int(SECONDS * SPEED / (model.train_flops * model.config.recipe.batch_size))))
    )


class Rehearsal(Run):
    """A run that trains `length` steps and evaluates a part of the held-out data, with the times of what it does."""

    def begin(self, length: int) -> None:
        self.budget, self.trained_steps = self.steps, length
        self.items = int(SECONDS * SPEED / (self.flops_per_example / 3))  # forward
        self.analysed = self.items >= FEWEST
        self.shares = [min(1.0, max(2, self.items) / len(split)) for split in (self.task.validation, self.task.test)]
        self.task.validation = take(self.task.validation, self.items)
        self.task.test = take(self.task.test, self.items)
        self.marks = {"begun": time.perf_counter()}

    def fit(self, **options: Any) -> dict[str, Any]:
        self.marks["looked"] = time.perf_counter()
        found = super().fit(**options)
        self.marks["fitted"] = time.perf_counter()
        return found

    def test(self) -> dict[str, float | None]:
        found = super().test()
        self.marks["tested"] = time.perf_counter()
        return found

    def advance(self, progress: Progress) -> None:
        """What training reports: after its first step, its last, and some between."""
        self.marks.setdefault("first", time.perf_counter())
        self.marks["last"], self.stamp = time.perf_counter(), time.time()

    def times(self, started: float) -> Times:
        """What has been timed; the rehearsal `started` before its data and model were built."""
        at, ended = self.marks, time.perf_counter()
        saved = max(0.0, self.files.checkpoint_path.stat().st_mtime - self.stamp)
        evaluation = max(0.0, at["fitted"] - at["last"] - saved)
        between = count_evaluations(self.trained_steps, self.budget, self.config) - 1
        trained = max(0.0, at["last"] - at["first"] - between * evaluation)
        step = trained / (self.trained_steps - 1) if self.trained_steps > 1 else at["last"] - at["looked"]
        look = (at["looked"] - at["begun"] + ended - at["tested"]) / 2
        once = at["begun"] - started + max(0.0, at["first"] - at["looked"] - step)
        test = at["tested"] - at["fitted"]
        validation_share, test_share = self.shares
        return Times(step, evaluation / validation_share, test / test_share, saved, look, once, analysed=self.analysed)


def take(split: Split, items: int) -> Split:
    """So many items of a split, of every class alike; all where there are no more."""
    if len(split) <= items:
        return split
    rows = examples(split.labels, max(2, items))
    targets = None if split.targets is None else split.targets[rows]
    return Split(split.labels[rows], Rows(split.read, rows), targets)


class RehearsalJob:
    """What a worker does with a spec: its first steps; gives their `Times`."""

    def __init__(self, folder: Path, plan: Plan, observe: Callable[[], Observer]):
        self.folder, self.observe = folder, observe
        self.cores = plan.cores
        self.settled = {name: one.settled for name, one in plan.by_variant.items()}
        self.lengths = {
            spec.config["variant"]: choose_length(plan.by_variant[spec.config["variant"]], plan.steps(spec))
            for spec in reversed(plan.specs)
        }

    def __call__(self, spec: Spec, report: Callable[[Any], None], stop: Callable[[], bool]) -> Times:
        folder, variant = self.folder / spec.name, spec.config["variant"]
        folder.mkdir(parents=True)
        with log_to(folder / "log.txt"):
            config = compose(TrainConfig, base=spec.config)
            config.tune, config.wandb.mode = {}, "off" if config.wandb.mode == "off" else "offline"
            config.trainer.devices = config.trainer.nodes = 1  # `Times` divides
            config.trainer.strategy = "auto"
            data = open_data(config.data)
            started = time.perf_counter()
            run = Rehearsal(config, data, folder, placement=Placement(self.cores, self.settled[variant]))
            run.begin(self.lengths[variant])
            if not run.analysed:
                config.analyses, config.probes = [], []
            with hold(folder) as lease:
                train(run, lease, self.observe(), run.advance, stop)
            return run.times(started)


def rehearse(
    plan: Plan, observe: Callable[[], Observer], progress: Callable[[str, int, int], None]
) -> dict[str, Times]:
    """The times of each variant of a study, by variant. Raises UserError for one that fails.

    Of variants that cost the same one is rehearsed. `observe` gives what watches the runs of the study.
    """
    alike: dict[str, list[Spec]] = {}
    for spec in {spec.config["variant"]: spec for spec in reversed(plan.specs)}.values():
        alike.setdefault(describe_costs(spec.config), []).append(spec)
    copies = [
        replace(same[0], name=f"{same[0].config['variant']}/{copy}")
        for same in alike.values()
        for copy in range(plan.neighbours)
    ]
    found: dict[str, list[Times]] = {}

    def notify(event: Event) -> None:
        variant = event.run.rpartition("/")[0]
        if event.kind in ("failed", "retried"):
            raise UserError(f"{variant}: {event.value}")
        if event.kind == "done":
            found.setdefault(variant, []).append(event.value)
        progress("timing the first steps of each model", sum(map(len, found.values())), len(copies))

    with tempfile.TemporaryDirectory(prefix="vitlab-") as folder:
        job = RehearsalJob(Path(folder), plan, observe)
        LocalExecutor(job, plan.neighbours, Path(folder)).run(copies, notify)
    return {
        spec.config["variant"]: find_median(found[same[0].config["variant"]])
        for same in alike.values()
        for spec in same
    }


def find_median(copies: Sequence[Times]) -> Times:
    """The median of each part."""
    fields = [name for name in Times.__dataclass_fields__ if name != "analysed"]
    parts = {name: median(getattr(one, name) for one in copies) for name in fields}
    return Times(**parts, analysed=all(one.analysed for one in copies))
