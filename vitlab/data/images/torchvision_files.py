"""Where torchvision's sets come from: files in place, archives that are unpacked, or a download."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock
from omegaconf import DictConfig

from vitlab.config import UserError, first_line, resolved
from vitlab.data.cache.store import Progress

MEGABYTE = 1_000_000


class NotInPlace(Exception):
    """A file that torchvision would download now."""

    def __init__(self, path: Path, url: str):
        self.path, self.url = path, url


def open_part(config: DictConfig, constructor: type, part: dict[str, Any]) -> Any:
    """One part of the set: as it is on disk, else from archives that are in place, else downloaded if that is allowed.

    torchvision unpickles only files whose MD5 is the published one. Raises UserError.
    """
    root, name, place = Path(config.root).expanduser(), config.dataset, f"data.root={config.root}"
    options = {**resolved(config)["options"], **part}

    def construct(folder: str | Path, download: bool) -> Any:
        return constructor(folder, **options, **downloading(constructor, download))

    def unpack(folder: str | Path) -> Any:
        try:
            with no_download(constructor):
                return construct(folder, True)
        except NotInPlace as error:
            return error

    try:
        return construct(root, False)
    except Exception as error:  # the sets raise RuntimeError, OSError, ValueError, and their parsers' errors
        missing = error
    if isinstance(missing, ValueError) and config.options:
        raise UserError(f"data.options={resolved(config)['options']}: {shorten(missing)}") from None
    if not downloading(constructor, True):
        advice = f"torchvision cannot download it: put its files in {place}"
        raise UserError(f"data.dataset={name}: {shorten(missing)}; {advice}") from None
    lock = FileLock(root / f".{name}.lock")  # another process may be unpacking or downloading it
    try:
        with TemporaryDirectory() as empty:
            needed = unpack(empty)
        file, problem = needed.path.relative_to(empty), "is not there"
        if (root / file).is_file():
            with lock:
                needed = unpack(root)
            if not isinstance(needed, NotInPlace):
                return needed
            file = needed.path.relative_to(root)
            problem = "is not the published file (its MD5 differs)" if needed.path.exists() else problem
    except Exception as error:  # as above, and those of tarfile and zipfile
        raise UserError(f"data.dataset={name}: cannot unpack it in {place}: {shorten(error)}") from None
    if not config.download:
        advice = f"put it there (from {needed.url}), or set data.download=true"
        raise UserError(f"data.dataset={name}: {file} in {place} {problem}; {advice}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with lock:
            return construct(root, True)
    except Exception as error:  # as above, and those of urllib
        advice = f"put {file} there yourself (from {needed.url})"
        raise UserError(f"data.dataset={name}: cannot download it to {place}: {shorten(error)}; {advice}") from None


@contextlib.contextmanager
def no_download(constructor: type) -> Iterator[None]:
    """torchvision's `download=True` unpacks the files that are in place, and raises NotInPlace for another one."""
    from torchvision.datasets import utils

    def find(url: str, root: str | Path, filename: str | None = None, md5: str | None = None, *_: Any) -> None:
        path = Path(root).expanduser() / (filename or os.path.basename(url))
        if not utils.check_integrity(path, md5):
            raise NotInPlace(path, url)

    def find_on_drive(file_id: str, root: str | Path, filename: str, md5: str | None = None) -> None:
        find(f"https://drive.google.com/file/d/{file_id}", root, filename, md5)

    with contextlib.ExitStack() as originals:
        for module in (utils, sys.modules[constructor.__module__]):
            for name, instead in (("download_url", find), ("download_file_from_google_drive", find_on_drive)):
                if hasattr(module, name):
                    originals.callback(setattr, module, name, getattr(module, name))
                    setattr(module, name, instead)
        yield


@contextlib.contextmanager
def download_shown(progress: Progress) -> Iterator[None]:
    """torchvision's own bar, which fills a log with lines, is ours meanwhile."""
    from torchvision.datasets import utils

    class Bar:
        """What torchvision asks of tqdm. A file's end is followed by its check and its unpacking."""

        def __init__(self, total: int | None, **_: Any):
            self.total, self.done = total, 0

        def __enter__(self) -> Bar:
            return self

        def update(self, count: int) -> None:
            self.done += count
            progress("downloading (MB)", self.done // MEGABYTE, self.total and -(-self.total // MEGABYTE))

        def __exit__(self, error: object, *_: object) -> None:
            if error is None:
                progress("checking and unpacking", 0, None)

    original, utils.tqdm = utils.tqdm, Bar
    try:
        yield
    finally:
        utils.tqdm = original


def downloading(constructor: type, allowed: bool) -> dict[str, bool]:
    """The argument that says so, of a set that can be downloaded: some do it unless told not to."""
    accepted = inspect.signature(constructor).parameters
    return {"download": allowed} if "download" in accepted or constructor.__name__ in ("EMNIST", "QMNIST") else {}


def shorten(error: Exception) -> str:
    """The first line of an error, without torchvision's advice in its own terms."""
    return re.sub(r"\.?\s*You can use download=True to download it\.?", "", first_line(error)).rstrip(" :.")
