"""Running the grid: worker processes that are kept from run to run.

Importing torch takes seconds, and two processes of one thread each train small models faster than one of two.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from vitlab.config import first_line
from vitlab.studies.grid import Spec

PATIENCE = 30.0  # seconds that workers have to write a checkpoint when the study is stopped

# job(spec, report, stop) -> result; `report` takes progress, `stop` says whether to end early
Job = Callable[[Spec, Callable[[Any], None], Callable[[], bool]], Any]


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, progress (value: what it reported), done (its result), failed (its error)."""

    kind: str
    run: str
    value: Any = None


class LocalExecutor:
    """`jobs` processes on this machine. A process that dies takes only its own run with it, and is replaced."""

    def __init__(self, job: Job, jobs: int):
        self.job = job
        self.jobs = jobs
        self.context = multiprocessing.get_context("spawn")
        self.stop = self.context.Event()

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Run every spec; `notify` is called here, in this process, at each event and with kind "tick" in between.

        Ends early on KeyboardInterrupt: running jobs are told to stop and waited for, then it is raised again.
        """
        waiting = list(reversed(specs))
        workers = [Worker(self) for _ in range(min(self.jobs, len(specs)))]
        try:
            for worker in workers:
                worker.give(waiting.pop(), notify)
            while busy := [w for w in workers if w.spec]:
                ready = wait([w.connection for w in busy], timeout=tick)
                for worker in busy:
                    if worker.connection in ready and worker.take(notify) and waiting:
                        if not worker.process.is_alive():
                            workers[workers.index(worker)] = worker = Worker(self)
                        worker.give(waiting.pop(), notify)
                notify(Event("tick", ""))
        except KeyboardInterrupt:
            self.stop.set()
            deadline = PATIENCE
            for worker in workers:
                worker.dismiss()
            for worker in workers:
                if worker.spec:
                    worker.process.join(deadline)
                    deadline = 1.0 if worker.process.is_alive() else deadline
            raise
        finally:
            for worker in workers:
                worker.close()


class Worker:
    """One process and the pipe to it."""

    def __init__(self, executor: LocalExecutor):
        self.connection, theirs = executor.context.Pipe()
        self.process = executor.context.Process(target=work, args=(theirs, executor.job, executor.stop))
        # Ctrl-C reaches the whole process group, and the parent decides; a blocked signal is inherited, so that not
        # even a process that is still importing is interrupted
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.spec: Spec | None = None

    def give(self, spec: Spec, notify: Callable[[Event], None]) -> None:
        self.spec = spec
        notify(Event("started", spec.name))
        try:
            self.connection.send(spec)
        except OSError:  # it died meanwhile; `take` says so
            self.process.join(1.0)

    def take(self, notify: Callable[[Event], None]) -> bool:
        """Pass one message on; True when the run has ended."""
        assert self.spec is not None
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(5.0)
            code = self.process.exitcode
            how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
            kind, value = "failed", f"its process ended without a word ({how}); it may have run out of memory"
        notify(Event(kind, self.spec.name, value))
        ended = kind in ("done", "failed")
        if ended:
            self.spec = None
        return ended

    def dismiss(self) -> None:
        """End a process that waits for a spec; one that trains sees the stop by itself."""
        with contextlib.suppress(OSError):
            self.connection.send(None)

    def close(self) -> None:
        """End the process: at once, for its run has ended or its checkpoint is written."""
        self.connection.close()
        self.process.join(0.5 if self.spec is None else 0)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(2.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class ParentGone(Exception):
    """Nobody reads what a worker says any more."""


def work(connection: Connection, job: Job, stop: Any) -> None:
    """A worker's life: take a spec, do the job, say how it went; end when the pipe is closed."""

    def report(value: Any) -> None:
        try:
            connection.send(("progress", value))
        except OSError:
            raise ParentGone from None

    while True:
        try:
            spec = connection.recv()
        except (EOFError, OSError):
            return
        if spec is None or stop.is_set():
            return
        try:
            message = ("done", job(spec, report, stop.is_set))
        except ParentGone:
            return  # the parent is gone: whoever starts the study again resumes from the last checkpoint
        except Exception as error:
            message = ("failed", summary(error))
        if stop.is_set():
            return
        try:
            connection.send(message)
        except OSError:
            return


def summary(error: BaseException) -> str:
    """An error in one line, with its kind where the text alone would not tell."""
    text, kind = first_line(error), type(error).__name__
    return text if kind in ("UserError", "Diverged", text) else f"{kind}: {text}"
