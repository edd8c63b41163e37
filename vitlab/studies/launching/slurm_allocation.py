"""What a job of SLURM does: runs of a study, one after the other in one process, which imports torch once."""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vitlab.studies.claims import JOB, ClaimLost, Held, hold
from vitlab.studies.events import Job, summarize_error
from vitlab.studies.grid import Spec
from vitlab.studies.launching.slurm_jobs import read_queue
from vitlab.training.files import RunFiles


class Allocation:
    """A job as submitit pickles it. SLURM starts it again after a timeout, a preemption or the loss of a node."""

    def __init__(self, job: Job, specs: Sequence[Spec], study: Path):
        # in bytes: reading it imports torch, and a signal before there are handlers would kill this process
        self.job, self.specs, self.study = pickle.dumps(job), specs, study

    def checkpoint(self) -> Any:
        """What submitit writes before it has the job requeued: the same, for the folders of the runs say the rest."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def __call__(self) -> None:
        import submitit

        number = os.environ[JOB] = submitit.JobEnvironment().job_id
        with noted_signals() as (signals, requeue):
            job = pickle.loads(self.job)
            for spec in self.specs:
                before = self.read_step(spec)
                self.train(job, spec, signals)
                if signals and self.read_step(spec) == before:
                    sys.exit(f"{spec.name}: no step in this allocation; give a longer one (executor.slurm.hours)")
                if signals:
                    queue = read_queue()
                    if queue is None or queue.get(number) == "RUNNING":  # else it is being cancelled
                        requeue()
                    sys.exit(1)

    def train(self, job: Job, spec: Spec, signals: Sequence[int]) -> None:
        files = RunFiles(self.study / spec.name)
        if files.error() is not None or (files.result() and not any(files.find_lacking(spec.config).values())):
            return  # it had ended before this job was started again
        print(f"{spec.name}: starts", flush=True)
        try:
            job(spec, lambda progress: None, lambda: bool(signals))
            outcome = "finished"
        except (Held, ClaimLost) as error:
            outcome = str(error)
        except Exception as error:
            outcome = f"failed: {summarize_error(error)}"
            if signals:  # processes that helped the run may have died of the signal: it has not failed
                with suppress(Held), hold(files.folder):
                    files.error_path.unlink(missing_ok=True)
                outcome = "stopped, to be continued"
        print(f"{spec.name}: {outcome}", flush=True)

    def read_step(self, spec: Spec) -> int:
        progress = RunFiles(self.study / spec.name).read_progress()
        return progress.step if progress else 0


@contextmanager
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

    submitits: Callable[..., None] = signal.signal(warning, note)
    signal.signal(signal.SIGTERM, note)
    signal.pthread_sigmask(signal.SIG_BLOCK, {warning})
    threading.Thread(target=lambda: noted.append(signal.sigwait({warning})), daemon=True).start()
    yield noted, lambda: submitits(warning, None)
