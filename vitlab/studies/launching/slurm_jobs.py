"""The jobs that a study has in SLURM. Imports no torch.

`STUDY/slurm/jobs/<id>.json` says which runs a submission holds, so that any host, without SLURM too, knows the job of
a run. Beside them lies what submitit keeps of each job: what it runs, its output, its result.
"""

import contextlib
import io
import math
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from vitlab.config import UserError
from vitlab.config.schema import ExecutorConfig
from vitlab.files import read_json, write_json

FOLDER = "slurm"  # below the study's
ANSWER = 60.0  # seconds that squeue has for an answer
WARNING = 90  # seconds before the end of an allocation at which its run is told to write a checkpoint
OURS = {  # options of sbatch that are fields of the executor's configuration, or that this program decides
    "partition": "slurm.partition",
    "account": "slurm.account",
    "qos": "slurm.qos",
    "time": "slurm.hours",
    "setup": "slurm.setup",
    "cpus-per-task": "cpus",
    "mem": "memory",
    "gpus": "gpus",
    "gpus-per-node": "gpus",
    "array": "slurm.array",
}
FIXED = ("output", "error", "signal", "job-name", "open-mode", "chdir", "nodes", "ntasks")


def read_submitted(study: Path) -> dict[str, str]:
    """The last job of each run that was ever submitted, such as 12_3, by run. Raises UserError."""
    submissions = [read_json(path, read_submission) for path in (study / FOLDER / "jobs").glob("*.json")]
    return {run: job for _, jobs in sorted(submissions, key=lambda one: one[0]) for run, job in jobs.items()}


def read_submission(found: dict[str, Any]) -> tuple[float, dict[str, str]]:
    """When it was submitted, and the job of each of its runs."""
    return found["time"], {str(run): str(job) for run, job in dict(found["jobs"]).items()}


def read_queue() -> dict[str, str] | None:
    """The state of each job of this user that has not ended; None where squeue does not answer."""
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i|%T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(line.split("|", 1) for line in answer.stdout.split())


def submit_array(
    study: Path,
    jobs: Sequence[Callable[[], Any]],
    runs: Sequence[Sequence[str]],
    parameters: dict[str, Any],
    after: Collection[str] = (),
) -> dict[str, str]:
    """Submit an array of jobs, which hold these runs, and write it down; gives the job of each run.

    It begins once the arrays `after` have ended. Raises UserError with what sbatch says.
    """
    import submitit
    from submitit.core.utils import FailedJobError

    folder = study / FOLDER
    before = {*folder.glob("*.*")}
    executor = submitit.SlurmExecutor(folder, max_num_timeout=10**6)  # a run may need any number of allocations
    executor.update_parameters(**parameters)
    if after:
        options = parameters["additional_parameters"]
        given = [options["dependency"]] if "dependency" in options else []
        dependency = ",".join([*given, ":".join(["afterany", *sorted(after)])])
        executor.update_parameters(additional_parameters={**options, "dependency": dependency})
    try:
        with contextlib.redirect_stderr(io.StringIO()), outside_jobs():  # submitit prints what sbatch says
            submitted = executor.submit_array(jobs)
    except FailedJobError as error:
        for path in {*folder.glob("*.*")} - before:  # what submitit wrote for the jobs
            path.unlink()
        reasons = [line.partition("error: ")[2] or line for line in str(error).splitlines() if line.strip()]
        raise UserError(f"executor=slurm: sbatch refused the jobs: {'; '.join(reasons) or 'no reason given'}") from None
    job_of_run = {run: job.job_id for job, of_job in zip(submitted, runs, strict=True) for run in of_job}
    number = submitted[0].job_id.partition("_")[0]
    write_json(folder / "jobs" / f"{number}.json", {"time": time.time(), "jobs": job_of_run})
    return job_of_run


@contextlib.contextmanager
def outside_jobs() -> Iterator[None]:
    """Without the variables of the job that this process is part of, which sbatch would take as options."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    import submitit

    variables = {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
    with submitit.helpers.clean_env():
        os.environ.update(variables)
        yield


def make_parameters(config: ExecutorConfig, name: str, jobs: int) -> dict[str, Any]:
    """What submitit is told of an allocation; `jobs` is how many of an array run at a time."""
    slurm = config.slurm
    minutes = math.ceil(slurm.hours * 60)
    optional = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "gpus_per_node": int(config.gpus) or None,
        "mem": config.memory and f"{math.ceil(config.memory * 1e9 / 2**20)}M",
        "setup": slurm.setup or None,
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
        "additional_parameters": slurm.options,
    }


def find_option_problems(options: dict[str, Any]) -> list[str]:
    """What is wrong with `executor.slurm.options`, one line each."""
    problems = []
    for key, value in options.items():
        name, where = key.replace("_", "-"), f"executor.slurm.options.{key}"
        if name in OURS:
            problems.append(f"{where}: give executor.{OURS[name]} instead")
        elif name in FIXED:
            problems.append(f"{where}: is set by vitlab; leave it out")
        elif isinstance(value, dict | list) or value is None or value is False:
            problems.append(f"{where}={value}: give a text, a number, or true for an option without a value")
    return problems
