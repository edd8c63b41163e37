"""The runs of `vitlab scale`: what is refused before they begin, their folder, how they are trained or submitted."""

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from rich.markup import escape

from vitlab import models, tasks
from vitlab.config import UserError, load, resolved
from vitlab.config.identity import subset_seed
from vitlab.config.schema import TrainConfig
from vitlab.console import Console
from vitlab.data.base import Split
from vitlab.data.cache import contents
from vitlab.data.opening import open_data
from vitlab.data.split import write_manifest
from vitlab.files import read_json
from vitlab.studies.claims import Held, hold, read_claim
from vitlab.studies.grid import Spec, make_spec, name_run
from vitlab.studies.launch import Workers, check_executor, find_start
from vitlab.studies.rounds import Target, plan_round
from vitlab.studies.status import Display, StatusReader
from vitlab.studies.store import Cell, LiveTable, StudyFiles, collect, find_missing_parts, list_trials
from vitlab.training.files import refuse_changes

if TYPE_CHECKING:
    from vitlab.reports.pages import LiveReport
    from vitlab.studies.plan import Plan

LOOK = 0.2  # seconds between two looks at a study's folder, at least
SHARE = 0.05  # of the watching process's time that the looks may take
WORKER_MODULES = ("vitlab.studies.worker", "vitlab.reports.wandb", "vitlab.commands.work")


def list_worker_modules(runs: Iterable[TrainConfig]) -> list[str]:
    """What the server of the workers imports beside the parent's planning: all that runs need before their first step.

    A user's own modules are left to the workers: one may start threads, which do not survive a fork.
    """
    modules = dict.fromkeys(WORKER_MODULES)
    for run in runs:
        analyses = [load("analysis", name) for name in run.analyses]
        kinds = [("tasks", tasks.MODULES.get(run.task.kind, run.task.kind))]
        kinds += [("models", models.MODULES.get(run.model.kind, run.model.kind))]
        kinds += [("analysis", analysis.kind) for analysis in analyses]
        names = [f"vitlab.{package}.{kind}" for package, kind in kinds if "." not in kind]
        # not the modules of figures: they import pandas, and with it pyarrow, which starts a thread
        names += ["vitlab.reports.figures"] if analyses else []
        names += ["wandb"] if run.wandb.mode != "off" else []
        modules |= dict.fromkeys(names)
    return list(modules)


@dataclass(frozen=True)
class Missing:
    """What a study has not done yet: runs to train, and finished ones that lack analyses or probes."""

    to_train: list[Spec]
    to_complete: list[Spec]
    additions: list[str]  # the names of what they lack


def find_missing(files: StudyFiles, plan: "Plan", console: Console) -> Missing:
    """What is left to do, by the files alone. Raises UserError where it cannot be done in this folder or from here.

    What failed in an earlier start, or was killed too often, is tried again.
    """
    data = contents(plan.config.data, plan.data)
    lacking = {spec.name: find_missing_parts(files.run(spec.name), spec.config, data) for spec in plan.specs}
    to_train = [spec for spec in plan.specs if "training" in lacking[spec.name]]
    to_complete = [spec for spec in plan.specs if lacking[spec.name] and "training" not in lacking[spec.name]]
    refuse_other_runs(files, to_train)
    for damage in filter(None, (files.run(spec.name).read_result()[1] for spec in to_train)):
        console.print(escape(damage), soft_wrap=True, highlight=False)
    refuse_other_data(files, plan, data)
    if to_train or to_complete:
        check_executor(plan.config.executor)
    todo = [files.run(spec.name) for spec in (*to_train, *to_complete)]
    for run in chain(todo, *map(list_trials, todo)):
        claim = read_claim(run.folder)
        if run.error_path.exists() or (claim and claim.is_dead):
            with suppress(Held), hold(run.folder):  # which takes the claims of dead processes away
                run.error_path.unlink(missing_ok=True)
    return Missing(to_train, to_complete, list(dict.fromkeys(chain(*(lacking[spec.name] for spec in to_complete)))))


def refuse_other_runs(files: StudyFiles, todo: Sequence[Spec]) -> None:
    """Raise UserError for runs whose folder holds another configuration, before anything is trained."""
    problems = []
    for spec in todo:
        run = files.run(spec.name)
        if run.config_path.exists():
            try:
                refuse_changes(run.folder, run.changes(spec.config))
            except UserError as error:
                problems += error.problems
    if problems:
        raise UserError(problems)


def refuse_other_data(files: StudyFiles, plan: "Plan", now: str) -> None:
    """Raise UserError when the data are no longer those of the study's subsets and of all its runs, finished or not.

    `now` is the SHA-256 of their contents.
    """
    train = plan.task.train
    for path in files.subsets.glob("*.json"):
        there, here = read_json(path)[f"train_{train.unit}s"], train.total
        if there != here:
            raise UserError(
                f"--out {files.folder}: its subsets are of {there} training {train.unit}s, {plan.data.name} has {here} "
                "now; give another --out"
            )
    names = [spec.name for spec in plan.specs]
    if files.config_path.exists():  # runs that this start leaves out are compared with its own in the report
        names += [name_run(*cell) for cell in files.cells()]
    changed = [name for name in names if files.run(name).contents() not in (None, now)]
    if changed:
        raise UserError(
            f"--out {files.folder}: data={plan.data.name} has changed since {changed[0]} began; restore the files, or "
            "give another --out"
        )


def prepare_folder(files: StudyFiles, plan: "Plan") -> None:
    """Write study.yaml and cells.json (all that was ever asked for here), the subsets' manifests, the samples."""
    from vitlab.reports.figures.images import write_samples

    runs = [spec.config for spec in plan.specs]
    cells = [(run["variant"], run["train_size"], run["seed"]) for run in runs]
    settled = {name: model.settled for name, model in plan.by_variant.items()}
    config = files.add_start({**resolved(plan.config), "settled": settled}, cells, plan.headline(0))
    seeds = write_manifests(files, plan)
    write_samples(plan.task, plan.data, config["sizes"], min(seeds), files.figures)


def write_manifests(files: StudyFiles, plan: "Plan") -> set[int]:
    """Write what is in the subset of each size, for every seed of a subset that was ever asked for; gives the seeds."""
    written = {
        manifest["seed"]: manifest["sizes"] for path in files.subsets.glob("*.json") if (manifest := read_json(path))
    }
    seeds, sizes = {*written, *(subset_seed(spec.config) for spec in plan.specs)}, files.config()["sizes"]
    for seed in sorted(seed for seed in seeds if written.get(seed) != sizes):
        path = files.subsets / f"{plan.data.name}-seed{seed}.json"
        write_manifest(path, find_training_split(plan, seed), plan.task.strata, sizes, seed, name=plan.data.name)
    return seeds


def find_training_split(plan: "Plan", seed: int) -> Split:
    """What the runs of a seed train on; with repeated hold-out each seed has its own."""
    data = plan.config.data
    if vars(data).get("holdout") != "repeated":
        return plan.task.train
    return open_data(replace(data, holdout=seed)).train


def make_specs(plan: "Plan", cells: Sequence[Cell]) -> list[Spec]:
    variants = {name: resolved(model.config) for name, model in plan.by_variant.items()}
    return [make_spec(variants[variant], size, seed) for variant, size, seed in cells]


def add_earlier_cells(files: StudyFiles, plan: "Plan") -> None:
    """Add to a plan the runs that earlier rounds of seeds have asked for."""
    planned = {spec.name for spec in plan.specs}
    earlier = [cell for cell in files.cells() if cell[0] in plan.by_variant and cell[1] in plan.sizes]
    plan.specs.extend(spec for spec in make_specs(plan, earlier) if spec.name not in planned)


def run_rounds(
    files: StudyFiles, plan: "Plan", target: Target, failed: set[str], live: "LiveReport", console: Console
) -> dict[str, str]:
    """Add seeds, round by round, until every cell is as sure as asked for; says why. Gives the runs that failed.

    A cell with a failed run gets no more.
    """
    errors: dict[str, str] = {}
    while True:
        rows = [r for r in files.finished_rows() if r["model"] in plan.by_variant and r["train_size"] in plan.sizes]
        stopped = {(s.config["variant"], s.config["train_size"]) for s in plan.specs if s.name in failed | {*errors}}
        step = plan_round(rows, target, stopped)
        console.print(escape(step.text), soft_wrap=True, highlight=False)
        if not step.added:
            return errors
        with hold(files.folder, wait=True):
            files.add_cells(step.added)
        plan.specs.extend(make_specs(plan, step.added))
        write_manifests(files, plan)
        errors |= train_all(files, plan, live)


def start_workers(files: StudyFiles, plan: "Plan", number: int) -> Workers:
    config = plan.config.executor
    return find_start(config.kind)(files.folder, number, replace(config, cpus=plan.cores))


def train_all(files: StudyFiles, plan: "Plan", live: "LiveReport") -> dict[str, str]:
    """Start workers, and watch the folder until every run has ended, also those of other starts.

    While runs are free, workers that have died are replaced. results.csv and the report grow with each run that ends.
    Gives the first line of each failed run's error. Ctrl-C, or an error, ends the workers and is raised again.
    """
    reader = StatusReader(files, {name: resolved(model.config) for name, model in plan.by_variant.items()})
    table, crews, ended, fruitless = LiveTable(files), list[Workers](), -1, 0
    with redirect_stdout(sys.stderr), Display(Console(stderr=True)) as display:  # Ray's own lines, too
        try:
            while (began := time.monotonic()) and (status := reader.read()).of_state("waiting", "running"):
                pause = max(LOOK, (time.monotonic() - began) / SHARE)
                changed = display.show(status)
                for view in (table, live):
                    view.update(changed)
                alive = sum(crew.count() for crew in crews)
                if (room := min(plan.jobs - alive, sum(run.free for run in status.runs))) > 0:
                    now = status.counts["finished"] + status.counts["failed"]
                    fruitless, ended = (0 if alive or now > ended else fruitless + 1), now
                    if fruitless > plan.jobs * (plan.config.executor.retries + 1) + 1:
                        raise UserError(f"executor={plan.config.executor.kind}: workers end before a run does")
                    crews.append(start_workers(files, plan, room))
                time.sleep(pause)
            display.show(status)
        except BaseException:
            for crew in crews:
                crew.stop()
            raise
        finally:
            collect(files)
    names = {spec.name for spec in plan.specs}
    return {run.run: run.error for run in status.of_state("failed") if run.run in names}
