"""Runs on this machine, in worker processes that are kept from run to run.

Importing torch takes seconds, so workers are forked from a server that has done it; and two processes of one thread
each train small models faster than one of two.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from omegaconf import DictConfig

from vitlab.studies.cells import CellReader
from vitlab.studies.events import Event, Job, summarize_error
from vitlab.studies.executors.processes import blocked_sigint, start_server
from vitlab.studies.grid import Spec
from vitlab.training.lease import Held, LeaseLost

PATIENCE = 30.0  # seconds that workers have to write a checkpoint when the study is stopped
LOOK = 1.0  # seconds between two looks at the runs that others train


class LocalExecutor:
    """`jobs` processes on this machine. A process that dies takes only its own run with it, and is replaced."""

    def __init__(self, job: Job, jobs: int, cells: CellReader):
        self.job, self.jobs, self.cells = job, jobs, cells
        self.context = start_server()
        self.stop = self.context.Event()

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Run every spec; `notify` is called here, in this process, at each event and with kind "tick" in between.

        A run whose process is killed is started once more, after the others. Ends early on KeyboardInterrupt: running
        jobs are told to stop and waited for, then it is raised again.
        """
        waiting = list(reversed(specs))
        elsewhere: list[Spec] = []  # runs that another start of this study trains
        retried: set[str] = set()
        workers = [Worker(self) for _ in range(min(self.jobs, len(specs)))]
        looked = -math.inf
        try:
            while True:
                for place, worker in enumerate(workers):
                    if not worker.spec and waiting:
                        if not worker.process.is_alive():
                            workers[place] = worker = Worker(self)
                        worker.give(waiting.pop(), notify)
                busy = [worker for worker in workers if worker.spec]
                if not busy and not elsewhere:
                    return
                ready = wait([worker.connection for worker in busy], timeout=tick)
                for worker in busy:
                    if worker.connection not in ready:
                        continue
                    spec, (kind, value) = worker.spec, worker.receive()
                    if kind == "killed":
                        kind = "failed" if spec.name in retried else "retried"
                    if kind == "retried":
                        retried.add(spec.name)
                        waiting.insert(0, spec)
                    if kind == "held":
                        elsewhere.append(spec)
                    if kind != "progress":
                        worker.spec = None
                    notify(Event(kind, spec.name, value))
                if elsewhere and time.monotonic() - looked > LOOK:
                    looked = time.monotonic()
                    elsewhere = [spec for spec in elsewhere if not self.take(spec, waiting, notify)]
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

    def take(self, spec: Spec, waiting: list[Spec], notify: Callable[[Event], None]) -> bool:
        """Whether nobody else trains a run any more: it has ended, or it waits to be started here."""
        cell = self.cells.read(spec.name)
        if cell.state == "waiting":
            waiting.insert(0, replace(spec, expired=cell.expired))
        elif cell.state != "running" or cell.progress:
            notify(cell.event)
        return cell.state != "running"


def check(config: DictConfig) -> None:
    """Nothing is needed but this machine."""


def build(config: DictConfig, job: Job, jobs: int, cells: CellReader) -> LocalExecutor:
    return LocalExecutor(job, jobs, cells)


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


def work(connection: Connection, job: Job, stop: Any, environment: Mapping[str, str]) -> None:
    """The loop of a worker: receive a spec, do the job, send how it went; ends when the pipe is closed.

    `environment` replaces that of the server, which may be older.
    """
    os.environ.clear()
    os.environ.update(environment)

    alone = False  # the parent has ended: the run writes its checkpoint and stops

    def report(value: Any) -> None:
        nonlocal alone
        try:
            connection.send(("progress", value))
        except OSError:
            alone = True

    def asked() -> bool:
        return alone or stop.is_set()

    while True:
        try:
            spec = connection.recv()
        except (EOFError, OSError):
            return
        if spec is None or asked():
            return
        try:
            message = ("done", job(spec, report, asked))
        except (Held, LeaseLost) as error:
            message = ("held", str(error))
        except Exception as error:
            message = ("failed", summarize_error(error))
        if asked():
            return
        try:
            connection.send(message)
        except OSError:
            return
