"""The runs that wait for their turn, of an executor that hands them out one by one. Imports no torch."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from vitlab.studies.cells import read_cell
from vitlab.studies.events import Event
from vitlab.studies.grid import Spec

LOOK = 1.0  # seconds between two looks at the runs that others train


class Queue:
    """`waiting` runs in their order, and those `elsewhere`, which other processes train."""

    def __init__(self, specs: Sequence[Spec], study: Path, notify: Callable[[Event], None]):
        self.waiting, self.elsewhere = deque(specs), []
        self.study, self.notify, self.looked = study, notify, -math.inf

    def take(self) -> Spec | None:
        """The first that waits, to be started; None where another start of the study trains it or saw it fail."""
        spec = self.waiting.popleft()
        cell = read_cell(self.study, spec.name)
        if cell.state == "running":
            self.elsewhere.append(spec)
            self.notify(Event("held", spec.name, cell.where))
        elif cell.state == "failed":  # in another start: those of before have been forgotten
            self.notify(cell.event)
        else:
            return spec
        return None

    def look(self) -> None:
        """Look at the runs elsewhere, where it is time for that."""
        if self.elsewhere and time.monotonic() - self.looked > LOOK:
            self.looked = time.monotonic()
            self.elsewhere = [spec for spec in self.elsewhere if not self.is_free(spec)]

    def is_free(self, spec: Spec) -> bool:
        """Whether nobody holds a run any more: it has failed, or waits again, for there may be something left to do."""
        cell = read_cell(self.study, spec.name)
        if cell.state in ("waiting", "finished"):
            self.waiting.appendleft(spec)  # it may have begun already
        elif cell.state == "failed" or cell.progress:
            self.notify(cell.event)
        return cell.state != "running"
