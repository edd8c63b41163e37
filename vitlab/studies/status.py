"""Read a study's status from its files alone: the state of each run, the time left, a table. Imports no torch."""

import heapq
import io
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vitlab.console import Console
from vitlab.files import read_stamp
from vitlab.formatting import duration, finite, plural
from vitlab.studies.claims import DEAD_AFTER, Claim, read_claim
from vitlab.studies.grid import name_run
from vitlab.studies.store import StudyFiles, list_missing
from vitlab.tasks.metrics import Metric, main_metric
from vitlab.training.files import Progress, RunFiles

State = Literal["running", "failed", "waiting", "finished"]
COUNTED: tuple[State, ...] = ("finished", "failed", "running", "waiting")
SHOWN: tuple[State, ...] = ("running", "failed", "waiting", "finished")  # in this order in a table without room for all
PLAIN_EVERY = 20.0  # seconds between lines without a terminal


@dataclass(frozen=True)
class RunState:
    """A run that was asked for: its claim while it trains, its progress, its result, or the first line of its error.

    A run whose result.json is damaged is waiting, and `error` says why.
    """

    run: str
    variant: str
    size: int
    state: State = "waiting"
    progress: Progress | None = None
    claim: Claim | None = None
    result: dict[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True)
class StudyStatus:
    """All runs that were ever asked for, in the order of the study."""

    runs: list[RunState]
    workers: int = 0  # workers at work a moment ago
    compared_by: str | None = None  # task.metric of the study

    def of_state(self, *states: str) -> list[RunState]:
        return [run for run in self.runs if run.state in states]

    @cached_property
    def metric(self) -> Metric:
        """The metric that runs are compared by, from the results and evaluations so far."""
        metrics = [run.result or (run.progress and run.progress.validation) for run in self.runs]
        return main_metric([{"metric": self.compared_by}, *(values for values in metrics if values)])

    @property
    def seconds_left(self) -> float | None:
        """The seconds until every run has ended, if as many train at a time as now; None if unknown."""
        left = {run.run: self.estimate_left(run) for run in self.of_state("running", "waiting")}
        running = self.of_state("running")
        if not running or None in left.values():
            return None
        free = [left[run.run] for run in running]
        free += [0.0] * (self.workers - len(free))
        waiting = sorted(self.of_state("waiting"), key=lambda run: run.size)
        return pack([left[run.run] for run in waiting], free)

    def estimate_left(self, run: RunState) -> float | None:
        """Estimate a run's seconds left: its own estimate, else the mean time of the finished runs most like it."""
        progress = run.progress
        if progress and run.state == "running" and progress.seconds_left is not None:
            return progress.seconds_left
        share = 1 - progress.step / progress.steps if progress and progress.steps else 1.0
        likest = next((key for key in ((run.variant, run.size), run.variant, None) if key in self.times), "")
        return self.times[likest] * share if likest != "" else None

    @cached_property
    def times(self) -> dict[tuple[str, int] | str | None, float]:
        """The mean seconds of a whole run: of a variant at a size, of a variant and of all runs.

        They come from finished runs; without any finished run, from the pace of the running ones.
        """
        timed = [
            (run, seconds + (run.result.get("probe_s") or 0))
            for run in self.of_state("finished")
            if (seconds := finite((run.result or {}).get("wall_s"))) is not None
        ]
        if not timed:
            for run in self.of_state("running"):
                far = run.progress
                if far and far.seconds_left is not None and far.step < far.steps:
                    timed.append((run, far.seconds_left * far.steps / (far.steps - far.step)))
        groups: dict[tuple[str, int] | str | None, list[float]] = defaultdict(list)
        for run, seconds in timed:
            for key in ((run.variant, run.size), run.variant, None):
                groups[key].append(seconds)
        return {key: statistics.fmean(seconds) for key, seconds in groups.items()}

    def describe(self) -> str:
        """Describe the state: `12 runs: 7 finished, 2 running, 3 waiting; about 32 s left`."""
        counts = [f"{len(runs):,} {state}" for state in COUNTED if (runs := self.of_state(state))]
        left = self.seconds_left
        ending = f"; about {duration(left)} left" if left else ""
        return f"{plural(len(self.runs), 'run')}: {', '.join(counts)}{ending}"


def pack(runs: Sequence[float], free: Sequence[float]) -> float:
    """Compute the seconds until workers have done all runs, taken in this order: list scheduling (Graham, 1969).

    `free` are the seconds until each worker is free.
    """
    ends = sorted(free)
    for seconds in runs:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)


class StatusReader:
    """Reads a study's folder again and again; reads the result of a finished run once.

    Given `variants`, the resolved configuration of each, count a run that lacks analyses or probes as unfinished,
    unless these have failed.
    """

    def __init__(self, files: StudyFiles, variants: Mapping[str, Mapping[str, Any]] | None = None):
        self.files, self.variants = files, variants or {}
        self.finished: dict[str, tuple[Any, RunState]] = {}
        self.working = 0  # at the last look: a worker between two runs is invisible

    def read(self) -> StudyStatus:
        """Read the state of the study. Raises UserError for a folder that is not a study."""
        config = self.files.config()
        runs = [self.read_run(*key) for key in self.files.run_keys()]
        before, self.working = self.working, sum(run.state == "running" for run in runs)
        return StudyStatus(runs, before, config["task"].get("metric"))

    def read_run(self, variant: str, size: int, seed: int) -> RunState:
        """Read a run's state."""
        name = name_run(variant, size, seed)
        files = self.files.run(name)
        stamp, (known, finished) = read_stamp(files.result_path), self.finished.get(name, (None, None))
        if stamp is not None and stamp == known:
            return finished
        claim = read_claim(files.folder)
        # by one look the claim's process seems alive; it may add analyses to a finished run
        if claim and not claim.is_dead and (claim.is_here or claim.age <= DEAD_AFTER):
            return RunState(name, variant, size, "running", read_progress(files), claim)
        result, damage = files.read_result()
        asked, error = self.variants.get(variant), files.error()
        # without `asked` a result lacks nothing
        missing = list_missing(files, asked) if asked and result is not None else []
        if result is not None and (not missing or (error is not None and "training" not in missing)):
            self.finished[name] = stamp, RunState(name, variant, size, "finished", result=result)
            return self.finished[name][1]
        progress = read_progress(files)
        if error is not None:
            return RunState(name, variant, size, "failed", progress, error=error)
        return RunState(name, variant, size, "waiting", progress, error=damage)


def read_progress(files: RunFiles) -> Progress | None:
    """Read a run's progress, its fine-tuning on other data included."""
    far = files.read_progress()
    tuned = [RunFiles(path).read_progress() for path in files.folder.glob("finetuned/*/*")]
    if far and far.step < far.steps and (done := sum(child.step for child in tuned if child)):
        step = min(far.step + done, far.steps)  # earlier probes may have been others
        left = far.seconds_left * (far.steps - step) / (far.steps - far.step)
        return replace(far, step=step, seconds_left=left, note="fine-tuning")
    if far and far.step == far.steps and not files.result_path.is_file():
        return replace(far, note="testing")
    return far


def make_table(status: StudyStatus, console: Console, runs: Sequence[RunState], *, where: bool = False) -> Table:
    """Make a table with a line for each run: its progress, its metric or its error; with `where` its host."""
    metric, bars = status.metric, console.is_terminal and not where
    table = Table(box=None, pad_edge=False, show_header=bool(runs))
    # a run's name and numbers get room first; a bar or an error takes the rest
    name = min(max((len(run.run) for run in runs), default=3), 36)
    rest = max(10, console.width - name - max(8, len(metric.name)) - 18)
    table.add_column("run", no_wrap=True, width=name if bars else None)
    table.add_column("", no_wrap=True, width=rest if bars else None)
    for title in ("left", metric.name):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("heartbeat", "where") if where else ():
        table.add_column(title, no_wrap=True)
    for run in runs:
        progress, note, left, seen = run.progress, Text(run.state, style="dim"), "", run.result
        if run.state == "running" and progress:
            note = Text(f"{progress.step:,} of {progress.steps:,} {progress.note}".rstrip())
            if bars:
                note = Table.grid(expand=True)
                note.add_column(ratio=1)
                bar = ProgressBar(total=progress.steps, completed=progress.step)
                note.add_row(bar, Text(f" {progress.note}" if progress.note else "", style="dim"))
            left = duration(progress.seconds_left) if progress.seconds_left is not None else ""
            seen = progress.validation
        elif run.state == "failed":
            note = Text(f"failed: {run.error}", style="red", overflow="ellipsis")
        elif run.state == "finished":
            note = Text(f"done in {duration(run.result.get('wall_s'))}", style="green")
        value = metric.value(seen) if seen else None
        cells = [escape(run.run), note, left, "" if value is None else metric.text(value)]
        cells += [f"{duration(run.claim.age)} ago", escape(run.claim.holder)] if where and run.claim else []
        table.add_row(*cells)
    return table


def make_board(status: StudyStatus, console: Console, room: int) -> Table:
    """Make a table of the study's state and its runs; without room for all, show running and failed runs first."""
    runs = sorted(status.runs, key=lambda run: SHOWN.index(run.state))
    shown = status.runs if len(runs) <= room else runs[: room - 1]
    table = make_table(status, console, shown)
    table.title, table.title_justify, table.title_style = escape(status.describe()), "left", "bold"
    if len(shown) < len(runs):
        table.add_row(Text(f"and {len(runs) - len(shown)} more", style="dim"), "", "", "")
    return table


def write_board(status: StudyStatus, room: int = 30) -> str:
    """Write the table of `make_board` as plain text."""
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(make_board(status, console, room))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


class Display:
    """Shows a running study on stderr: redraws a table in place, or in a log prints a line for each run that ends."""

    def __init__(self, console: Console):
        self.console, self.status, self.last = console, StudyStatus([]), time.monotonic()
        self.ended: dict[str, str] = {}
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self.render, transient=True)

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def render(self) -> Table:
        return make_board(self.status, self.console, max(3, self.console.height - 4))

    def show(self, status: StudyStatus) -> bool:
        """Show a newly read state; return whether a run has ended since the last state."""
        first, self.status = not self.status.runs, status
        ended = {run.run: run.state for run in status.of_state("finished", "failed")}
        new = [run for run in status.runs if run.run in ended and run.run not in self.ended]
        lost = [run.run for run in status.of_state("waiting") if self.ended.get(run.run) == "finished"]
        self.ended = ended
        if lost:
            self.print(
                f"{plural(len(lost), 'finished run')} whose result was deleted or damaged since: {', '.join(lost)}"
            )
        if first or self.console.is_terminal:
            return bool(new)
        for run in new:
            value = status.metric.value(run.result) if run.result else None
            reached = "" if value is None else f"{status.metric.name} {status.metric.text(value)} "
            took = f"{reached}in {duration(run.result.get('wall_s'))}" if run.result else f"failed: {run.error}"
            self.print(f"{run.run}: {took}; {status.describe()}")
        if time.monotonic() - self.last >= PLAIN_EVERY:
            far = [(run.run, run.progress or Progress(0, 1)) for run in status.of_state("running")]
            running = ", ".join(f"{name} {one.step / one.steps:.0%} {one.note}".strip() for name, one in far)
            self.print("; ".join(filter(None, (running, status.describe()))))
        return bool(new)

    def print(self, text: str) -> None:
        self.last = time.monotonic()
        self.console.say(text)
