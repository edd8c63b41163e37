"""Runs as jobs of a SLURM cluster, submitted by submitit (extra `slurm`). Imports no torch.

This program only submits and watches: what is submitted stands in files (`slurm_jobs`), and how runs go in their own.
"""

import getpass
import importlib.util
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from omegaconf import DictConfig

from vitlab.config import UserError, resolved
from vitlab.formatting import plural
from vitlab.studies.cells import Cell, CellReader
from vitlab.studies.events import Event, Job
from vitlab.studies.executors.slurm_allocation import Allocation, reached
from vitlab.studies.executors.slurm_jobs import (
    ENDED,
    FOLDER,
    Refused,
    Submitted,
    Submitter,
    find_option_problems,
    read_queue,
    read_submitted,
)
from vitlab.studies.grid import Spec
from vitlab.training.files import RunFiles
from vitlab.training.lease import hold_in_turn, read_claim

LOOK = 2.0  # seconds between two looks at the files of runs
ASK = 10.0  # seconds between two questions to SLURM
WORTH = 400.0  # seconds of runs for which an allocation is worth its start of about 20


def check(config: DictConfig) -> None:
    """Raise UserError for what is wrong with the configuration, or missing on this machine."""
    problems = find_option_problems(resolved(config)["slurm"]["options"])
    if config.gpus != int(config.gpus):
        problems.append(f"executor.gpus={config.gpus}: SLURM allocates whole GPUs; give 0, 1 or more")
    if missing := [program for program in ("sbatch", "srun", "squeue") if shutil.which(program) is None]:
        problems.append(
            f"executor=slurm: {' and '.join(missing)} cannot be found here; start the study where jobs of a SLURM "
            "cluster are submitted, or choose another executor (local, ray)"
        )
    elif read_queue({getpass.getuser()}) is None:
        problems.append(
            "executor=slurm: squeue does not answer on this host; run the command again when it does, on a host where "
            "jobs are submitted"
        )
    if importlib.util.find_spec("submitit") is None:
        problems.append("executor=slurm needs the package submitit: pip install 'vitlab[slurm]'")
    if problems:
        raise UserError(problems)


def build(config: DictConfig, job: Job, jobs: int, cells: CellReader) -> "SlurmExecutor":
    submitter = Submitter(cells.folder.absolute(), cells.folder.resolve().name, config, jobs)
    return SlurmExecutor(config, job, cells, submitter)


@dataclass(frozen=True)
class Submission:
    """What a look at the queue has led to: the jobs of runs that are in it, and those that this look submitted."""

    live: Mapping[str, str]  # run -> job
    added: Sequence[str] = ()  # jobs
    unsubmitted: int = 0  # runs for which the queue has no room
    refusal: str = ""  # what sbatch says of them

    def describe(self) -> str:
        """What a start says of it, in a line."""
        numbers = [one.partition("_")[0] for one in self.added]
        jobs = [f"{number} ({plural(len([*same]), 'task')})" for number, same in groupby(numbers)]
        text = f"Submitted to SLURM: job {', '.join(jobs)}" if jobs else "Submitted nothing: all is in the queue"
        if self.unsubmitted:
            why = self.refusal or "executor.slurm.submitted jobs are in the queue"
            text += f"; {plural(self.unsubmitted, 'run')} not yet ({why})"
        return text


class SlurmExecutor:
    """Submits what is missing, follows it by the files of its runs, and submits again what was lost."""

    def __init__(self, config: DictConfig, job: Job, cells: CellReader, submitter: Submitter):
        self.config, self.job, self.cells, self.submitter = config, job, cells, submitter
        self.study = cells.folder
        self.gone: set[str] = set()  # jobs that were not in the queue at the last look
        self.pending: set[str] = set()  # runs that no process has begun

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Submit and follow every run to its end. KeyboardInterrupt ends the following alone; it says so."""
        left = {spec.name: spec for spec in specs}
        said: dict[str, Event | str] = {}
        try:
            print(self.submit(specs, notify).describe(), file=sys.stderr)
            asked = looked = time.monotonic()
            while left:
                now = time.monotonic()
                if now - asked > ASK:
                    self.update([*left.values()], notify)
                    asked = now
                if now - looked > LOOK:
                    ended = [name for name, spec in left.items() if self.tell(spec, said, notify)]
                    left = {name: spec for name, spec in left.items() if name not in ended}
                    looked = now
                notify(Event("tick", ""))
                time.sleep(tick)
        except KeyboardInterrupt:
            jobs = {one.partition("_")[0] for one in self.jobs_of(left)}
            end = f", 'scancel {' '.join(sorted(jobs, key=int))}' ends them" if jobs else ""
            print(f"The jobs go on without this watcher: 'vitlab status {self.study}' says how{end}", file=sys.stderr)
            raise

    def tell(self, spec: Spec, said: dict[str, Event | str], notify: Callable[[Event], None]) -> bool:
        """Whether a run has ended; tells what has changed since the last look."""
        if spec.name in self.pending:
            return False
        cell = self.look(spec)
        if cell.state != "waiting" and spec.name not in said:
            said[spec.name] = "started"
            notify(Event("started", spec.name))
        if cell.event.run and said.get(spec.name) != cell.event:
            said[spec.name] = cell.event
            notify(cell.event)
        return cell.state in ("finished", "failed")

    def look(self, spec: Spec) -> Cell:
        """A run's state; one that lacks analyses or probes of the study has not finished."""
        cell, files = self.cells.read(spec.name), RunFiles(self.study / spec.name)
        if cell.state != "finished" or not any(files.find_lacking(spec.config).values()):
            return cell
        error = files.error()
        return replace(cell, state="waiting" if error is None else "failed", error=error or "")

    # ---- jobs

    def submit(self, specs: Sequence[Spec], notify: Callable[[Event], None] = lambda event: None) -> Submission:
        """A start: submit every run that no job holds, whatever became of earlier jobs. Raises UserError."""
        return self.update(specs, notify, again=True)

    def update(self, specs: Sequence[Spec], notify: Callable[[Event], None], *, again: bool = False) -> Submission:
        """Submit the runs that no job holds: new ones, and those whose job was lost, as often as the study allows."""
        with hold_in_turn(self.study / FOLDER):
            known = read_submitted(self.study)
            queue = read_queue({one.user for one in known.values()}) if known else {}
            if queue is None:
                if again:
                    raise UserError("executor=slurm: squeue does not answer; run the command again when it does")
                self.pending = set()  # only the files tell
                return Submission({})
            live = {run: one.job for run, one in known.items() if queue.get(one.job, "COMPLETED") not in ENDED}
            self.pending = {run for run, job in live.items() if queue[job] == "PENDING"}
            missing = []
            for spec in (spec for spec in specs if spec.name not in live):
                before = known.get(spec.name)
                cell = self.look(spec)
                theirs = cell.state == "running" and not (before and is_of(cell.where, before.job))
                if cell.state in ("finished", "failed") or theirs:
                    continue
                if before is None or again:
                    missing.append((spec, Submitted(spec.name, "", "")))
                elif before.job in self.gone:  # network file systems may show the end of a run late
                    missing += self.retry(spec, before, known, queue.get(before.job, "unknown"), notify)
            self.gone = {one.job for one in known.values()} - {*live.values()}
            room = self.config.slurm.submitted - len({*live.values()})
            return self.add(missing, room, live)

    def add(self, missing: Sequence[tuple[Spec, Submitted]], room: int, live: dict[str, str]) -> Submission:
        """Submit runs as far as there is room, several short ones as one job."""
        missing = [(spec, replace(one, step=reached(self.study, one.run))) for spec, one in missing]
        groups = pack(missing, self.config.slurm.cells)
        jobs = [Allocation(self.job, [spec for spec, _ in group], self.submitter) for group in groups]
        refusal = ""
        try:
            done = self.submitter.submit(jobs, [[one for _, one in group] for group in groups], room) if jobs else []
        except Refused as error:
            done, refusal = error.submitted, str(error)
            if not done and not live:  # nothing would ever end and make room
                raise
        runs = {one.run: one.job for of_job in done for one in of_job}
        self.pending |= {*runs}
        return Submission(live | runs, [of_job[0].job for of_job in done], len(missing) - len(runs), refusal)

    def retry(
        self,
        spec: Spec,
        before: Submitted,
        known: Mapping[str, Submitted],
        state: str,
        notify: Callable[[Event], None],
    ) -> list[tuple[Spec, Submitted]]:
        """The run to submit again, after its job was lost; none where that was too often, which is its error."""
        lost = before.lost + self.is_to_blame(before, known)
        if lost <= self.config.retries:
            notify(Event("retried", spec.name, f"its job {before.job} has ended ({state}); submitted again"))
            return [(spec, replace(before, lost=lost))]
        log = self.study / FOLDER / f"{before.job}_0_log.out"
        self.cells.fail(spec.name, f"its jobs were lost {lost} times, the last was {before.job} ({state}); see {log}")
        return []

    def is_to_blame(self, before: Submitted, known: Mapping[str, Submitted]) -> bool:
        """Whether the loss of a job counts for one of its runs: it had begun, and did not stop in order and advanced.

        Where no run of the job has begun, the job cannot start, and it counts for all.
        """
        claim = read_claim(self.study / before.run)
        if claim and is_of(claim.where, before.job):
            return not (claim.released and claim.progress.get("step", 0) > before.step)
        return not any(self.has_begun(run, one.job) for run, one in known.items() if one.job == before.job)

    def has_begun(self, run: str, job: str) -> bool:
        claim, files = read_claim(self.study / run), RunFiles(self.study / run)
        return files.result_path.is_file() or files.error_path.is_file() or bool(claim and is_of(claim.where, job))

    def jobs_of(self, runs: Iterable[str]) -> set[str]:
        known = read_submitted(self.study)
        return {known[run].job for run in runs if run in known}


def is_of(where: str, job: str) -> bool:
    """Whether what a lease says of its place names a job."""
    return where.startswith(f"SLURM job {job} ")


def pack(missing: Sequence[tuple[Spec, Submitted]], cells: int | str) -> list[list[tuple[Spec, Submitted]]]:
    """Runs that share an allocation: so many, or such that it is worth its start; one that was lost is alone."""
    groups: list[list[tuple[Spec, Submitted]]] = []
    for spec, one in missing:
        last = groups[-1] if groups else []
        alone = one.lost or (last and last[-1][1].lost)
        seconds = sum(earlier.seconds or WORTH for earlier, _ in last)
        full = seconds >= WORTH if cells == "auto" else len(last) >= cells
        if not last or alone or full:
            groups.append([(spec, one)])
        else:
            last.append((spec, one))
    return groups
