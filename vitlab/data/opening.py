"""Opening a data set, with progress while its files are fetched and its cache is built; or planning without one."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vitlab import data
from vitlab.config import UserError, extent, groups, resolved
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.split import count_validation
from vitlab.formatting import duration, whole

OPEN = 4  # data sets kept
SILENT, BETWEEN = 3.0, 20.0  # seconds: before the first line of progress in a log, and from line to line
OPENED: dict[str, Any] = {}
EXPECTED = "data.expected={train: 1281167, test: 50000, classes: 1000}"

Show = Callable[[str, int, int | None], None]


def open_data(config: DataConfig, console: Console | None = None) -> Any:
    """The data set of a configuration; a process opens each once. `console` shows progress. Raises UserError."""
    settings = resolved(config)
    key = json.dumps(settings, sort_keys=True)
    if key not in OPENED:
        with progress_bar(console) as progress:
            data_set = data.load(groups.load("data", settings), progress)
        while len(OPENED) >= OPEN:
            del OPENED[next(iter(OPENED))]
        OPENED[key] = data_set
    return OPENED[key]


def find_data(config: DataConfig, console: Console | None = None) -> Any:
    """The data set of a configuration, or what `data.expected` says of one that is not here. Raises UserError.

    That is enough to plan with, and nothing to read: `train` and `test`, the images of each, RGB, `classes`, how many,
    and if known `bytes`, of the files.
    """
    try:
        return open_data(config, console)
    except UserError:
        if not vars(config).get("expected"):
            raise
    expected = config.expected
    counts = {key: expected.get(key) for key in ("train", "test", "classes", *({"bytes"} & expected.keys()))}
    if wrong := {key: value for key, value in counts.items() if not is_count(value)}:
        form = f"give a whole number above 1, such as {EXPECTED}"
        raise UserError(f"data.expected.{key}={value}: {form}" for key, value in wrong.items())
    held_out = count_validation(int(expected["train"]))
    sizes = {"train": int(expected["train"]) - held_out, "validation": held_out, "test": int(expected["test"])}
    splits = {part: Split(np.broadcast_to(np.int64(0), size), read_nothing) for part, size in sizes.items()}
    classes = tuple(map(str, range(int(expected["classes"]))))
    return ImageData(config.name, classes, extent(config.image_size), 3, **splits)


def is_count(value: Any) -> bool:
    return isinstance(value, int | float) and value >= 2 and value % 1 == 0


def read_nothing(indices: np.ndarray) -> np.ndarray:
    raise UserError("these data are not here: data.expected only says what to plan with")


def is_expected(data: Any) -> bool:
    """Whether the data are not here."""
    return data.train.read is read_nothing


def count_bytes(data: Any, config: DataConfig) -> int | None:
    """What the images take on disk, in shards or decoded in the cache; none where that is not known."""
    if is_expected(data):
        return config.expected.get("bytes")
    if config.modality != "image":
        return None
    stored = [getattr(split.read, "stored_bytes", None) for split in data.splits.values()]
    return sum(stored) if None not in stored else data.decoded_bytes if data.cached else None


@contextmanager
def progress_bar(console: Console | None) -> Iterator[Show]:
    """Gives progress(what, done, total): a bar for each `what` in a terminal, lines in a log.

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
    """A line a few times a minute, of what takes longer than a few seconds."""
    begun: dict[str, float] = {}
    due = time.monotonic() + SILENT

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal due
        now = time.monotonic()
        took = now - begun.setdefault(what, now)
        if now < due or done == total:
            return
        due = now + BETWEEN
        left = f", {duration(took * (total - done) / done)} left" if total and done else ""
        console.print(escape(f"{what}: {whole(done)} of {whole(total)}{left}" if total else what), soft_wrap=True)

    return progress
