"""Running the grid: worker processes that are kept from run to run.

Importing torch takes seconds, so workers are forked from a server that has done it; and two processes of one thread
each train small models faster than one of two.
"""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any

from vitlab.config import first_line
from vitlab.studies.grid import Spec

PATIENCE = 30.0  # seconds that workers have to write a checkpoint when the study is stopped

# job(spec, report, stop) -> result; `report` takes progress, `stop` says whether to end early
Job = Callable[[Spec, Callable[[Any], None], Callable[[], bool]], Any]


@dataclass(frozen=True)
class Event:
    """What happened to a run: started, progress (value: what it reported), done (its result), failed (its error).

    Also retried (why): its process was killed, and it will be started once more.
    """

    kind: str
    run: str
    value: Any = None


def start_server(modules: Sequence[str] = ()) -> BaseContext:
    """Start the process that workers are forked from, where none runs yet; it imports the modules first.

    It returns at once, so that this process and the server import at the same time. The modules must not start
    threads or touch CUDA when they are imported. Gives the context of the workers.
    """
    if sys.platform == "linux":  # elsewhere system libraries do not survive a fork
        context = multiprocessing.get_context("forkserver")
        if modules:
            context.set_forkserver_preload(list(modules))
        resource_tracker.ensure_running()  # first: starting it unblocks SIGINT
        # the path of its socket has at most 107 characters: TMPDIR may be too long for it
        with contextlib.suppress(OSError), blocked_sigint():
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


@atexit.register
def stop_server() -> None:
    """Kill the server: one that is still importing would keep this program's stderr open for seconds."""
    server = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


@contextlib.contextmanager
def blocked_sigint() -> Iterator[None]:
    """Processes that are started here do not receive Ctrl-C, which reaches a whole process group: the parent decides.

    A blocked signal is inherited, so that not even a process that is still importing is interrupted.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class LocalExecutor:
    """`jobs` processes on this machine. A process that dies takes only its own run with it, and is replaced."""

    def __init__(self, job: Job, jobs: int):
        self.job = job
        self.jobs = jobs
        self.context = start_server()
        self.stop = self.context.Event()

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Run every spec; `notify` is called here, in this process, at each event and with kind "tick" in between.

        A run whose process is killed is started once more, after the others. Ends early on KeyboardInterrupt: running
        jobs are told to stop and waited for, then it is raised again.
        """
        waiting = list(reversed(specs))
        retried: set[str] = set()
        workers = [Worker(self) for _ in range(min(self.jobs, len(specs)))]
        try:
            for worker in workers:
                worker.give(waiting.pop(), notify)
            while busy := [w for w in workers if w.spec]:
                ready = wait([w.connection for w in busy], timeout=tick)
                for worker in busy:
                    if worker.connection not in ready:
                        continue
                    spec, (kind, value) = worker.spec, worker.receive()
                    if kind == "killed":
                        kind = "failed" if spec.name in retried else "retried"
                    if kind == "retried":
                        retried.add(spec.name)
                        waiting.insert(0, spec)
                    if kind != "progress":
                        worker.spec = None
                    notify(Event(kind, spec.name, value))
                    if not worker.spec and waiting:
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
        self.process = executor.context.Process(
            target=work, args=(theirs, executor.job, executor.stop, dict(os.environ))
        )
        with blocked_sigint():
            self.process.start()
        theirs.close()
        self.spec: Spec | None = None

    def give(self, spec: Spec, notify: Callable[[Event], None]) -> None:
        self.spec = spec
        notify(Event("started", spec.name))
        try:
            self.connection.send(spec)
        except OSError:  # it died meanwhile; `receive` says so
            self.process.join(1.0)

    def receive(self) -> tuple[str, Any]:
        """The kind and value of the next message; "killed" or "failed" when the process has ended without one."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(5.0)
        code = self.process.exitcode
        if code is None or code >= 0:
            return "failed", f"worker exited unexpectedly (exit code {code})"
        cause = ": out of memory?" if code == -signal.SIGKILL else ""
        return "killed", f"worker exited unexpectedly ({signal.Signals(-code).name}){cause}"

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
    """The parent process has ended: nobody reads the pipe."""


def work(connection: Connection, job: Job, stop: Any, environment: Mapping[str, str]) -> None:
    """The loop of a worker: receive a spec, do the job, send how it went; ends when the pipe is closed.

    `environment` replaces that of the server, which may be older.
    """
    os.environ.clear()
    os.environ.update(environment)

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
            message = ("failed", summarize_error(error))
        if stop.is_set():
            return
        try:
            connection.send(message)
        except OSError:
            return


def summarize_error(error: BaseException) -> str:
    """The first line of an error, with its type where the text alone does not explain it."""
    text, kind = first_line(error), type(error).__name__
    return text if kind in ("UserError", "Diverged", text) else f"{kind}: {text}"
