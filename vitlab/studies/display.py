"""The progress of runs, on stderr: a live table in a terminal, plain lines in a log."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vitlab.console import Console
from vitlab.formatting import duration
from vitlab.studies.events import Event
from vitlab.studies.plan.machine import pack
from vitlab.tasks.metrics import Metric, main_metric
from vitlab.training.progress import Progress

PLAIN_EVERY = 20.0  # seconds between lines without a terminal


@dataclass
class Row:
    """One run in the table."""

    name: str
    model: str
    steps: int
    state: str = "waiting"
    progress: Progress | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    started: float = 0.0
    seconds: float = 0.0

    @property
    def done_steps(self) -> int:
        if self.state in ("done", "failed"):
            return self.steps
        return self.progress.step if self.progress else 0


class Board:
    """The state of all runs and the time that is left."""

    def __init__(self, rows: Sequence[Row], jobs: int):
        self.rows = {row.name: row for row in rows}
        self.jobs = jobs
        self.at_once = 1  # the most runs seen under way at a time: between two runs a worker has none for a moment
        self.pace: dict[str, float] = {}  # seconds a step of each model's running run
        self.costs: list[tuple[str, float, float]] = []  # of each finished run: model, seconds a step, beside its steps

    def update(self, event: Event) -> None:
        if event.kind == "tick":
            return
        row, now = self.rows[event.run], time.monotonic()
        if event.kind == "started":
            row.state, row.started = "starting", now
        elif event.kind == "retried":
            row.state, row.progress = "waiting", None
        elif event.kind == "held":
            row.state, row.progress = "elsewhere", None
        elif event.kind == "progress":
            row.state, row.progress, row.steps = "training", event.value, event.value.steps
            left = event.value.steps - event.value.step
            if event.value.seconds_left is not None and left:
                self.pace[row.model] = event.value.seconds_left / left
        else:
            row.state, row.seconds = event.kind, now - row.started
            if event.kind == "done":
                row.result = event.value
                row.seconds = max(row.seconds, row.result.get("wall_s") or 0.0)  # it may have begun unseen
                if row.result.get("images_per_s"):
                    pace = row.result["examples_seen"] / row.result["steps"] / row.result["images_per_s"]
                    self.pace.setdefault(row.model, pace)
                    self.costs.append((row.model, pace, max(0.0, row.seconds - pace * row.steps)))
            else:
                row.error = str(event.value)
        under_way = sum(row.state in ("training", "starting", "elsewhere") for row in self.rows.values())
        self.at_once = min(self.jobs, max(self.at_once, under_way))

    @property
    def metric(self) -> Metric:
        """The metric that runs are compared by, from the results and evaluations so far."""
        metrics = [row.result or (row.progress and row.progress.validation) for row in self.rows.values()]
        return main_metric([values for values in metrics if values])

    def estimate_seconds_left(self) -> float | None:
        """Until all runs are done: their steps at their model's pace, and what finished runs took beside their steps.

        A model that has not started is taken to be as fast as the others.
        """
        if not self.pace:
            return None
        left = []
        for row in self.rows.values():
            alike = [cost for cost in self.costs if cost[0] == row.model]
            paces = [self.pace[row.model]] if row.model in self.pace else self.pace.values()
            pace = median([cost[1] for cost in alike] or paces)
            beside = median([cost[2] for cost in alike or self.costs] or [0.0])
            left.append((pace * row.steps + beside) * (1 - row.done_steps / row.steps))
        return pack([(seconds, 1) for seconds in left], self.at_once)

    def describe(self) -> str:
        states = [row.state for row in self.rows.values()]
        failed = f", {states.count('failed')} failed" if "failed" in states else ""
        left = self.estimate_seconds_left()
        ending = f", about {duration(left)} left" if left else ""
        return f"{states.count('done')} of {len(states)} runs done{failed}{ending}"


class LiveDisplay:
    """A table redrawn in place: training runs first, then failed, waiting and finished ones."""

    ORDER = ("training", "elsewhere", "starting", "failed", "waiting", "done")

    def __init__(self, board: Board, console: Console):
        self.board = board
        self.console = console
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self.render, transient=True)

    def __enter__(self) -> "LiveDisplay":
        self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def notify(self, event: Event) -> None:
        self.board.update(event)
        if event.kind == "retried":
            self.console.print(escape(f"{event.run}: {event.value}"), soft_wrap=True, highlight=False)

    def render(self) -> Table:
        rows = sorted(self.board.rows.values(), key=lambda row: self.ORDER.index(row.state))
        room = max(3, self.console.height - 4)
        table = Table(box=None, pad_edge=False, title=self.board.describe(), title_justify="left", title_style="bold")
        # room first for what names a run and says how it goes; a bar or an error takes what is left
        metric = self.board.metric
        name, left, result = min(max(map(len, self.board.rows)), 36), 12, max(8, len(metric.name))
        table.add_column("run", no_wrap=True, width=name)
        table.add_column("", no_wrap=True, width=max(10, self.console.width - name - left - result - 6))
        table.add_column("left", justify="right", no_wrap=True, width=left)
        table.add_column(metric.name, justify="right", no_wrap=True, width=result)
        shown = rows if len(rows) <= room else rows[: room - 1]
        order = list(self.board.rows)
        for row in sorted(shown, key=lambda row: order.index(row.name)) if shown is rows else shown:
            table.add_row(*self.format_row(row, metric))
        if len(shown) < len(rows):
            table.add_row(Text(f"and {len(rows) - len(shown)} more", style="dim"), "", "", "")
        return table

    def format_row(self, row: Row, metric: Metric) -> tuple[Any, ...]:
        if row.state == "training" and row.progress:
            left = row.progress.seconds_left
            seen = metric.value(row.progress.validation)
            bar: Any = ProgressBar(total=row.progress.steps, completed=row.progress.step)
            if row.progress.note:
                cell = Table.grid(expand=True)
                cell.add_column(ratio=1)
                cell.add_row(bar, Text(f" {row.progress.note}", style="dim"))
                bar = cell
            return row.name, bar, duration(left) if left is not None else "", "" if seen is None else metric.text(seen)
        if row.state == "failed":
            return row.name, Text(f"failed: {row.error}", style="red", overflow="ellipsis"), "", ""
        if row.state == "done":
            return (
                row.name,
                Text(f"done in {duration(row.seconds)}", style="green"),
                "",
                metric.text(metric.value(row.result)),
            )
        return Text(row.name, style="dim"), Text(row.state, style="dim"), "", ""


class PlainDisplay:
    """Lines for a log: the end of each run, and the progress of all every `PLAIN_EVERY` seconds."""

    def __init__(self, board: Board, console: Console):
        self.board = board
        self.console = console
        self.last = time.monotonic()

    def __enter__(self) -> "PlainDisplay":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def notify(self, event: Event) -> None:
        self.board.update(event)
        now = time.monotonic()
        if event.kind == "done":
            row = self.board.rows[event.run]
            metric = self.board.metric
            value = metric.value(row.result)
            reached = "" if value is None else f"{metric.name} {metric.text(value)} "
            self.print(f"{row.name}: {reached}in {duration(row.seconds)}; {self.board.describe()}")
        elif event.kind == "failed":
            self.print(f"{event.run}: failed: {event.value}; {self.board.describe()}")
        elif event.kind == "retried":
            self.print(f"{event.run}: {event.value}")
        elif event.kind == "tick" and now - self.last >= PLAIN_EVERY:
            running = ", ".join(
                f"{row.name} {row.done_steps / row.steps:.0%}"
                for row in self.board.rows.values()
                if row.state in ("training", "starting")
            )
            self.print("; ".join(filter(None, (running, self.board.describe()))))

    def print(self, text: str) -> None:
        self.last = time.monotonic()
        self.console.print(escape(text), soft_wrap=True, highlight=False)


def display(board: Board) -> LiveDisplay | PlainDisplay:
    console = Console(stderr=True)
    return LiveDisplay(board, console) if console.is_terminal else PlainDisplay(board, console)
