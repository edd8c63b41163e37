"""Open each data set once a process, and hash its content."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vitlab.config.schema.data import DataConfig
from vitlab.data import load
from vitlab.data.base import Show, Split, list_arrays, module_of
from vitlab.data.cache import hash_bytes, named_files, walk_files, write_lines

OPEN = 4  # data sets kept open
OPENED: dict[str, Any] = {}
HASHES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of open data sets: hashed once for all runs


def open_data(config: DataConfig, console: Console | None = None) -> Any:
    """Open the data set of a configuration, once a process. `console` shows progress. Raises UserError."""
    key = repr(config)
    if key not in OPENED:
        with progress_bar(console) as progress:
            data_set = load(config, progress)
        while len(OPENED) >= OPEN:
            del OPENED[next(iter(OPENED))]
        OPENED[key] = data_set
    return OPENED[key]


@contextmanager
def progress_bar(console: Console | None) -> Iterator[Show]:
    """Yield progress(what, done, total), which shows a bar for each `what` in a terminal, or prints lines to a log.

    With a total of None the bar shows activity only. Without a console nothing is shown.
    """
    if console is None:
        yield lambda *_: None
    elif not console.is_terminal:
        yield write_lines(lambda line: console.print(escape(line), soft_wrap=True))
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            tasks: dict[str, int] = {}

            def progress(what: str, done: int, total: int | None) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(escape(what), total=total)
                bar.update(tasks[what], completed=done, total=total)

            yield progress


# -- the hash of a data set: a resumed run must find the data it began with


def hash_data(config: DataConfig, data: Any) -> str:
    """Hash the data by SHA-256: arrays of texts, labels and targets of images, the module's `contents` and VERSION(S).

    The hash does not depend on the files' folder. An image module may define `contents(config) -> str`, to tell images
    apart without decoding them. For a user's module without it, the names and bytes of its named files are hashed.
    """
    if data not in HASHES:
        HASHES[data] = compute_hash(config, data)
    return HASHES[data]


def compute_hash(config: DataConfig, data: Any) -> str:
    is_image = isinstance(data.train, Split)
    if is_image and config.holdout != "fixed":
        # hash the images before the draw: the configuration already holds the seed of the drawn test set
        data = load(config := replace(config, holdout="fixed"))
    digest = hashlib.sha256()
    # not validation images: the training images, the configuration or the module's contents determine them
    for split in (data.train, data.test) if is_image else (data.train, data.validation, data.test):
        arrays = {"labels": split.labels, "targets": split.targets} if is_image else list_arrays(split)
        for name, values in arrays.items():
            if values is not None:
                digest.update(f"{name} {values.dtype} {len(values)}".encode())
                digest.update(np.ascontiguousarray(values).data)
    module = module_of(config)
    versions = [vars(module).get(name) for name in ("VERSION", "VERSIONS")]
    digest.update(repr([each.get(config.kind) if isinstance(each, dict) else each for each in versions]).encode())
    if of := getattr(module, "contents", None):
        digest.update(of(config).encode(errors="surrogateescape"))
    elif is_image and not getattr(module, "fingerprint", None):
        for path in named_files(config).values():
            files = [path] if os.path.isfile(path) else sorted(entry.path for entry in walk_files(path))
            digest.update(repr([os.path.relpath(file, path) for file in files]).encode())
            digest.update(hash_bytes(config.name, files).encode())
    return digest.hexdigest()
