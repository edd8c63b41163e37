"""The runs of `vitlab scale`: what is refused before they begin, their folder, how they are trained or submitted."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from rich.markup import escape

from vitlab.config import UserError, load, resolved
from vitlab.config.identity import subset_seed
from vitlab.config.schema import TrainConfig
from vitlab.console import Console
from vitlab.data.base import Split
from vitlab.data.cache import contents
from vitlab.data.opening import open_data
from vitlab.data.split import write_manifest
from vitlab.files import read_json
from vitlab.formatting import plural
from vitlab.models import MODULES
from vitlab.registry import list_modules
from vitlab.studies.claims import Held, hold
from vitlab.studies.display import Board, Row, display
from vitlab.studies.events import Event
from vitlab.studies.execute import Executor, execute
from vitlab.studies.executors import build_executor, check_executor
from vitlab.studies.grid import Spec, make_spec, name_run
from vitlab.studies.rounds import Target, plan_round
from vitlab.studies.store import Cell, LiveTable, StudyFiles, collect
from vitlab.training.files import refuse_changes

if TYPE_CHECKING:
    from vitlab.reports.pages import LiveReport
    from vitlab.studies.plan.study import Plan

MOST_NAMED = 5  # missing runs
DRAWINGS = "vitlab.reports.figures"
WORKER_MODULES = ("vitlab.studies.job", "vitlab.reports.wandb")


def list_worker_modules(runs: Iterable[TrainConfig]) -> list[str]:
    """What the server of the workers imports beside the parent's planning: all that runs need before their first step.

    A user's own modules are left to the workers: one may start threads, which do not survive a fork.
    """
    modules = dict.fromkeys(WORKER_MODULES)
    for run in runs:
        analyses = [load("analysis", name) for name in run.analyses]
        kinds = [("tasks", run.task.kind), ("models", MODULES.get(run.model.kind, run.model.kind))]
        kinds += [("analysis", analysis.kind) for analysis in analyses]
        names = [f"vitlab.{package}.{kind}" for package, kind in kinds if "." not in kind]
        names += [f"{DRAWINGS}.{name}" for name in list_modules(DRAWINGS)] if analyses else []
        names += ["wandb"] if run.wandb.mode != "off" else []
        modules |= dict.fromkeys(names)
    return list(modules)


@dataclass(frozen=True)
class Missing:
    """What a study has not done yet: runs to train, and finished ones that lack analyses or probes."""

    to_train: list[Spec]
    to_complete: list[Spec]
    additions: list[str]  # the names of what they lack

    @property
    def specs(self) -> list[Spec]:
        return [*self.to_train, *self.to_complete]


def find_missing(files: StudyFiles, plan: "Plan", console: Console) -> Missing:
    """What is left to do, by the files alone. Raises UserError where it cannot be done in this folder or from here."""
    data = contents(plan.config.data, plan.data)
    to_train = [spec for spec in plan.specs if not files.run(spec.name).has_finished(spec.config, data)]
    refuse_other_runs(files, to_train)
    for damage in filter(None, (files.run(spec.name).read_result()[1] for spec in to_train)):
        console.print(escape(damage), soft_wrap=True, highlight=False)
    refuse_other_data(files, plan, data)
    trained = {spec.name for spec in to_train}
    finished = [spec for spec in plan.specs if spec.name not in trained]
    lacking = {spec.name: [*chain(*files.run(spec.name).find_lacking(spec.config).values())] for spec in finished}
    to_complete = [spec for spec in finished if lacking[spec.name]]
    missing = Missing(to_train, to_complete, list(dict.fromkeys(chain(*lacking.values()))))
    if missing.specs:
        check_executor(plan.config.executor)
    for run in (files.run(spec.name) for spec in missing.specs):
        if run.error_path.exists():
            with suppress(Held), hold(run.folder):  # what failed in an earlier start is tried again, unless it is now
                run.error_path.unlink(missing_ok=True)
    return missing


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
        specs = make_specs(plan, step.added)
        with hold(files.folder, wait="turn"):
            files.add_cells(step.added)
        plan.specs.extend(specs)
        write_manifests(files, plan)
        errors |= run_all(files, plan, specs, live)


def run_all(files: StudyFiles, plan: "Plan", todo: Sequence[Spec], live: "LiveReport") -> dict[str, str]:
    """Train; results.csv grows with each run that ends. Gives the first line of each failed run's error."""
    if not todo:
        return {}
    board = Board([Row(s.name, s.config["variant"], plan.trials * plan.steps(s)) for s in todo], plan.jobs)
    executor, table = make_executor(files, plan), LiveTable(files)
    with display(board) as shown:

        def notify(event: Event) -> None:
            shown.notify(event)
            for view in (table, live):
                view.update(changed=event.kind in ("done", "failed"))

        try:
            execute(executor, todo, files.folder, notify, retries=plan.config.executor.retries)
        finally:
            collect(files)
    return {row.name: row.error for row in board.rows.values() if row.state == "failed"}


def retrain_missing(
    files: StudyFiles, plan: "Plan", failed: Mapping[str, str], live: "LiveReport", console: Console
) -> dict[str, str]:
    """Train again what has ended well and has no result, such as a run whose folder was deleted; says which.

    Once: what is missing then is among the runs that failed, which it gives.
    """
    data = contents(plan.config.data, plan.data)

    def list_missing() -> list[Spec]:
        ended = [spec for spec in plan.specs if spec.name not in failed]
        return [spec for spec in ended if not files.run(spec.name).has_finished(spec.config, data)]

    if not (missing := list_missing()):
        return {}
    names = ", ".join(spec.name for spec in missing[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
    text = f"{plural(len(missing), 'finished run')} whose result was deleted or damaged since: {names}{more}"
    console.print(escape(f"{text}; trained again"), soft_wrap=True, highlight=False)
    lost = run_all(files, plan, missing, live)
    return {spec.name: "its result was deleted or damaged again" for spec in list_missing()} | lost


def make_executor(files: StudyFiles, plan: "Plan") -> Executor:
    from vitlab.reports.wandb import RunReporter
    from vitlab.studies.job import StudyJob

    job = StudyJob(files.folder.absolute(), cores=plan.cores, settled=files.config()["settled"], observe=RunReporter)
    return build_executor(plan.config.executor, job, plan.jobs, files.folder)


def submit(files: StudyFiles, plan: "Plan", todo: Sequence[Spec]) -> int:
    """Submit the runs and say so; the exit code."""
    submission = make_executor(files, plan).submit(todo)
    print(submission.describe())
    if submission.unsubmitted:
        print("Run the command again later to submit those")
    print(f"'vitlab status {files.folder}' says how the runs go; the command without --detach waits for them")
    return 0
