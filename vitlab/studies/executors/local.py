"""Runs on this machine, in worker processes that are kept from run to run.

Importing torch takes seconds, so workers are forked from a server that has done it; and two processes of one thread
each train small models faster than one of two.
"""

import contextlib
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from vitlab.studies.launching.queue import Queue

ON_THIS_MACHINE = True
PATIENCE = 30.0  # seconds that workers have to write a checkpoint when the study is stopped


class LocalExecutor:
    """At most `jobs` processes on this machine. One that dies takes only its own run with it, and is replaced.

    `gpus` are names of CUDA_VISIBLE_DEVICES, which the processes share round robin.
    """

    def __init__(self, job: Job, jobs: int, study: Path, *, retries: int = 1, gpus: Sequence[str] = ()):
        self.job, self.jobs, self.study, self.retries, self.gpus = job, jobs, study, retries, gpus
        self.context = start_server()
        self.stop = self.context.Event()

    def run(self, specs: Sequence[Spec], notify: Callable[[Event], None], tick: float = 0.25) -> None:
        """Run every spec; `notify` is called here, in this process, at each event and with kind "tick" in between.

        A run whose process is killed is started again after the others, alone.
        Ends early on Ctrl-C or an error: running jobs are told to stop and waited for, then it is raised again.
        """
        self.notify, self.queue = notify, Queue(specs, self.study, notify)
        self.killed: Counter[str] = Counter()
        self.gpus_each = max((spec.config.get("trainer", {}).get("devices", 1) for spec in specs), default=1)
        self.workers = [self.make_worker(place) for place in range(min(self.jobs, len(specs)))]
        try:
            while True:
                self.dispatch()
                if not self.busy and not self.queue.elsewhere:
                    return
                for connection in wait([worker.connection for worker in self.busy], timeout=tick):
                    self.handle_message(next(worker for worker in self.busy if worker.connection is connection))
                self.queue.look()
                notify(Event("tick", ""))
        except BaseException:  # such as a study.yaml that somebody has changed into none
            self.stop.set()
            deadline = PATIENCE
            for worker in self.workers:
                worker.dismiss()
            for worker in self.busy:
                worker.process.join(deadline)
                deadline = 1.0 if worker.process.is_alive() else deadline
            raise
        finally:
            for worker in self.workers:
                worker.close()

    @property
    def busy(self) -> list["Worker"]:
        return [worker for worker in self.workers if worker.spec]

    def make_worker(self, place: int) -> "Worker":
        environment = dict(os.environ)
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = share_gpus(self.gpus, place, self.gpus_each)
        return Worker(self.context, self.job, self.stop, environment)

    def dispatch(self) -> None:
        """Give runs to idle workers, as far as they may train beside those that do."""
        for place, worker in enumerate(self.workers):
            while not worker.spec and self.queue.waiting and self.may_start(self.queue.waiting[0]):
                if spec := self.queue.take():
                    if not worker.process.is_alive():
                        self.workers[place] = worker = self.make_worker(place)
                    worker.give(spec, self.notify)

    def may_start(self, spec: Spec) -> bool:
        """Whether a run may train beside those that do: one whose process was killed trains alone."""
        beside = [worker.spec.name for worker in self.busy]
        return not beside or not self.killed.keys() & {spec.name, *beside}

    def handle_message(self, worker: "Worker") -> None:
        """Receive what a worker says, or that it has died."""
        spec, (kind, value) = worker.spec, worker.receive()
        if kind != "progress":
            worker.spec = None
        if kind == "killed":
            self.killed[spec.name] += 1
            kind = "retried" if self.killed[spec.name] <= self.retries else "died"
        if kind == "retried":
            value += "; started again alone, after the others"
            self.queue.waiting.append(spec)
        if kind == "died":  # it could not say so itself
            kind = "failed"
            write_failure(self.study, spec.name, value)
        if kind == "held":
            self.queue.elsewhere.append(spec)
        self.notify(Event(kind, spec.name, value))


def check(config: ExecutorConfig) -> None:
    """Nothing is needed but this machine, of which a run gets what `--jobs` and the trainer's settings leave it."""
    asked = [
        f"executor.{key}" for key in ("cpus", "gpus", "memory") if vars(config)[key] != getattr(ExecutorConfig, key)
    ]
    if asked:
        warnings.warn(f"{' and '.join(asked)}: only for executor=ray and slurm, has no effect here", stacklevel=1)


def build(config: ExecutorConfig, job: Job, jobs: int, study: Path) -> LocalExecutor:
    from torch.cuda import device_count

    return LocalExecutor(job, jobs, study, retries=config.retries, gpus=list_gpus(device_count()))


class Worker:
    """One process and the pipe to it."""

    def __init__(self, context: BaseContext, job: Job, stop: Any, environment: Mapping[str, str]):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, job, stop, environment))
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
        """The kind and value of the next message; "killed" or "died" when the process has ended without one."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(5.0)
        code = self.process.exitcode
        if code is None or code >= 0:
            return "died", f"worker exited unexpectedly (exit code {code})"
        cause = ": out of memory?" if code == -signal.SIGKILL else ""
        return "killed", f"worker exited unexpectedly ({signal.Signals(-code).name}{cause})"

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
        message = do(job, spec, report, asked)
        if asked():
            return
        try:
            connection.send(message)
        except OSError:
            return
