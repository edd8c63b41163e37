"""Data sets: one module for each `kind`. Importing this package imports no torch.

A module of images has `load(config) -> ImageData`, a module of text `read(config) -> Corpus` (vitlab.data.text).
This package has their shared parts: batches, training subsets, held-out shares, carving of validation data. This module
opens data sets, with progress while files are fetched and the cache is built, and hashes what they hold.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vitlab.config import UserError, raise_all
from vitlab.data.base import Split, list_arrays, module_of
from vitlab.data.cache import load_images, named_files, stat_files
from vitlab.data.split import carve_images, draw_again
from vitlab.formatting import duration, whole

if TYPE_CHECKING:
    from vitlab.config.schema.data import DataConfig
    from vitlab.data.base import ImageData, TextData

LOOKED_AT, DARK = 16, 64  # pictures; the level that one of them should reach, a quarter of white
OPEN = 4  # data sets kept
SILENT, BETWEEN = 3.0, 20.0  # seconds: before the first line of progress in a log, and from line to line
OPENED: dict[str, Any] = {}
HASHES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of data that this process has open: once for all runs

Show = Callable[[str, int, int | None], None]


def load(config: DataConfig, progress: Callable[[str, int, int], None] | None = None) -> ImageData | TextData:
    """Open the data set of a configuration, through the cache unless `config.cache` is never.

    The module of `config.kind` may have `fingerprint(config)`: JSON of all that its data depends on besides the
    configuration, by default the module's source, and the files at the configuration's `root` or `path`. A module of
    images may have `contents(config)` too, a text that differs when its images differ, so that no run goes on with
    other ones (`contents`).

    progress(what, done, total) is called while the cache is being built, and handed to a `load` of images that takes
    `progress` too. Raises UserError.
    """
    module = module_of(config)
    function = {"image": "load", "text": "read"}[config.modality]
    if not getattr(module, function, None):
        raise UserError(f"kind={config.kind}: {module.__name__} is not a data set, it has no {function}(config)")
    progress = progress or (lambda *_: None)
    if config.modality == "text":
        from vitlab.data.text.corpus import load_texts

        return load_texts(config, module, progress)
    data, problems = load_images(config, module, progress), []
    for key in ("mean", "std"):
        if len(vars(config)[key]) not in (1, data.channels):
            wanted = "1 value" if data.channels == 1 else f"1 value, or {data.channels}, one per channel"
            problems.append(f"data.{key}={vars(config)[key]}: give {wanted}")
    raise_all(problems)
    warn_of_darkness(config, data)
    if config.holdout != "fixed":
        data = draw_again(data, 0 if config.holdout == "repeated" else config.holdout)
    if data.validation is None:
        data = carve_images(data)
    if data.train.targets is not None and data.train.targets.dtype.kind == "S":
        from vitlab.data.images.tables import encode_captions

        data = encode_captions(config, data)
    return data


def warn_of_darkness(config: DataConfig, data: ImageData) -> None:
    """Warn if a few training pictures, evenly spread, are nearly black, as pictures of 12 bits in files of 16 are."""
    with suppress(UserError):  # of a file that cannot be read, which whoever reads it says
        brightest = data.train.read(np.unique(np.linspace(0, len(data.train) - 1, LOOKED_AT).astype(int))).max()
        if brightest < DARK:
            few = f"data={config.name}: a few training pictures have no pixel brighter than {brightest} of 255"
            warnings.warn(f"{few}; of files with more than 8 bits `vitlab data` names data.bits", stacklevel=1)


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


# -- what a data set holds, as one number: a run that resumes must find what it began with


def contents(config: DataConfig, data: Any) -> str:
    """Hash the data by SHA-256: tokens and all that belongs to them, or images' labels and what their module adds.

    The hash does not depend on where the files are. A module of images may have `contents(config) -> str` to tell
    images apart without reading all pixels; a user's module without it is hashed by its named files' names and sizes.
    """
    if data not in HASHES:
        HASHES[data] = hash_contents(config, data)
    return HASHES[data]


def hash_contents(config: DataConfig, data: Any) -> str:
    is_image = isinstance(data.train, Split)
    if is_image and config.holdout != "fixed":
        # the seed of a drawn test set stands in the configuration: what it is drawn from is the same for all
        data = load(config := replace(config, holdout="fixed"))
    digest = hashlib.sha256()
    # validation images follow from the training images, the configuration or what the module adds
    for split in (data.train, data.test) if is_image else (data.train, data.validation, data.test):
        arrays = {"labels": split.labels, "targets": split.targets} if is_image else list_arrays(split)
        for name, values in arrays.items():
            if values is not None:
                digest.update(f"{name} {values.dtype} {len(values)}".encode())
                digest.update(np.ascontiguousarray(values).data)
    module = module_of(config)
    if of := getattr(module, "contents", None):
        digest.update(of(config).encode(errors="surrogateescape"))
    elif is_image and not getattr(module, "fingerprint", None):
        for path in named_files(config).values():
            digest.update(repr([(name, size) for name, size, _ in stat_files(path)]).encode())
    return digest.hexdigest()
