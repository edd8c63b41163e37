"""Trains runs of a study: an executor starts them, and one loop watches them until all have ended. Imports no torch."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vitlab.studies.cells import read_state, write_failure
from vitlab.studies.events import Event
from vitlab.studies.grid import Spec

LOOK = 1.0  # seconds between two looks at the files of runs


class Executor(Protocol):
    """Starts runs somewhere. `execute` calls all of it, in one process."""

    reports: bool  # whether `wait` gives starts and progress; if not, they are read from the runs' files

    def can_start(self, spec: Spec) -> bool:
        """Whether there is room for a run now."""

    def start(self, spec: Spec) -> None:
        """Start a run; it is done by `vitlab.studies.events.do`."""

    def wait(self, seconds: float) -> Sequence[Event]:
        """What has become of runs since the last call, after so many seconds at the latest.

        Kinds are those of `do`. `killed` is a run that may be started again: its process or node is gone.
        """

    def stop(self) -> None:
        """The study is stopped by Ctrl-C or an error: let runs write their checkpoint and end them."""

    def close(self) -> None:
        """The study has ended: end what is left of this executor's processes."""


def execute(
    executor: Executor,
    specs: Sequence[Spec],
    study: Path,
    notify: Callable[[Event], None],
    *,
    retries: int = 1,
    tick: float = 0.25,
) -> None:
    """Run every spec to its end beside other starts of the study, whose folder is `study`.

    `notify` is called in this process at each event, and with kind "tick" at least every `tick` seconds. A run whose
    process was killed is started again up to `retries` times. Ctrl-C, or an error of `notify`, ends runs with a
    checkpoint and is raised again.
    """
    loop = Loop(executor, specs, study, notify, retries)
    try:
        while loop.waiting or loop.running or loop.elsewhere:
            loop.start_waiting()
            notify(Event("tick", ""))  # here, where no run waits for what it takes
            for event in executor.wait(tick):
                loop.handle(event)
            loop.look()
    except BaseException:
        executor.stop()
        raise
    finally:
        executor.close()


class Loop:
    """The runs of a study by where they are: waiting, running by this executor, or elsewhere by another start."""

    def __init__(
        self, executor: Executor, specs: Sequence[Spec], study: Path, notify: Callable[[Event], None], retries: int
    ):
        self.executor, self.study, self.notify, self.retries = executor, study, notify, retries
        self.waiting, self.elsewhere = deque(specs), list[Spec]()
        self.running: dict[str, Spec] = {}
        self.shown: dict[str, Event] = {}  # the last event of each running run
        self.places: dict[str, str] = {}  # the process that trains it, as its claim says
        self.killed: Counter[str] = Counter()
        self.looked_at = -math.inf

    def start_waiting(self) -> None:
        """Start runs in their order while there is room, but those that another start trains or has seen fail."""
        while self.waiting and self.executor.can_start(self.waiting[0]):
            spec = self.waiting.popleft()
            cell = read_state(self.study, spec.name)
            if cell.state == "running":
                self.elsewhere.append(spec)
                self.notify(Event("held", spec.name, cell.where))
            elif cell.state == "failed":
                self.notify(cell.event)
            else:
                self.running[spec.name] = spec
                self.executor.start(spec)
                if self.executor.reports:
                    self.show(Event("started", spec.name))

    def handle(self, event: Event) -> None:
        """Take note of what has become of a run, and show it."""
        if event.run not in self.running:  # its files have said so already
            return
        if event.kind == "progress":
            self.show(event)
            return
        spec = self.running.pop(event.run)
        if event.kind == "killed":
            event = self.retry(spec, event.value)
        elif event.kind == "held":
            self.elsewhere.append(spec)
        if event.kind in ("done", "failed") and event.run not in self.shown:  # it ended before its files were looked at
            self.notify(Event("started", event.run))
        self.shown.pop(event.run, None)
        self.notify(event)

    def retry(self, spec: Spec, reason: str) -> Event:
        """Start a run again whose process was killed, unless that has happened too often."""
        self.killed[spec.name] += 1
        place = self.places.pop(spec.name, "")
        reason = f"{reason} ({place})" if place else reason
        if self.killed[spec.name] > self.retries:
            reason += f"; executor.retries={self.retries}"
            write_failure(self.study, spec.name, reason)
            return Event("failed", spec.name, reason)
        held = read_state(self.study, spec.name).state == "running"  # until its heartbeat counts as lost
        (self.elsewhere if held else self.waiting).append(spec)
        return Event("retried", spec.name, f"{reason}; started again from its last checkpoint")

    def look(self) -> None:
        """Read the files of runs elsewhere, and of running ones that the executor does not report on."""
        if time.monotonic() - self.looked_at < LOOK:
            return
        self.looked_at = time.monotonic()
        self.elsewhere = [spec for spec in self.elsewhere if not self.is_free(spec)]
        for spec in () if self.executor.reports else [*self.running.values()]:
            cell = read_state(self.study, spec.name, spec.config)
            if cell.state == "waiting":
                continue
            self.places[spec.name] = cell.where or self.places.get(spec.name, "")
            if spec.name not in self.shown:
                self.show(Event("started", spec.name))
            if cell.state in ("finished", "failed"):
                self.handle(cell.event)
            elif cell.progress and self.shown[spec.name] != cell.event:
                self.show(cell.event)

    def is_free(self, spec: Spec) -> bool:
        """Whether no other start trains a run any more: it failed, or waits here, as something may be left to do."""
        cell = read_state(self.study, spec.name)
        if cell.state in ("waiting", "finished"):
            self.waiting.appendleft(spec)  # it may have begun already
        elif cell.state == "failed" or cell.progress:
            self.notify(cell.event)
        return cell.state != "running"

    def show(self, event: Event) -> None:
        self.shown[event.run] = event
        self.notify(event)
