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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from filelock import FileLock
from omegaconf import DictConfig

from vitlab.config import resolved
from vitlab.data.cache.file_stats import stamps

FILE_KEYS = ("root", "path", "test_path", "file", "folder")  # of a module that gives no fingerprint of its own

Progress = Callable[[str, int, int], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Cache(Generic[T]):
    """How one kind of data is kept.

    place: the folder of the entry, for the configuration and the files it now reads.
    opened: the data of an entry; None when it is not there or damaged.
    read: the data without the cache.
    write: puts data into an empty folder; it may raise OSError.
    wanted: whether the data is to be kept at all.
    what, without: a warning's words for this cache, and for what becomes of the data where it cannot be written.
    """

    place: Callable[[], Path]
    opened: Callable[[Path], T | None]
    read: Callable[[], T]
    write: Callable[[T, Path], None]
    wanted: Callable[[T], bool]
    what: str
    without: str

    def load(self, lock: str) -> T:
        """The data from the cache, which is built when it is not there yet; one process at a time, under `lock`."""
        entry = self.place()
        if (data := self.opened(entry)) is not None:
            return data
        held = FileLock(entry.with_name(f"{lock}.lock"))
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            held.acquire()
        except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
            self.warn(entry.parent, error)
            return self.read()
        try:
            return self.built()
        finally:
            held.release()

    def built(self) -> T:
        if (data := self.opened(self.place())) is not None:  # another process was first
            return data
        data = self.read()
        if not self.wanted(data):
            return data
        entry = self.place()  # reading may have downloaded the files
        try:
            self.build(data, entry)
        except OSError as error:
            self.warn(entry.parent, error)
            return data
        opened = self.opened(entry)
        return data if opened is None else opened

    def build(self, data: T, entry: Path) -> None:
        """Write an entry: beside its place, and moved there whole."""
        partial = entry.with_name(f"{entry.name}.partial")  # ours alone, under the lock
        remove(partial)
        partial.mkdir(parents=True)
        try:
            self.write(data, partial)
            remove(entry)  # a damaged one
            os.replace(partial, entry)
        finally:
            remove(partial)

    def warn(self, folder: Path, error: Exception) -> None:
        warnings.warn(
            f"cannot write the {self.what} in {folder} ({error}): {self.without}; "
            "set VITLAB_CACHE to a folder that can be written",
            stacklevel=5,
        )


def root() -> Path:
    return Path(os.environ.get("VITLAB_CACHE") or "~/.cache/vitlab").expanduser().absolute()


def fingerprint(config: DictConfig, module: ModuleType) -> Any:
    """What a module's data depends on besides the configuration: what it says itself, else what is observed."""
    return module.fingerprint(config) if hasattr(module, "fingerprint") else observed(config, module)


def settings(config: DictConfig, unrelated: tuple[str, ...]) -> dict[str, Any]:
    """The configuration without what is unrelated; a relative path is another one in another folder."""
    kept = {key: value for key, value in resolved(config).items() if key not in unrelated}
    return {key: absolute(value) if key in FILE_KEYS else value for key, value in kept.items()}


def absolute(value: Any) -> Any:
    return os.path.abspath(os.path.expanduser(value)) if isinstance(value, str) else value


def observed(config: DictConfig, module: ModuleType) -> dict[str, Any]:
    """The source of a module and the files that its configuration names."""
    paths = [config[key] for key in FILE_KEYS if isinstance(config.get(key), str)]
    source = Path(module.__file__).read_bytes() if module.__file__ else b""
    return {"source": hashlib.sha256(source).hexdigest(), "files": [stamps(os.path.expanduser(p)) for p in paths]}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def safe(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
