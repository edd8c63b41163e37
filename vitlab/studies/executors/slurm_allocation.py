"""What a job of SLURM does: runs of a study, one after the other in one process, which imports torch once."""

import contextlib
import copy
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitlab.studies.events import Job, summarize_error
from vitlab.studies.executors.slurm_jobs import FOLDER, Submitter, read_submitted
from vitlab.studies.grid import Spec
from vitlab.training.files import RunFiles
from vitlab.training.lease import WHERE, Held, LeaseLost, hold_in_turn, read_claim, watch_until_expired
from vitlab.training.progress import Progress


class Allocation:
    """A job as submitit pickles it. SLURM may start it again after a timeout, a preemption or the loss of a node."""

    def __init__(self, job: Job, specs: Sequence[Spec], submitter: Submitter):
        # in bytes: reading it imports torch, and a signal before there are handlers would kill this process
        self.job, self.specs, self.submitter = pickle.dumps(job), specs, submitter

    def checkpoint(self) -> Any:
        """What submitit writes before it has the job requeued: the same, for the folders of the runs say the rest."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def __call__(self) -> None:
        import submitit

        number = submitit.JobEnvironment().job_id
        os.environ[WHERE] = f"SLURM job {number} on {socket.gethostname()}"
        left, advanced, began = list(self.specs), False, time.monotonic()
        with noted_signals() as (signals, requeue):
            job = pickle.loads(self.job)
            while left and not signals:
                ended, steps = self.train(job, left[0], signals)
                advanced |= ended or steps > 0
                left = left[ended:]
            if not left:
                return
            half = 0.5 * 60 * self.submitter.parameters["time"]
            if not advanced and time.monotonic() - began > half:
                print("no run advanced by a step in this allocation: not submitted again from here", flush=True)
            elif is_running(number):
                self.go_on(left, requeue)
        sys.exit(1)

    def train(self, job: Job, spec: Spec, signals: Sequence[int]) -> tuple[bool, int]:
        """Whether a run has ended, or is somebody else's; else it was stopped, and made so many steps."""
        files, steps = RunFiles(self.submitter.study / spec.name), [0]
        print(f"{spec.name}: starts", flush=True)

        def report(progress: Progress) -> None:
            steps[1:] = [progress.step]
            steps[0] = steps[0] or progress.step

        try:
            expired = watch_until_expired(files.folder)
            job(replace(spec, expired=expired), report, lambda: bool(signals))
            said = "finished"
        except (Held, LeaseLost) as error:
            said = str(error)
        except Exception as error:
            if signals:  # processes that helped the run may have died of the signal: it has not failed
                files.error_path.unlink(missing_ok=True)
                print(f"{spec.name}: stopped at step {steps[-1]}", flush=True)
                return False, steps[-1] - steps[0]
            said = f"failed: {summarize_error(error)}"
        print(f"{spec.name}: {said}", flush=True)
        return True, 0

    def go_on(self, left: Sequence[Spec], requeue: Callable[[], None]) -> None:
        """Have the runs that are left continued: by this job where the cluster requeues jobs, else by a new one."""
        try:
            requeue()  # ends this process
        except (OSError, subprocess.SubprocessError) as error:
            print(f"this cluster does not requeue the job ({error}): submitting another", flush=True)
        study = self.submitter.study
        with hold_in_turn(study / FOLDER):
            before = read_submitted(study)
            runs = [replace(before[spec.name], step=reached(study, spec.name)) for spec in left]
            rest = copy.copy(self)
            rest.specs = left
            ((first, *_),) = self.submitter.submit([rest], [runs], room=1)
        print(f"submitted as job {first.job}", flush=True)


def reached(study: Path, run: str) -> int:
    """The last step that a run has told of, 0 for one that has not begun."""
    claim = read_claim(study / run)
    return claim.progress.get("step", 0) if claim else 0


@contextlib.contextmanager
def noted_signals() -> Iterator[tuple[list[int], Callable[[], None]]]:
    """The signals by which SLURM announces the end of an allocation, as they come; and what submitit does at one.

    Nothing is done in a handler: the run is in the middle of a step, and ends by itself. Processes that this one
    starts get the warning, too, which would kill them: it is blocked in all of them.
    """
    from submitit.core.job_environment import JobEnvironment

    warning = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        noted.append(number)

    submitits = signal.signal(warning, note)
    signal.signal(signal.SIGTERM, note)
    signal.pthread_sigmask(signal.SIG_BLOCK, {warning})
    threading.Thread(target=lambda: noted.append(signal.sigwait({warning})), daemon=True).start()
    yield noted, lambda: submitits(warning, None)


def is_running(job: str) -> bool:
    """Whether SLURM lets a job run on; one that is being cancelled, or whose time is over, is completing."""
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip() == "RUNNING"
    except (OSError, subprocess.SubprocessError):  # no squeue on this node
        return True
