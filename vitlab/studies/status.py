"""How a study goes, from its files alone, on any host. Imports no torch."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from vitlab.config import identity, resolved
from vitlab.config.schema import StudyConfig
from vitlab.data.cache import contents
from vitlab.data.opening import open_data
from vitlab.formatting import finite
from vitlab.studies.cells import RunState, read_state
from vitlab.studies.grid import compose_models, name_run
from vitlab.studies.launching.slurm_jobs import read_submitted
from vitlab.studies.store import StudyFiles, describe_asked


@dataclass(frozen=True)
class RunStatus:
    """A run that was asked for; `heard` is how many seconds ago the process that trains it had its last heartbeat.

    `job` is the SLURM job that it was last submitted in.
    """

    cell: RunState
    variant: str
    size: int
    heard: float | None = None
    job: str = ""


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
        running = self.of_state("running")
        left = [self.estimate_left(run) for run in self.runs if run.cell.state in ("running", "waiting")]
        if not running or None in left:
            return None
        return max(sum(left) / len(running), *(self.estimate_left(run) for run in running))

    def estimate_left(self, run: RunStatus) -> float | None:
        """What is left of a run: what it says itself, else the mean time of finished ones that are most like it."""
        if run.cell.progress and run.cell.state == "running":
            return run.cell.progress.seconds_left
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
        timed = [
            (run, seconds)
            for run in self.of_state("finished")
            if (seconds := finite((run.cell.result or {}).get("wall_s"))) is not None
        ]
        if not timed:
            paced = [(run, run.cell.progress) for run in self.of_state("running") if run.cell.progress]
            timed = [
                (run, far.seconds_left * far.steps / (far.steps - far.step))
                for run, far in paced
                if far.step < far.steps
            ]
        groups: dict[tuple[str, int] | str | None, list[float]] = defaultdict(list)
        for run, seconds in timed:
            for key in ((run.variant, run.size), run.variant, None):
                groups[key].append(seconds)
        return {key: statistics.fmean(seconds) for key, seconds in groups.items()}


def read_status(folder: Path) -> StudyStatus:
    """The state of each run. Raises UserError for a folder that is not a study."""
    files = StudyFiles(folder)
    files.config()
    submitted = read_submitted(folder)
    return StudyStatus([read_run(folder, *cell, submitted) for cell in files.cells()])


def read_run(folder: Path, variant: str, size: int, seed: int, submitted: Mapping[str, str]) -> RunStatus:
    cell = read_state(folder, name_run(variant, size, seed))
    heard = cell.claim.age if cell.claim else None
    return RunStatus(cell, variant, size, heard, submitted.get(cell.run, ""))


def is_finished(files: StudyFiles, config: StudyConfig, console: Console) -> bool:
    """Whether the last start asked for the same, on the same data, and has all results, and a report of them."""
    start = files.last_start()
    if start is None or start.asked != describe_asked(resolved(config)) or not files.report_path.is_file():
        return False
    data, models = contents(config.data, open_data(config.data, console)), compose_models(config)
    drawn = files.report_path.stat().st_mtime
    for variant, size, seed in start.cells:
        run = files.run(name_run(variant, size, seed))
        result, _ = run.read_result()
        if result is None or not run.config_path.is_file() or result["id"] != identity(run.config(), data):
            return False
        paths = (run.result_path, run.analysis_folder)
        if any(path.exists() and path.stat().st_mtime > drawn for path in paths):
            return False
        if any(run.find_lacking(resolved(models[variant])).values()):
            return False
    return True
