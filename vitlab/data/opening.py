"""Opening a data set, with progress while its cache is built."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vitlab import data
from vitlab.config import groups, resolved


def open_data(config: DictConfig, console: Console | None = None) -> Any:
    """The data set of a configuration; a process opens each once. `console` shows progress. Raises UserError."""
    return open_resolved(json.dumps(resolved(config), sort_keys=True), console)


@lru_cache(maxsize=4)
def open_resolved(config: str, console: Console | None) -> Any:
    with progress_bar(console) as progress:
        return data.load(groups.load("data", json.loads(config)), progress)


@contextmanager
def progress_bar(console: Console | None) -> Iterator[Callable[[str, int, int | None], None]]:
    """A function progress(what, done, total) that shows a bar for each `what`, in a terminal only.

    Of a total that is not known (None) the bar moves without an end.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # without a terminal even an empty bar would leave a line
    hidden = console is None or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        tasks: dict[str, int] = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield progress
