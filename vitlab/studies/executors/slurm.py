"""Runs as jobs of a SLURM cluster, submitted by submitit (extra `slurm`). Imports no torch.

Missing runs go out as arrays of jobs. SLURM starts a job again that was preempted, that ran out of time or whose node
was lost; nothing is submitted while this program waits.
"""

import importlib.util
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from vitlab.config import UserError, resolved
from vitlab.config.schema import ExecutorConfig
from vitlab.formatting import plural
from vitlab.studies.cells import Cell, read_cell
from vitlab.studies.claims import hold
from vitlab.studies.events import Event, Job
from vitlab.studies.grid import Spec
from vitlab.studies.launching.slurm_allocation import Allocation
from vitlab.studies.launching.slurm_jobs import (
    FOLDER,
    find_option_problems,
    make_parameters,
    read_queue,
    read_submitted,
    submit_array,
)
from vitlab.training.files import RunFiles

DETACHES = True
LOOK = 2.0  # seconds between two looks at the files of runs
ASK = 10.0  # seconds between two questions to SLURM
NO_ANSWER = "executor=slurm: squeue does not answer on this host; run the command again when it does"


def check(config: ExecutorConfig) -> None:
    """Raise UserError for what is wrong with the configuration, or missing on this machine."""
    problems = find_option_problems(resolved(config)["slurm"]["options"])
    if config.gpus != int(config.gpus):
        problems.append(f"executor.gpus={config.gpus}: SLURM allocates whole GPUs; give 0, 1 or more")
    if missing := [program for program in ("sbatch", "srun", "squeue") if shutil.which(program) is None]:
        problems.append(
            f"executor=slurm: {' and '.join(missing)} cannot be found here; start the study where jobs of a SLURM "
            "cluster are submitted, or choose another executor (local, ray)"
        )
    elif read_queue() is None:
        problems.append(NO_ANSWER)
    if importlib.util.find_spec("submitit") is None:
        problems.append("executor=slurm needs the package submitit: pip install 'vitlab[slurm]'")
    if problems:
        raise UserError(problems)


def build(config: ExecutorConfig, job: Job, jobs: int, study: Path) -> "SlurmExecutor":
    return SlurmExecutor(config, job, jobs, study.absolute())


@dataclass(frozen=True)
class Submission:
    """What a start finds in the queue and adds to it: the job of each run."""

    queued: Mapping[str, str]
    added: Mapping[str, str]
    unsubmitted: int = 0  # runs for which the queue has no room

    def describe(self) -> str:
        numbers = sorted(set(self.added.values()), key=lambda job: [int(part) for part in job.split("_")])
        arrays = groupby(numbers, key=lambda job: job.partition("_")[0])
        jobs = ", ".join(f"{number} ({plural(len([*tasks]), 'task')})" for number, tasks in arrays)
        text = f"Submitted to SLURM: job {jobs}" if jobs else "Submitted nothing: all is in the queue"
        if self.unsubmitted:
            text += f"; {plural(self.unsubmitted, 'run')} not yet (executor.slurm.submitted jobs are in the queue)"
        return text


class SlurmExecutor:
    """Submits the runs that are missing, and follows them by their files."""

    def __init__(self, config: ExecutorConfig, job: Job, jobs: int, study: Path):
        self.config, self.job, self.study = config.slurm, job, study
        self.parameters = make_parameters(config, study.resolve().name, jobs)

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Submit and follow every run. KeyboardInterrupt ends the following alone; it says so.

        A run that has not ended fails once none of them is in the queue any more: the next start submits it again.
        """
        submission = self.submit(specs)
        print(submission.describe(), file=sys.stderr)
        jobs, told = {**submission.queued, **submission.added}, {}
        left, live, asked, looked = list(specs), True, time.monotonic(), 0.0
        try:
            while left:
                now = time.monotonic()
                if now - asked > ASK:
                    was_live, asked = live, now
                    queue = read_queue()
                    live = queue is None or any(job in queue for job in jobs.values())
                    if not (live or was_live):  # twice, for a network file system may show the end of a run late
                        break
                if now - looked > LOOK:
                    left, looked = [spec for spec in left if not self.tell(spec, told, notify)], now
                notify(Event("tick", ""))
                time.sleep(tick)
        except KeyboardInterrupt:
            numbers = sorted({job.partition("_")[0] for run, job in jobs.items()}, key=int)
            end = f", 'scancel {' '.join(numbers)}' ends them" if numbers else ""
            print(f"The jobs go on without this watcher: 'vitlab status {self.study}' says how{end}", file=sys.stderr)
            raise
        for spec in left:
            if not self.tell(spec, told, notify):
                notify(Event("failed", spec.name, self.explain_missing(jobs.get(spec.name))))

    def explain_missing(self, job: str | None) -> str:
        """Why a run has no result although none of its jobs is in the queue."""
        if job is None:
            return "not submitted, for executor.slurm.submitted jobs were in the queue; the same command submits it"
        log = self.study / FOLDER / f"{job}_0_log.out"
        return f"its job {job} ended without a result; see {log}; the same command continues it"

    def tell(self, spec: Spec, told: dict[str, Event], notify: Callable[[Event], None]) -> bool:
        """Whether a run has ended; tells what has changed since the last look."""
        cell = self.read_cell(spec)
        if cell.state != "waiting" and spec.name not in told:
            told[spec.name] = Event("started", spec.name)
            notify(told[spec.name])
        if cell.state != "waiting" and cell.event.run and told[spec.name] != cell.event:
            told[spec.name] = cell.event
            notify(cell.event)
        return cell.state in ("finished", "failed")

    def read_cell(self, spec: Spec) -> Cell:
        """A run's state; one that lacks analyses or probes of the study has not finished."""
        cell, files = read_cell(self.study, spec.name), RunFiles(self.study / spec.name)
        if cell.state != "finished" or not any(files.find_lacking(spec.config).values()):
            return cell
        error = files.error()
        return replace(cell, state="waiting" if error is None else "failed", error=error or "")

    def submit(self, specs: Sequence[Spec]) -> Submission:
        """Submit every run that no job in the queue and no other process holds. Raises UserError."""
        with hold(self.study / FOLDER, wait="turn"):  # another start of the study may submit its own
            if (queue := read_queue()) is None:
                raise UserError(NO_ANSWER)
            queued = {run: job for run, job in read_submitted(self.study).items() if job in queue}
            missing = [s for s in specs if s.name not in queued and self.read_cell(s).state == "waiting"]
            groups = split(missing, self.config.cells)
            room = max(0, self.config.submitted - len({*queued.values()}))
            added: dict[str, str] = {}
            for chunk in split(groups[:room], self.config.array):
                jobs = [Allocation(self.job, group, self.study) for group in chunk]
                names = [[spec.name for spec in group] for group in chunk]
                added |= submit_array(self.study, jobs, names, self.parameters)
            return Submission(queued, added, len(missing) - len(added))


def split(items: Sequence, size: int) -> list[list]:
    """Lists of so many items, the last of the rest."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]
