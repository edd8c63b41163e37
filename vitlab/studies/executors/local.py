"""Runs on this machine, in worker processes that are kept from run to run.

Importing torch takes seconds, so workers are forked from a server that has done it; and two processes of one thread
each train small models faster than one of two.
"""

import contextlib
import os
import signal
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from vitlab.config.schema import ExecutorConfig
from vitlab.hardware import list_gpus, share_gpus
from vitlab.studies.cells import write_failure
from vitlab.studies.events import Event, Job, do
from vitlab.studies.grid import Spec
from vitlab.studies.launching.processes import blocked_sigint, start_server

ON_THIS_MACHINE = True
PATIENCE = 30.0  # seconds that workers have to write a checkpoint when the study is stopped


class LocalExecutor:
    """At most `jobs` processes on this machine. One that dies takes only its own run with it, and is replaced.

    `gpus` are names of CUDA_VISIBLE_DEVICES, which the processes share round robin.
    """

    reports = True

    def __init__(self, job: Job, jobs: int, study: Path, gpus: Sequence[str] = ()):
        self.job, self.jobs, self.study, self.gpus = job, jobs, study, gpus
        self.context = start_server()
        self.stopping = self.context.Event()
        self.workers: list[Worker] = []
        self.killed: set[str] = set()  # runs whose process was killed, which train alone from then on

    @property
    def busy(self) -> list["Worker"]:
        return [worker for worker in self.workers if worker.spec]

    def can_start(self, spec: Spec) -> bool:
        beside = {worker.spec.name for worker in self.busy}
        return len(beside) < self.jobs and not (beside and self.killed & {spec.name, *beside})

    def start(self, spec: Spec) -> None:
        devices = spec.config.get("trainer", {}).get("devices", 1)
        place = next((k for k, worker in enumerate(self.workers) if not worker.spec), len(self.workers))
        if place == len(self.workers) or not self.workers[place].fits(devices):
            environment = dict(os.environ)
            if self.gpus:
                environment["CUDA_VISIBLE_DEVICES"] = share_gpus(self.gpus, place, devices)
            self.workers[place : place + 1] = [Worker(self.context, self.job, self.stopping, environment, devices)]
        self.workers[place].give(spec)

    def wait(self, seconds: float) -> list[Event]:
        ready = wait([worker.connection for worker in self.busy], timeout=seconds)
        return [self.receive(worker) for worker in self.busy if worker.connection in ready]

    def receive(self, worker: "Worker") -> Event:
        """The next event of a worker, such as that its process has ended."""
        event = worker.receive()
        if event.kind != "progress":
            worker.spec = None
        if event.kind == "killed":
            self.killed.add(event.run)
        if event.kind == "failed" and not worker.process.is_alive():  # it could not write the error itself
            write_failure(self.study, event.run, event.value)
        return event

    def stop(self) -> None:
        self.stopping.set()
        deadline = PATIENCE
        for worker in self.workers:
            worker.dismiss()
        for worker in self.busy:
            worker.process.join(deadline)
            deadline = 1.0 if worker.process.is_alive() else deadline

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def check(config: ExecutorConfig) -> None:
    """Nothing is needed but this machine; `--jobs` and the trainer's settings decide what a run gets of it."""
    given = [key for key in ("cpus", "gpus", "memory") if vars(config)[key] != vars(ExecutorConfig)[key]]
    if given:
        named = " and ".join(f"executor.{key}" for key in given)
        warnings.warn(f"{named}: only for executors of a cluster, has no effect here", stacklevel=1)


def build(config: ExecutorConfig, job: Job, jobs: int, study: Path) -> LocalExecutor:
    from torch.cuda import device_count

    return LocalExecutor(job, jobs, study, list_gpus(device_count()))


class Worker:
    """One process for runs of so many devices, and the pipe to it."""

    def __init__(self, context: BaseContext, job: Job, stopping: Any, environment: Mapping[str, str], devices: int):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, job, stopping, environment))
        with blocked_sigint():
            self.process.start()
        theirs.close()
        self.spec: Spec | None = None
        self.devices = devices

    def fits(self, devices: int) -> bool:
        """Whether it can take a run of so many devices; if not, its process ends."""
        if self.process.is_alive() and self.devices == devices:
            return True
        self.dismiss()
        self.close()
        return False

    def give(self, spec: Spec) -> None:
        self.spec = spec
        try:
            self.connection.send(spec)
        except OSError:  # it has died; `receive` says so
            self.process.join(1.0)

    def receive(self) -> Event:
        """The next event; `killed` or `failed` when the process has ended without one."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(5.0)
        code = self.process.exitcode
        if code is None or code >= 0:
            return Event("failed", self.spec.name, f"worker exited unexpectedly (exit code {code})")
        cause = ": out of memory?" if code == -signal.SIGKILL else ""
        return Event("killed", self.spec.name, f"worker exited unexpectedly ({signal.Signals(-code).name}{cause})")

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


def work(connection: Connection, job: Job, stopping: Any, environment: Mapping[str, str]) -> None:
    """The loop of a worker: receive a spec, do the job, send how it went; ends when the pipe is closed.

    `environment` replaces that of the server, which may be older.
    """
    os.environ.clear()
    os.environ.update(environment)
    alone = False  # the parent has ended: the run writes its checkpoint and stops

    def report(progress: Any) -> None:
        nonlocal alone
        try:
            connection.send(Event("progress", spec.name, progress))
        except OSError:
            alone = True

    def is_stopping() -> bool:
        return alone or stopping.is_set()

    while True:
        try:
            spec = connection.recv()
        except (EOFError, OSError):
            return
        if spec is None or is_stopping():
            return
        event = do(job, spec, report, is_stopping)
        if is_stopping():
            return
        try:
            connection.send(event)
        except OSError:
            return
