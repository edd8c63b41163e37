"""Plan a study and its cost: its runs, their steps, parameters and FLOPs, and their time on this machine."""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from vitlab import console as consoles
from vitlab import models, tasks
from vitlab.analysis import module_of
from vitlab.analysis.probes import open_shifted
from vitlab.config import TrainConfig, UserError, collecting, compose, load, raise_all, resolved
from vitlab.config.groups import affecting, select
from vitlab.config.identity import subset_seed
from vitlab.config.schema import BudgetConfig, ExecutorConfig, StudyConfig, TrainerConfig
from vitlab.config.schema.fields import COST
from vitlab.data.base import Show
from vitlab.data.opening import open_data
from vitlab.data.split import NESTED, count_items, resolve_size, size_problems, training_items
from vitlab.formatting import duration, plural
from vitlab.hardware import count_cores
from vitlab.studies.grid import Spec, compose_models, expand, list_shorter
from vitlab.studies.status import pack
from vitlab.studies.store import summarize_error
from vitlab.studies.worker import log_to
from vitlab.tasks.base import BATCH, Task
from vitlab.training.files import source_of, source_problems
from vitlab.training.launch import Stopping
from vitlab.training.load import initialise
from vitlab.training.loop import Hooks, Interrupted
from vitlab.training.optim import find_branch
from vitlab.training.run import ON_FEATURES, Run, RunPlan, count_finetuning_steps, format_budget, plan_run, start_run
from vitlab.training.settings import Machine
from vitlab.training.train import keep_process_settings, train

ENOUGH = 2  # passes over the training examples: with fewer, steps limit a model
WARMUP = 3  # steps that are not timed: the first ones are slower
STEPS = 10  # timed steps
LENGTH = 10**9  # steps of a timed run: it reaches neither an evaluation nor its end
LONGEST = 10.0  # seconds of timed steps: a large model stops timing after these
REPORT = 3.0  # seconds that writing a report takes


@dataclass(frozen=True)
class Times:
    """The seconds of a run's parts: its start, a training step, a validation item, a test item."""

    start: float
    step: float
    validation: float
    test: float


@dataclass(frozen=True)
class Plan:
    config: StudyConfig
    data: Any  # from `vitlab.data.load`
    task: Task
    sizes: list[int]
    specs: list[Spec]
    by_variant: dict[str, RunPlan]
    jobs: int
    count: Callable[[int, int], int]  # the items of a training set, by its size and seed

    @cached_property
    def variants(self) -> dict[str, dict[str, Any]]:
        """The resolved configuration of each variant."""
        return {name: resolved(model.config) for name, model in self.by_variant.items()}

    def steps(self, spec: Spec) -> int:
        """Count the optimizer steps of a run. Raises UserError for too few."""
        return self.by_variant[spec.variant].count_steps(self.count_items(spec))

    @cached_property
    def shorter(self) -> dict[str, list[str]]:
        return list_shorter(self.variants)

    def trained_steps(self, spec: Spec) -> int:
        """Count the steps that a run trains itself: smaller budgets share their steps before their cooldown."""
        runs = [spec, *(spec._replace(variant=variant) for variant in self.shorter.get(spec.variant, ()))]
        most, *shared = (find_branch(self.by_variant[run.variant].config.recipe, self.steps(run)) for run in runs)
        return self.steps(spec) - max((step for step in shared if step <= most), default=0)

    def evaluations(self, spec: Spec) -> int:
        """Count a run's evaluations on validation data: evenly spaced, the last at the end of training."""
        steps, trainer = self.steps(spec), self.by_variant[spec.variant].config.trainer
        return math.ceil(steps / math.ceil(steps / trainer.evaluations))

    def count_items(self, spec: Spec) -> int:
        """Count the items in the training set of a run."""
        return self.count(spec.size, subset_seed(spec.config))

    @property
    def cores(self) -> int:
        """The cores that one run gets."""
        executor = self.config.executor
        return max(1, count_cores() // self.jobs) if executor.kind == "local" else executor.cpus

    def warn_of_unseen(self) -> str:
        """Warn in a line if models see the examples of the largest size less than twice; "" if none does."""
        size, seen, needed = max(self.sizes), {}, 0
        for spec in self.specs:
            if spec.size == size and (name := spec.config["variant"]) not in seen:
                items, batch = self.count_items(spec), self.by_variant[spec.variant].config.recipe.batch_size
                if (times := self.steps(spec) * batch / items) < ENOUGH:
                    seen[name] = f"{math.floor(100 * times) / 100:g}"
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

    def headline(self, todo: int) -> str:
        """Describe the study: `quick: 8 runs (2 models x 4 sizes x 1 seed) on glyphs, steps=1000 each, 2 workers`."""
        total = len(self.specs)
        left = "" if todo == total else f", {total - todo} finished already"
        models = {model.config.variant: model.config.model.name for model in self.by_variant.values()}
        variants = "model" if len({*models.values()}) == len(models) else "variant"
        axes = [(len(models), variants), (len(self.sizes), "size"), (len(self.config.seeds), "seed")]
        axes += [(len(self.by_variant) // len(models), "trial")] if self.config.tune else []
        grid = f" ({' x '.join(plural(*axis) for axis in axes)})" if total == math.prod(n for n, _ in axes) else ""
        executor = self.config.executor
        where = plural(self.jobs, "worker") if executor.kind == "local" else executor.kind
        placed = f", {where}" if todo else ""
        budget = " or ".join(dict.fromkeys(format_budget(model.config.budget) for model in self.by_variant.values()))
        runs = f"{self.config.name}: {plural(total, 'run')}{grid} on {self.data.name}"
        return f"{runs}, {budget} each{placed}{left}"


def plan_study(config: StudyConfig, *, jobs: int | None, console: Console) -> Plan:
    """Resolve the sizes, build every model on the meta device, expand the grid. Raises UserError with all problems."""
    first = compose_models(config)
    data = open_data(config.data, console)
    example = next(iter(first.values()))
    task = tasks.build(example.task, recipe=example.recipe, data=data, data_config=example.data)
    given_sizes = list(config.sizes) if config.sizes is not None else choose_sizes(config.data.sizes, task)
    problems = size_problems(given_sizes, task.train, task.strata, data.name)
    by_variant, counted = {}, {}
    for name, run_config in first.items():
        with collecting(problems, "" if run_config.data == config.data else f"models.{name}: "):
            settled = config.settled.get(name, {})
            machine = place(config.executor, run_config.trainer, jobs, settled)
            alike = describe_costs(resolved(run_config)), str(run_config.init), str(machine), run_config.subset
            if alike not in counted:
                counted[alike] = plan_model(run_config, open_data(run_config.data, console), machine)
            by_variant[name] = replace(counted[alike], config=run_config)
    raise_all(dict.fromkeys(problems))
    sizes = [resolve_size(size, task.train.total) for size in given_sizes]
    specs = expand(config, sizes)
    most = choose_jobs(by_variant, len(specs)) if config.executor.kind == "local" else len(specs)
    jobs = min(jobs or most, len(specs))
    plan = Plan(config, data, task, sizes, specs, by_variant, jobs, cache(partial(count_items, task.train)))
    for spec in specs:
        plan.steps(spec)
    return plan


def describe_costs(config: Mapping[str, Any]) -> str:
    """Format the settings that decide a run's time and memory per step: runs with equal texts cost the same."""
    return str(select(config, TrainConfig, affecting(COST)))


def choose_sizes(sizes: Sequence[Any], task: Task) -> list[int]:
    """Choose the default sizes of a data set, between its number of classes and its whole training set.

    Of sizes that hold the same number of whole items, keep the largest.
    """
    total, item = task.train.total, task.train.per_item
    least = max(len(task.strata), 2) * item
    in_range = sorted(min(max(resolve_size(size, total), least), total) for size in sizes)
    return list({size // item: size for size in in_range}.values())


def place(executor: ExecutorConfig, trainer: TrainerConfig, jobs: int | None, settled: Mapping[str, Any]) -> Machine:
    """Describe the machine of a variant's runs; settings from earlier starts replace this start's choice.

    Raises UserError for several machines, and for more devices than a run has on a cluster.
    """
    if trainer.nodes > 1:
        raise UserError(
            f"trainer.nodes={trainer.nodes}: a study trains each run on one machine; leave it out, or train the run "
            "with 'vitlab train' under srun or torchrun"
        )
    if executor.kind == "local":
        return Machine(max(1, count_cores() // (jobs or 1)), settled)
    kind, has = ("gpu", int(executor.gpus)) if executor.gpus else ("cpu", executor.cpus)
    if trainer.devices > max(1, has):
        raise UserError(
            f"trainer.devices={trainer.devices}: executor.{kind}s={has} is what a run has on executor={executor.kind}; "
            f"give executor.{kind}s={trainer.devices}"
        )
    return Machine(executor.cpus, {"accelerator": kind, **settled}, here=False)


def plan_model(config: TrainConfig, data: Any, machine: Machine) -> RunPlan:
    """Prepare the shared parts of a variant's runs; check their analyses and first weights too. Raises UserError."""
    planned = plan_run(config, data, machine)
    for name in config.analyses:
        module_of(load("analysis", name))  # raises UserError for a module that is not an analysis
    problems = []
    for entry in config.eval_on:
        with collecting(problems):
            open_shifted(config, planned.task, entry)
    raise_all(problems)
    if config.subset != NESTED:
        training_items(planned.task.train, "all", subset_seed(resolved(config)), config.subset)  # raises UserError
    source = source_of(config.init)
    if source is not None and not [*source_problems(source)]:  # raises UserError for weights that do not fit
        model = models.build(config.model, **planned.task.shape)
        print(initialise(model, config, planned.task.classes), file=sys.stderr)
    return planned


def choose_jobs(by_variant: dict[str, RunPlan], runs: int) -> int:
    """Choose the default of --jobs: as many runs as fit on the GPUs, else on the cores with their threads."""
    devices = max(plan.config.trainer.devices for plan in by_variant.values())
    if any(plan.settled["accelerator"] == "gpu" for plan in by_variant.values()):
        room = torch.cuda.device_count() // devices
    else:
        room = count_cores() // (devices * max(plan.settled["threads"] for plan in by_variant.values()))
    return min(runs, max(1, room))


def show_plan(plan: Plan, times: Mapping[str, Times], startup: float) -> None:
    """Print every run and its cost on this machine; `startup` is the seconds before the first run begins.

    Without `times` the runs train elsewhere, and the table has no time.
    """
    header = ["run", "steps", "examples seen", "parameters", "train FLOPs", *(["time"] if times else [])]
    rows, flops, seconds = [], 0, [estimate_run(plan, spec, times[spec.variant]) for spec in plan.specs if times]
    for place, spec in enumerate(plan.specs):
        model = plan.by_variant[spec.variant]
        steps = plan.steps(spec)
        examples, trained = steps * model.config.recipe.batch_size, plan.trained_steps(spec)
        spent = model.count_flops(trained * model.config.recipe.batch_size, plan.count_items(spec))
        flops += spent
        cells = (
            f"{steps:,}" if trained == steps else f"{trained:,} of {steps:,}",
            f"{examples:,}",
            f"{model.params:,}",
            f"{spent:.2e}",
        )
        rows.append([spec.name, *cells, *([duration(seconds[place])] if times else [])])
    console, said = consoles.Console(), "how long they take says --dry-run on a machine where they train"
    console.say(plan.headline(len(plan.specs)))
    console.print(consoles.tabulate(header, rows, numbers=len(header) - 1))
    if frozen := dict.fromkeys(model.config.variant for model in plan.by_variant.values() if model.head):
        console.say(f"{', '.join(frozen)}: {ON_FEATURES}")
    if times:
        wall = startup + pack(seconds, [0.0] * plan.jobs) + REPORT
        around = f"{duration(startup + REPORT)} before and after the runs"
        said = f"about {duration(wall)} with {plural(plan.jobs, 'worker')} ({around}), by the first steps of each model"
    console.say(f"total {flops:.2e} FLOPs; {said}")


def estimate_run(plan: Plan, spec: Spec, times: Times) -> float:
    """Estimate the seconds of a run.

    Assume that several devices share steps and evaluations, and that runs on kept features must compute them all.
    """
    model, task = plan.by_variant[spec.variant], plan.task
    devices = model.config.trainer.devices * model.config.trainer.nodes
    evaluated = plan.evaluations(spec) * len(task.validation)
    if model.head:
        devices, evaluated = 1, len(task.validation) + plan.count_items(spec)
    trained = plan.trained_steps(spec) * times.step + evaluated * times.validation
    tested = (len(task.test) + task.writes_texts * min(task.test_items, len(task.validation))) * times.test
    return times.start + trained / devices + tested + count_finetuning_steps(model.config) * times.step


@keep_process_settings()
def time_variants(plan: Plan, progress: Show) -> dict[str, Times]:
    """Time one variant of each cost on this machine, one after another in this process; return times by variant.

    Raises UserError for a variant that fails.
    """
    firsts = {spec.variant: spec for spec in reversed(plan.specs)}
    costs = {variant: describe_costs(spec.config) for variant, spec in firsts.items()}
    alike = {costs[variant]: spec for variant, spec in firsts.items()}
    times = dict[str, Times]()
    try:
        with Stopping() as stopping:
            for place, (cost, spec) in enumerate(alike.items()):
                progress("timing the first steps of each model", place, len(alike))
                times[cost] = time_run(plan, spec, stopping.asked)
                if stopping.requested:
                    raise KeyboardInterrupt
    finally:
        torch.cuda.empty_cache()
    return {variant: times[cost] for variant, cost in costs.items()}


def time_run(plan: Plan, spec: Spec, stop: Callable[[], bool] = lambda: False) -> Times:
    """Time a spec's run, on one device even if it has several. Raises UserError with its variant."""
    with tempfile.TemporaryDirectory(prefix="vitlab-") as folder, log_to(Path(folder, "log.txt")):
        try:
            began = time.perf_counter()
            config = compose(TrainConfig, base=spec.config)
            trainer = replace(config.trainer, devices=1, nodes=1, evaluations=1)
            config = replace(config, trainer=trainer, budget=BudgetConfig(steps=LENGTH))
            machine = Machine(plan.cores, plan.by_variant[spec.variant].settled)
            run = start_run(plan_run(config, open_data(config.data), machine), folder)
            start = time.perf_counter() - began
            step = time_training(run, stop)
            validation, test = (time_evaluation(run, detailed) for detailed in (False, True))
            return Times(start, step, validation, test)
        except Exception as error:
            raise UserError(f"{spec.config['variant']}: {summarize_error(error)}") from error


def time_training(run: Run, stop: Callable[[], bool]) -> float:
    """Measure the mean seconds of a run's training steps after the first ones, without evaluations.

    End early if steps are long.
    """
    ends = list[float]()

    def note() -> bool:
        ends.append(now(run))
        return stop() or len(ends) == WARMUP + STEPS or (len(ends) > 1 and ends[-1] - ends[0] > LONGEST)

    with suppress(Interrupted):
        train(run, Hooks(stop=note))
    timed = ends[WARMUP - 1 :] if len(ends) > WARMUP else ends
    return (timed[-1] - timed[0]) / (len(timed) - 1)


def time_evaluation(run: Run, detailed: bool) -> float:
    """Measure the seconds per validation item in a batch; with `detailed` metrics, an estimate for a test item."""
    indices, began = np.arange(min(run.task.eval_batch_size or BATCH, len(run.task.validation))), now(run)
    run.evaluate(run.task.validation, run.task, workers=0, detailed=detailed, indices=indices)
    return (now(run) - began) / len(indices)


def now(run: Run) -> float:
    """Read a clock in seconds, once the device has done all of its work."""
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter()
