"""What is known of each run of a study from its files alone, on any host. Imports no torch."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitlab.studies.claims import Claim, Held, hold, read_claim
from vitlab.studies.events import Event
from vitlab.training.files import RunFiles
from vitlab.training.progress import Progress

State = Literal["waiting", "running", "finished", "failed"]


@dataclass(frozen=True)
class RunState:
    """A run: its claim while it trains and how far it is, its result, or the first line of its error.

    A run whose result.json is damaged is waiting, and `error` says why.
    """

    run: str
    state: State
    progress: Progress | None = None
    claim: Claim | None = None
    result: dict[str, Any] | None = None
    error: str = ""

    @property
    def where(self) -> str:
        """The process that trains it."""
        return self.claim.holder if self.claim else ""

    @property
    def event(self) -> Event:
        """What a display is told of it."""
        if self.state == "finished":
            return Event("done", self.run, self.result)
        if self.state == "failed":
            return Event("failed", self.run, self.error)
        return Event("progress", self.run, self.progress) if self.progress else Event("tick", "")


def read_state(study: Path, run: str, config: Mapping[str, Any] | None = None) -> RunState:
    """The state of a run; with its configuration one that lacks analyses or probes of it has not finished."""
    files = RunFiles(study / run)
    claim = read_claim(files.folder)  # before the result, which its owner writes first
    if claim and not claim.is_dead:  # a finished run, too, while analyses are added to it
        return RunState(run, "running", files.read_progress(), claim)
    result, damage = files.read_result()
    lacks = result is not None and config is not None and any(files.find_lacking(config).values())
    if result is not None and not lacks:
        return RunState(run, "finished", result=result)
    if claim is None and (error := files.error()) is not None:
        return RunState(run, "failed", files.read_progress(), error=error)
    return RunState(run, "waiting", files.read_progress(), error=damage)


def write_failure(study: Path, run: str, error: str) -> None:
    """Write why a run has failed, which died before it could say so itself; not while another process trains it."""
    with contextlib.suppress(Held), hold(study / run):
        RunFiles(study / run).write_error(error)


if __name__ == "__main__":  # python -m vitlab.studies.cells STUDY CELL CORES OBSERVER, by torchrun for each device
    import sys

    from vitlab.studies.job import run_cell

    sys.exit(run_cell(*sys.argv[1:]))
