"""What is known of each run of a study from its files alone, on any host. Imports no torch."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitlab.studies.events import Event
from vitlab.training.files import RunFiles
from vitlab.training.lease import Held, Watch, hold
from vitlab.training.progress import Progress

State = Literal["waiting", "running", "finished", "failed"]


@dataclass(frozen=True)
class Cell:
    """A run: `where` it trains and how far it is, its result, or the first line of its error.

    A run whose result.json is damaged is waiting, and `error` says why.

    `expired` is the pulse of a lease that was seen to expire: whoever starts the run passes it on.
    """

    run: str
    state: State
    progress: Progress | None = None
    where: str = ""
    result: dict[str, Any] | None = None
    error: str = ""
    expired: str | None = None

    @property
    def event(self) -> Event:
        """What a display is told of it."""
        if self.state == "finished":
            return Event("done", self.run, self.result)
        if self.state == "failed":
            return Event("failed", self.run, self.error)
        return Event("progress", self.run, self.progress) if self.progress else Event("tick", "")


class CellReader:
    """Reads the runs of a study's folder; after a minute it sees which processes of other hosts are gone."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.watch = Watch()

    def read(self, run: str) -> Cell:
        files = RunFiles(self.folder / run)
        standing, claim = self.watch.look(files.folder)  # before the result, which its holder writes first
        progress = Progress(**claim.progress) if claim and claim.progress else None
        if standing == "held":  # a finished run, too, while analyses are added to it
            return Cell(run, "running", progress, claim.holder)
        result, damage = files.read_result()
        if result is not None:
            return Cell(run, "finished", result=result)
        if standing == "free" and (error := files.error()) is not None:
            return Cell(run, "failed", progress, error=error)
        expired = claim.pulse if standing == "expired" else None
        return Cell(run, "waiting", progress, error=damage, expired=expired)

    def fail(self, run: str, error: str) -> None:
        """Write why a run has failed, which died before it could say so itself; not while somebody else trains it."""
        standing, claim = self.watch.look(self.folder / run)
        expired = claim.pulse if standing == "expired" else None
        with contextlib.suppress(Held, FileNotFoundError), hold(self.folder / run, expired=expired):
            RunFiles(self.folder / run).write_error(error)
