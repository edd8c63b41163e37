"""How a study goes, from its files alone, on any host. Imports no torch."""

import contextlib
import os
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vitlab.formatting import finite
from vitlab.studies.cells import Cell, CellReader
from vitlab.studies.executors.slurm_jobs import read_submitted
from vitlab.studies.grid import name_run
from vitlab.studies.store import StudyFiles
from vitlab.training.lease import EXPIRY, find_last_beat


@dataclass(frozen=True)
class RunStatus:
    """A run that was asked for; `heard` is how many seconds ago the process that trains it wrote its last beat.

    `job` is the SLURM job that it was last submitted in.
    """

    cell: Cell
    variant: str
    size: int
    heard: float | None = None
    job: str = ""

    @property
    def is_silent(self) -> bool:
        """Whether its process is probably gone: the next start of the study takes it over."""
        return self.heard is not None and self.heard > EXPIRY

    @property
    def seconds_left(self) -> float | None:
        """As its process estimated at its last beat, less the time since then."""
        left = self.cell.progress.seconds_left if self.cell.progress else None
        return None if left is None else max(0.0, left - (self.heard or 0.0))


@dataclass(frozen=True)
class StudyStatus:
    """All runs that were ever asked for, in the order of the study."""

    runs: list[RunStatus]

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(run.cell.state for run in self.runs)

    def of_state(self, state: str) -> list[RunStatus]:
        return [run for run in self.runs if run.cell.state == state]

    @property
    def seconds_left(self) -> float | None:
        """Until every run has ended, if as many train at a time as now; None where nothing tells."""
        running = [run for run in self.of_state("running") if not run.is_silent]
        left = [self.estimate_left(run) for run in self.runs if run.cell.state in ("running", "waiting")]
        if not running or None in left:
            return None
        return max(sum(left) / len(running), *(self.estimate_left(run) for run in running))

    def estimate_left(self, run: RunStatus) -> float | None:
        """What is left of a run: what it says itself, else the mean time of finished ones that are most like it."""
        if run.seconds_left is not None and run.cell.state == "running":
            return run.seconds_left
        for key in ((run.variant, run.size), run.variant, None):
            if key in self.times:
                progress = run.cell.progress
                return self.times[key] * (1 - progress.step / progress.steps if progress and progress.steps else 1)
        return None

    @cached_property
    def times(self) -> dict[tuple[str, int] | str | None, float]:
        """Mean seconds of a whole run, of a variant at a size, of a variant and of all.

        By finished runs; without any of those, by the pace of the running ones.
        """
        found = [
            (run, seconds)
            for run in self.of_state("finished")
            if (seconds := finite((run.cell.result or {}).get("wall_s"))) is not None
        ]
        if not found:
            paced = [run for run in self.of_state("running") if run.seconds_left and run.cell.progress.step]
            rest = [1 - run.cell.progress.step / run.cell.progress.steps for run in paced]
            found = [(run, run.seconds_left / share) for run, share in zip(paced, rest, strict=True) if share > 0]
        groups: dict[tuple[str, int] | str | None, list[float]] = defaultdict(list)
        for run, seconds in found:
            for key in ((run.variant, run.size), run.variant, None):
                groups[key].append(seconds)
        return {key: statistics.fmean(seconds) for key, seconds in groups.items()}


def read_status(folder: Path) -> StudyStatus:
    """The state of each run. Raises UserError for a folder that is not a study."""
    files, reader = StudyFiles(folder), CellReader(folder)
    files.config()
    submitted, runs, now = read_submitted(folder), [], None
    for variant, size, seed in files.cells():
        cell, heard = reader.read(name_run(variant, size, seed)), None
        if cell.state == "running":
            now = read_clock(folder) if now is None else now
            beat = find_last_beat(folder / cell.run)
            heard = None if beat is None else max(0.0, now - beat)
        job = submitted[cell.run].job if cell.run in submitted else ""
        runs.append(RunStatus(cell, variant, size, heard, job))
    return StudyStatus(runs)


def read_clock(folder: Path) -> float:
    """Now, by the clock that stamps the files below a folder: that of another host where it is shared.

    One look cannot see whether a lease still beats, as `Watch` does in a minute, but the time since its last beat can
    be told: both are stamped by one clock. Where nothing can be written it is this host's.
    """
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        file.write(b".")
        file.flush()
        return os.fstat(file.fileno()).st_mtime
    return time.time()
