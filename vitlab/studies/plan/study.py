"""What a study will do: its runs, their steps, parameters and FLOPs."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from rich.console import Console

from vitlab import models, tasks
from vitlab.analysis import module_of
from vitlab.config import UserError, load, resolved
from vitlab.config.identity import subset_seed
from vitlab.config.schema import ExecutorConfig, StudyConfig, TrainConfig, TrainerConfig
from vitlab.config.schema.fields import COST
from vitlab.config.schema.kinds import affecting, select
from vitlab.config.tuning import list_settings
from vitlab.data.opening import find_data, open_data
from vitlab.data.split import count_items, resolve_size, size_problems
from vitlab.formatting import plural
from vitlab.hardware import count_cores
from vitlab.studies.executors import is_on_this_machine
from vitlab.studies.grid import Spec, compose_models, expand
from vitlab.studies.tuning import can_reuse_best_trial
from vitlab.tasks.base import Task
from vitlab.training import budgets, settings
from vitlab.training.files import source_of, source_problems
from vitlab.training.prepare import PreparedModel, prepare_model
from vitlab.training.sources import initialise

GPU = settings.Placement(settled={"accelerator": "gpu"}, here=False)  # of another machine
ENOUGH = 2  # times that training examples are seen: with fewer the steps limit a model


@dataclass(frozen=True)
class Plan:
    config: StudyConfig
    data: Any  # from `vitlab.data.load`
    task: Task
    sizes: list[int]
    specs: list[Spec]
    by_variant: dict[str, PreparedModel]
    jobs: int
    counted: dict[tuple[int, int], int] = field(default_factory=dict)

    def steps(self, spec: Spec) -> int:
        """The optimizer steps of a run. Raises UserError for too few."""
        items = self.count_items(spec.config["train_size"], subset_seed(spec.config))
        return self.by_variant[spec.config["variant"]].count_steps(items)

    def evaluations(self, spec: Spec) -> int:
        """The evaluations of a run on the validation data: evenly spaced, the last at its end."""
        steps, evaluations = self.steps(spec), self.by_variant[spec.config["variant"]].config.trainer.evaluations
        return math.ceil(steps / math.ceil(steps / evaluations))

    def count_items(self, size: int, seed: int) -> int:
        """The number of items in the training set of a size and a subset seed."""
        if (size, seed) not in self.counted:
            self.counted[size, seed] = count_items(self.task.train, size, seed)
        return self.counted[size, seed]

    @property
    def neighbours(self) -> int:
        """How many runs share this machine; a run on a cluster has cores of its own."""
        return self.jobs if is_on_this_machine(self.config.executor) else 1

    @property
    def cores(self) -> int:
        """The cores that a run has."""
        executor = self.config.executor
        return max(1, count_cores() // self.jobs) if is_on_this_machine(executor) else executor.cpus

    def warn_of_unseen(self) -> str:
        """A line where models see the examples of the largest size less than twice; "" where none does."""
        size, seen, needed = max(self.sizes), {}, 0
        for spec in self.specs:
            if spec.config["train_size"] == size and spec.config["variant"] not in seen:
                items = self.count_items(size, subset_seed(spec.config))
                batch = self.by_variant[spec.config["variant"]].config.recipe.batch_size
                if (times := self.steps(spec) * batch / items) < ENOUGH:
                    seen[spec.config["variant"]] = f"{math.floor(100 * times) / 100:g}"
                    needed = max(needed, math.ceil(ENOUGH * items / batch))
        if not seen:
            return ""
        unit = f"{size:,} training {self.task.train.unit}s"
        models = "; ".join(
            f"{times} times by {', '.join(name for name in seen if seen[name] == times)}"
            for times in dict.fromkeys(seen.values())
        )
        return (
            f"{unit} are seen {models}: steps may limit the error there, not data; budget.steps={needed} or "
            f"budget.epochs={ENOUGH} shows each {ENOUGH} times"
        )

    @cached_property
    def trials(self) -> int:
        """How often each run is trained: once for each setting of `tune`."""
        return len(list_settings(self.config.tune))

    def trainings(self, model: PreparedModel) -> int:
        """How often a run of a model is trained in all: its best trial may not serve as the run."""
        return self.trials + (bool(self.config.tune) and not can_reuse_best_trial(model.config))

    @cached_property
    def budget(self) -> str:
        budgets_shown = dict.fromkeys(budgets.format_budget(model.config.budget) for model in self.by_variant.values())
        return " or ".join(budgets_shown)

    def headline(self, todo: int, where: str = "") -> str:
        """`quick: 8 runs (2 models x 4 sizes x 1 seed) on glyphs, steps=1000 each, 2 workers`."""
        total = len(self.specs)
        tuned = f" and for each of {plural(self.trials, 'setting')} of tune" if self.config.tune else ""
        left = "" if todo == total else f", {total - todo} finished already"
        models = {model.config.model.name for model in self.by_variant.values()}
        variants = "model" if len(models) == len(self.by_variant) else "variant"
        axes = ((len(self.by_variant), variants), (len(self.sizes), "size"), (len(self.config.seeds), "seed"))
        grid = " x ".join(plural(*axis) for axis in axes)
        executor = self.config.executor
        where = where or (plural(self.jobs, "worker") if is_on_this_machine(executor) else executor.kind)
        placed = f", {where}" if todo else ""
        return (
            f"{self.config.name}: {plural(total, 'run')} ({grid}) on {self.data.name}, {self.budget} each{tuned}"
            f"{placed}{left}"
        )


def plan_study(config: StudyConfig, *, jobs: int | None, console: Console, elsewhere: bool = False) -> Plan:
    """Resolve the sizes, build every model on the meta device, expand the grid. Raises UserError with all problems.

    `elsewhere` plans only the cost on GPUs of another machine: the data need not be here where the
    configuration says what to expect of them.
    """
    first = compose_models(config)
    data = find_data(config.data, console) if elsewhere else open_data(config.data, console)
    example = next(iter(first.values()))
    task = tasks.build(example.task, recipe=example.recipe, data=data, data_config=example.data)
    given_sizes = list(config.sizes) if config.sizes is not None else choose_sizes(config.data.sizes, task)
    problems = size_problems(given_sizes, task.train, task.strata, data.name)
    by_variant, counted = {}, {}
    for name, run_config in first.items():
        try:
            settled = config.settled.get(name, {})
            placement = place(config.executor, run_config.trainer, jobs, settled) if not elsewhere else GPU
            alike = describe_costs(resolved(run_config)), str(run_config.init), str(placement)
            if alike not in counted:
                counted[alike] = plan_model(run_config, data, placement)
            by_variant[name] = replace(counted[alike], config=run_config)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(dict.fromkeys(problems))
    sizes = [resolve_size(size, task.train.total) for size in given_sizes]
    specs = expand(config, sizes, first)
    most = choose_jobs(by_variant, len(specs)) if is_on_this_machine(config.executor) else len(specs)
    jobs = min(jobs or most, len(specs))
    plan = Plan(config, data, task, sizes, specs, by_variant, jobs)
    for spec in specs:
        plan.steps(spec)
    return plan


def describe_costs(config: Mapping[str, Any]) -> str:
    """What decides a run's time and memory per step: runs for which it is the same cost the same."""
    return str(select(config, TrainConfig, affecting(COST)))


def choose_sizes(sizes: Sequence[Any], task: Task) -> list[int]:
    """The default sizes of a data set, between its number of classes and its whole training set.

    Of sizes that hold the same number of whole items, the largest is kept.
    """
    total, item = task.train.total, task.train.per_item
    least = max(len(task.strata), 1) * item
    in_range = sorted(min(max(resolve_size(size, total), least), total) for size in sizes)
    return list({size // item: size for size in in_range}.values())


def place(
    executor: ExecutorConfig, trainer: TrainerConfig, jobs: int | None, settled: Mapping[str, Any]
) -> settings.Placement:
    """Where the runs of a variant train; with what earlier starts have settled, whatever this one would choose.

    Raises UserError for several machines, and for more devices than a run has on a cluster.
    """
    if trainer.nodes > 1:
        raise UserError(
            f"trainer.nodes={trainer.nodes}: a study trains each run on one machine; leave it out, or train the run "
            "with 'vitlab train' under srun or torchrun"
        )
    if is_on_this_machine(executor):
        return settings.Placement(max(1, count_cores() // (jobs or 1)), settled)
    kind, has = ("gpu", int(executor.gpus)) if executor.gpus else ("cpu", executor.cpus)
    if trainer.devices > max(1, has):
        raise UserError(
            f"trainer.devices={trainer.devices}: executor.{kind}s={has} is what a run has on executor={executor.kind}; "
            f"give executor.{kind}s={trainer.devices}"
        )
    device = {"accelerator": kind}
    return settings.Placement(executor.cpus, {**device, **settled}, here=False)


def plan_model(config: TrainConfig, data: Any, placement: settings.Placement) -> PreparedModel:
    """What runs of a variant share; their analyses and first weights fit, too. Raises UserError."""
    prepared = prepare_model(config, data, placement)
    for name in config.analyses:
        module_of(load("analysis", name))  # raises UserError for a module that is not an analysis
    source = source_of(config.init)
    if source is not None and not [*source_problems(source)]:  # raises UserError for weights that do not fit
        model = models.build(config.model, **prepared.task.shape)
        print(initialise(model, config, prepared.task.classes), file=sys.stderr)
    return prepared


def choose_jobs(by_variant: dict[str, PreparedModel], runs: int) -> int:
    """The default of --jobs: as many runs as there are GPUs for, else as the cores have room for with their threads."""
    devices = max(plan.config.trainer.devices for plan in by_variant.values())
    if any(plan.settled["accelerator"] == "gpu" for plan in by_variant.values()):
        room = torch.cuda.device_count() // devices
    else:
        room = count_cores() // (devices * max(plan.settled["threads"] for plan in by_variant.values()))
    return min(runs, max(1, room))
