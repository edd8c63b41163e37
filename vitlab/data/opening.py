"""Opening data sets, with progress while files are fetched and the cache is built."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vitlab import data
from vitlab.config import groups, resolved
from vitlab.config.schema.data import DataConfig
from vitlab.formatting import duration, whole

OPEN = 4  # data sets kept
SILENT, BETWEEN = 3.0, 20.0  # seconds: before the first line of progress in a log, and from line to line
OPENED: dict[str, Any] = {}

Show = Callable[[str, int, int | None], None]


def open_data(config: DataConfig, console: Console | None = None) -> Any:
    """Open the data set of a configuration, once a process. `console` shows progress. Raises UserError."""
    settings = resolved(config)
    key = json.dumps(settings, sort_keys=True)
    if key not in OPENED:
        with progress_bar(console) as progress:
            data_set = data.load(groups.load("data", settings), progress)
        while len(OPENED) >= OPEN:
            del OPENED[next(iter(OPENED))]
        OPENED[key] = data_set
    return OPENED[key]


@contextmanager
def progress_bar(console: Console | None) -> Iterator[Show]:
    """Show progress: give progress(what, done, total), a bar for each `what` in a terminal, lines in a log.

    Without a total (None) the bar only shows that something moves.
    """
    if console is None:
        yield lambda *_: None
    elif not console.is_terminal:
        yield write_lines(console)
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            tasks: dict[str, int] = {}

            def progress(what: str, done: int, total: int | None) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(escape(what), total=total)
                bar.update(tasks[what], completed=done, total=total)

            yield progress


def write_lines(console: Console) -> Show:
    """Make a progress function that prints a line a few times a minute, once a task takes longer than a few seconds."""
    begun: dict[str, tuple[float, int]] = {}
    due = time.monotonic() + SILENT

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal due
        now = time.monotonic()
        first, before = begun.setdefault(what, (now, done))
        if now < due or done == total:
            return
        due = now + BETWEEN
        pace = (now - first) / (done - before) if done > before else None
        left = f", {duration(pace * (total - done))} left" if total and pace is not None else ""
        console.print(escape(f"{what}: {whole(done)} of {whole(total)}{left}" if total else what), soft_wrap=True)

    return progress
