"""The jobs that a study has in SLURM, and what becomes of them. Imports no torch.

`STUDY/slurm/jobs/<id>.json` says which runs a submission holds, so that any host, without SLURM too, knows the job of
a run. Beside them lies what submitit keeps of each job: what it runs, its output, its result.
"""

import contextlib
import getpass
import io
import math
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from vitlab.config import UserError, resolved
from vitlab.files import read_json, write_json

FOLDER = "slurm"  # below the study's
ANSWER = 60.0  # seconds that squeue has for an answer
WARNING = 90  # seconds before the end of an allocation at which its run is told to write a checkpoint
ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
}
OURS = {  # options of sbatch that are fields of the executor's configuration, or that this program decides
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "hours",
    "setup": "setup",
    "cpus-per-task": "cpus",
    "mem": "memory",
    "gpus": "gpus",
    "gpus-per-node": "gpus",
    "array": "array",
}
FIXED = ("output", "error", "signal", "job-name", "open-mode", "chdir", "nodes", "ntasks")


@dataclass(frozen=True)
class Submitted:
    """A run of a study in a job: its number in the queue, such as 12_3, and who submitted it.

    `lost` counts the jobs that ended under the run before, `step` is how far it was when it was submitted.
    """

    run: str
    job: str
    user: str
    lost: int = 0
    step: int = 0


def read_submitted(study: Path) -> dict[str, Submitted]:
    """The last job of each run that was ever submitted, by run. Raises UserError."""
    found = [read_json(path, read_submission) for path in (study / FOLDER / "jobs").glob("*.json")]
    last = sorted(filter(None, found), key=itemgetter(0))
    return {one.run: one for _, runs in last for one in runs}


def read_submission(found: dict[str, Any]) -> tuple[float, list[Submitted]]:
    """When it was submitted, and its runs."""
    return found["time"], [Submitted(**one) for one in found["runs"]]


def read_queue(users: Collection[str]) -> dict[str, str] | None:
    """The state of each job of these users, also of those that ended minutes ago; None where squeue does not answer."""
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T", f"--user={','.join(sorted(users))}"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(line.split("|", 1) for line in found.stdout.split())


class Submitter:
    """Submits jobs to SLURM for a study, with the same options for all; small enough to be part of a job itself."""

    def __init__(self, study: Path, name: str, config: DictConfig, jobs: int):
        self.study, self.array = study, config.slurm.array
        self.parameters = make_parameters(config, name, jobs)

    def submit(
        self, jobs: Sequence[Callable[[], Any]], runs: Sequence[Sequence[Submitted]], room: int
    ) -> list[list[Submitted]]:
        """Submit jobs, of which each holds some runs, in arrays; at most `room`. Gives the runs of each.

        Each array is written down before the next is submitted. Raises UserError with what sbatch says.
        """
        import submitit
        from submitit.core.utils import FailedJobError

        done: list[list[Submitted]] = []
        folder = self.study / FOLDER
        executor = submitit.SlurmExecutor(folder, max_num_timeout=10**6)  # the runs themselves say when to give up
        executor.update_parameters(**self.parameters)
        while len(done) < min(len(jobs), room):
            chunk, kept = slice(len(done), min(len(done) + self.array, room)), {*folder.glob("*.*")}
            try:
                with contextlib.redirect_stderr(io.StringIO()), outside_jobs():  # submitit prints what sbatch says
                    found = executor.submit_array(jobs[chunk])
            except FailedJobError as error:
                for path in {*folder.glob("*.*")} - kept:  # what submitit wrote for the jobs
                    path.unlink()
                raise Refused(error, done) from None
            user = getpass.getuser()
            named = [
                [Submitted(one.run, job.job_id, user, one.lost, one.step) for one in of_job]
                for job, of_job in zip(found, runs[chunk], strict=True)
            ]
            lines = [asdict(one) for of_job in named for one in of_job]
            number = found[0].job_id.partition("_")[0]
            write_json(folder / "jobs" / f"{number}.json", {"time": time.time(), "runs": lines})
            done += named
        return done


@contextlib.contextmanager
def outside_jobs() -> Iterator[None]:
    """Without the variables of the job that this process is part of, which sbatch would take as options."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    import submitit

    kept = {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
    with submitit.helpers.clean_env():
        os.environ.update(kept)
        yield


class Refused(UserError):
    """sbatch did not take a job; `submitted` are the runs of the jobs that it took before."""

    def __init__(self, error: Exception, submitted: list[list[Submitted]]):
        said = [line.partition("error: ")[2] or line for line in str(error).splitlines() if line.strip()]
        super().__init__(f"executor=slurm: sbatch refused the jobs: {'; '.join(said) or 'no reason given'}")
        self.submitted = submitted


def make_parameters(config: DictConfig, name: str, jobs: int) -> dict[str, Any]:
    """What submitit is told of an allocation; `jobs` is how many of an array run at a time."""
    slurm = config.slurm
    minutes = math.ceil(slurm.hours * 60)
    optional = {
        **{key: slurm[key] for key in ("partition", "account", "qos")},
        "gpus_per_node": int(config.gpus) or None,
        "mem": config.memory and f"{math.ceil(config.memory * 1e9 / 2**20)}M",
        "setup": resolved(slurm)["setup"] or None,
    }
    return {
        **{key: value for key, value in optional.items() if value is not None},
        "job_name": f"vitlab-{name}",
        "time": minutes,
        "cpus_per_task": config.cpus,
        "srun_args": [f"--cpus-per-task={config.cpus}"],  # srun does not take it from sbatch since SLURM 22.05
        "signal_delay_s": min(WARNING, minutes * 60 // 4),
        "stderr_to_stdout": True,
        "array_parallelism": jobs,
        "additional_parameters": resolved(slurm)["options"],
    }


def find_option_problems(options: dict[str, Any]) -> list[str]:
    """What is wrong with `executor.slurm.options`, one line each."""
    problems = []
    for key, value in options.items():
        name, where = key.replace("_", "-"), f"executor.slurm.options.{key}"
        if name in OURS:
            field = OURS[name] if OURS[name] in ("cpus", "memory", "gpus") else f"slurm.{OURS[name]}"
            problems.append(f"{where}: give executor.{field} instead")
        elif name in FIXED:
            problems.append(f"{where}: is set by vitlab; leave it out")
        elif isinstance(value, dict | list) or value is None or value is False:
            problems.append(f"{where}={value}: give a text, a number, or true for an option without a value")
    return problems
