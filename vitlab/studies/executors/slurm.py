"""Runs as jobs of a SLURM cluster, submitted by submitit (extra `slurm`). Imports no torch.

Missing runs go out as arrays of jobs. SLURM starts a job again that was preempted, that ran out of time or whose node
was lost.
"""

import importlib.util
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from vitlab.config import UserError, resolved
from vitlab.config.schema import ExecutorConfig
from vitlab.formatting import plural
from vitlab.studies.cells import read_state
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

DETACHES = True
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
            "cluster are submitted, or choose another executor"
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
    unsubmitted: list[Spec]  # for which the queue has no room

    def describe(self) -> str:
        numbers = sorted(set(self.added.values()), key=lambda job: [int(part) for part in job.split("_")])
        arrays = groupby(numbers, key=lambda job: job.partition("_")[0])
        jobs = ", ".join(f"{number} ({plural(len([*tasks]), 'task')})" for number, tasks in arrays)
        text = f"Submitted to SLURM: job {jobs}" if jobs else "Submitted nothing: all is in the queue"
        if self.unsubmitted:
            text += f"; {plural(len(self.unsubmitted), 'run')} not yet (executor.slurm.submitted jobs are in the queue)"
        return text


class SlurmExecutor:
    """Submits the runs that are missing; their files say how they go, and the queue which of them are lost."""

    reports = False

    def __init__(self, config: ExecutorConfig, job: Job, jobs: int, study: Path):
        self.config, self.job, self.study, self.most = config.slurm, job, study, jobs
        self.parameters = make_parameters(config, study.resolve().name, jobs)
        self.unsubmitted: list[Spec] = []
        self.submitted: dict[str, Spec] = {}
        self.jobs: dict[str, str] = {}  # the job of each submitted run
        self.gone: set[str] = set()  # runs whose job was no longer in the queue when it was last asked
        self.asked_at = -math.inf

    def can_start(self, spec: Spec) -> bool:
        return True

    def start(self, spec: Spec) -> None:
        self.unsubmitted.append(spec)

    def wait(self, seconds: float) -> list[Event]:
        """Submit what the queue has room for; gives the runs whose job has ended without a result."""
        time.sleep(seconds)
        if time.monotonic() - self.asked_at < ASK:
            return []
        self.asked_at = time.monotonic()
        # where --jobs limits them, new arrays wait for those in the queue: few large ones, not one for each that ends
        if self.unsubmitted and len({self.jobs[run] for run in {*self.jobs} - self.gone}) < self.most:
            self.submit_waiting()
        if (queue := read_queue()) is None:
            return []
        before, self.gone = self.gone, {run for run, job in self.jobs.items() if job not in queue}
        lost = self.gone & before  # twice, for a network file system may show the end of a run late
        cells = [read_state(self.study, run, self.submitted[run].config) for run in lost]
        ended = [cell.run for cell in cells if cell.state != "running"]
        events = [Event("failed", run, self.explain_missing(self.jobs.pop(run))) for run in ended]
        return [event for event in events if event.run in {cell.run for cell in cells if cell.state == "waiting"}]

    def submit_waiting(self) -> None:
        submission = self.submit(self.unsubmitted)
        if submission.added or not self.jobs:
            print(submission.describe(), file=sys.stderr)
        self.submitted |= {spec.name: spec for spec in self.unsubmitted}
        jobs = {**submission.queued, **submission.added}
        self.jobs |= {spec.name: jobs[spec.name] for spec in self.unsubmitted if spec.name in jobs}
        self.unsubmitted = submission.unsubmitted

    def explain_missing(self, job: str) -> str:
        """Why a run has no result although its job is no longer in the queue."""
        log = self.study / FOLDER / f"{job}_0_log.out"
        return f"its job {job} ended without a result; see {log}; the same command continues it"

    def stop(self) -> None:
        """The jobs go on: say how to end them."""
        numbers = sorted({job.partition("_")[0] for job in self.jobs.values()}, key=int)
        end = f", 'scancel {' '.join(numbers)}' ends them" if numbers else ""
        print(f"The jobs go on without this watcher: 'vitlab status {self.study}' says how{end}", file=sys.stderr)

    def close(self) -> None:
        """Nothing of this executor is left here."""

    def submit(self, specs: Sequence[Spec]) -> Submission:
        """Submit every run that no job in the queue and no other process holds. Raises UserError.

        An array limits how many of its own tasks run. So that no more than `most` do of all arrays, one waits for the
        end of an earlier one, or of all that are in the queue; as many go side by side as have room together.
        """
        with hold(self.study / FOLDER, wait="turn"):  # another start of the study may submit its own
            if (queue := read_queue()) is None:
                raise UserError(NO_ANSWER)
            queued = {run: job for run, job in read_submitted(self.study).items() if job in queue}
            others = [spec for spec in specs if spec.name not in queued]
            missing = [spec for spec in others if read_state(self.study, spec.name, spec.config).state == "waiting"]
            groups = split(missing, self.config.cells)
            before = {*queued.values()}
            room, abreast = max(0, self.config.submitted - len(before)), max(1, self.most // self.config.array)
            limited = len(before) + len(groups) > self.most
            waits = [{job.partition("_")[0] for job in before}] * abreast  # for which arrays each new one does
            added: dict[str, str] = {}
            for chunk in split(groups[:room], self.config.array):
                jobs = [Allocation(self.job, group, self.study) for group in chunk]
                names = [[spec.name for spec in group] for group in chunk]
                new = submit_array(self.study, jobs, names, self.parameters, after=waits.pop(0) if limited else ())
                waits.append({next(iter(new.values())).partition("_")[0]})
                added |= new
            return Submission(queued, added, [spec for spec in missing if spec.name not in added])


def split(items: Sequence, size: int) -> list[list]:
    """Lists of so many items, the last of the rest."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]
