"""Entries of the cache: folders built once, whole or not at all, by any number of processes.

Below $VITLAB_CACHE or ~/.cache/vitlab/ each is <name>-<fingerprint>/. The fingerprint covers all that its content
depends on, so an entry is never out of date, only unused; deleting any of them is safe.
"""

import hashlib
import json
import os
import re
import shutil
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from filelock import FileLock

from vitlab.config import resolved
from vitlab.config.schema.data import DataConfig
from vitlab.config.schema.fields import CACHE
from vitlab.config.schema.kinds import affecting, select
from vitlab.data.cache.file_stats import stat_files
from vitlab.registry import find_function

FILE_KEYS = ("root", "path", "test_path", "file", "folder")  # keys whose values are paths

Progress = Callable[[str, int, int], None]
T = TypeVar("T")


def cache_root() -> Path:
    return Path(os.environ.get("VITLAB_CACHE") or "~/.cache/vitlab").expanduser().absolute()


class Cache(ABC, Generic[T]):
    """A data set in the cache; a subclass for each kind of data says what an entry is.

    progress(what, done, total) is called while an entry is built.
    """

    kind: str  # in warnings
    without: str  # what happens where the entry cannot be written, in warnings
    unrelated: tuple[str, ...]  # keys of the configuration that change nothing in an entry

    def __init__(self, config: DataConfig, module: ModuleType, progress: Progress | None = None):
        self.config, self.module = config, module
        self.progress = progress or (lambda *_: None)

    @abstractmethod
    def read(self) -> T:
        """The data without the cache. Raises UserError."""

    @abstractmethod
    def write(self, data: T, entry: Path) -> None:
        """Write the files of an entry into an empty folder. Raises OSError, and UserError for bad data."""

    @abstractmethod
    def open_entry(self, entry: Path) -> T | None:
        """The data of an entry; None when it is not there or damaged."""

    def is_wanted(self, data: T) -> bool:
        """Whether the data is kept at all."""
        return True

    def settings(self) -> dict[str, Any]:
        """What an entry depends on in the configuration; a relative path is another one in another folder."""
        related = select(resolved(self.config), type(self.config), affecting(CACHE))
        return related | {key: os.path.abspath(path) for key, path in named_files(self.config).items()}

    def fingerprint(self) -> Any:
        """What an entry depends on besides: what the module says, else its source and the files that are named."""
        if of := find_function(self.module, "fingerprint"):
            return of(self.config)
        source = Path(self.module.__file__).read_bytes() if self.module.__file__ else b""
        files = [stat_files(path) for path in named_files(self.config).values()]
        return {"source": hashlib.sha256(source).hexdigest(), "files": files}

    def entry(self) -> Path:
        """The folder of the entry for the configuration and the files as they are now."""
        return self.path([self.settings(), self.fingerprint()])

    def path(self, key: Any) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        name = re.sub(r"[^\w.-]", "_", self.config.name)
        return cache_root() / f"{name}-{digest}"

    def load(self) -> T:
        """The data from the cache, whose entry is built when it is not there yet; one process at a time."""
        if (data := self.open_entry(self.entry())) is not None:
            return data
        settings = self.path(self.settings())
        lock_file = settings.with_name(f"{settings.name}.lock")
        lock = FileLock(lock_file)
        try:
            lock_file.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
            self.warn(lock_file.parent, error)
            return self.read()
        try:
            return self.build()
        finally:
            lock.release()

    def build(self) -> T:
        if (data := self.open_entry(self.entry())) is not None:  # another process was first
            return data
        data = self.read()
        if not self.is_wanted(data):
            return data
        entry = self.entry()  # reading may have downloaded the files
        partial = entry.with_name(f"{entry.name}.partial")  # ours alone, under the lock
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self.write(data, partial)
            shutil.rmtree(entry, ignore_errors=True)  # a damaged one
            os.replace(partial, entry)
        except OSError as error:
            self.warn(entry.parent, error)
            return data
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        opened = self.open_entry(entry)
        return data if opened is None else opened

    def warn(self, folder: Path, error: Exception) -> None:
        warnings.warn(
            f"cannot write the {self.kind} cache in {folder} ({error}): {self.without}; "
            "set VITLAB_CACHE to a folder that can be written",
            stacklevel=4,
        )


def named_files(config: DataConfig) -> dict[str, str]:
    """The files and folders that a configuration names, by key.

    Where no dataclass says which keys are paths, these are the texts that name a file or folder that is there.
    """
    paths = {}
    for field in fields(config):
        value = vars(config)[field.name]
        if isinstance(value, str):
            path = os.path.expanduser(value)
            if field.metadata.get("path", not field.metadata and os.path.exists(path)):
                paths[field.name] = path
    return paths
