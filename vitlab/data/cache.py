"""Data sets kept on disk: entries built once, whole or not at all, by any number of processes.

Below $VITLAB_CACHE or ~/.cache/vitlab/ each entry is a folder <name>-<fingerprint>/. The fingerprint covers all that
its content depends on, so an entry is never out of date, only unused; deleting any of them is safe.
"""

import hashlib
import inspect
import json
import os
import re
import shutil
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from filelock import FileLock, Timeout

from vitlab.config import UserError, resolved
from vitlab.config.schema.data import DataConfig
from vitlab.config.schema.fields import CACHE, affecting, select
from vitlab.data import load, module_of
from vitlab.data.base import BESIDE, ImageData, Split, list_arrays
from vitlab.files import replacing, write_json
from vitlab.formatting import cut_lines, cut_names, plural
from vitlab.hardware import count_cores

PATIENCE = 3.0  # seconds of waiting for another process before a line says so
LIMIT = 2_000_000_000  # bytes of all splits together that `auto` caches
LAYOUT = 4  # of the files of an entry
CHUNK = 128  # images decoded at a time by one thread
LISTED = 5  # images that cannot be decoded, named in an error; broken links, named in a warning
SYSTEM = re.compile(  # hidden files, and what macOS, Windows, Linux, Python and network storage add
    r"\..*|__macosx|\$recycle\.bin|system volume information|found\.\d+|lost\+found|__pycache__"
    r"|@(eadir|tmp|recycle|recently-snapshot)|#(recycle|snapshot)",
    re.IGNORECASE | re.DOTALL,
)
HASHES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of data that this process has open: once for all runs

Progress = Callable[[str, int, int], None]


# -- files as seen from outside: which there are, how large, and when they last changed


def stat_files(
    path: str | Path, extensions: tuple[str, ...] = (), broken: list[str] | None = None
) -> list[tuple[str, int, int]]:
    """List (path below `path`, bytes, modification time in ns) of a file, or of all files in a folder, sorted.

    With `extensions` (lower case, with the dot) it lists only such files. Empty if there is nothing.
    """
    path = os.fspath(path)
    if os.path.isfile(path):
        status = os.stat(path)
        return [(os.path.basename(path), status.st_size, status.st_mtime_ns)]
    prefix = len(path.rstrip(os.sep)) + 1
    entries = walk_files(path, extensions, broken)
    return sorted((entry.path[prefix:], entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)


def walk_files(
    folder: str | Path, extensions: tuple[str, ...] = (), broken: list[str] | None = None
) -> Iterator[os.DirEntry]:
    """Yield all files below a folder in no order, following links; files of the operating system are left out.

    Links that lead nowhere or in a circle are skipped; the paths of broken links are added to `broken`.
    """
    above = (os.stat(parent) for parent in Path(os.path.realpath(folder)).parents if parent.exists())
    pending, entered = [os.fspath(folder)], {(status.st_dev, status.st_ino) for status in above}
    while pending:
        current = pending.pop()
        try:
            status = os.stat(current)
            with os.scandir(current) as entries:
                shown = sorted((e for e in entries if not SYSTEM.fullmatch(e.name)), key=lambda e: e.name, reverse=True)
        except OSError:  # gone, not a folder, not readable, or a link to itself
            continue
        if (status.st_dev, status.st_ino) in entered:  # by a link back to a folder above
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in shown:
            has_extension = not extensions or entry.name.lower().endswith(extensions)
            if is_folder(entry):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False) or os.path.isfile(entry.path):
                if has_extension:
                    yield entry
            elif broken is not None and (has_extension or "." not in entry.name):  # or a pipe, or a device
                broken.append(entry.path)


def is_folder(entry: os.DirEntry) -> bool:
    with suppress(OSError):  # a link to itself
        return entry.is_dir()
    return False


def warn_of_broken_links(source: str, folder: str | Path, broken: list[str]) -> None:
    """Warn once of broken links, naming the first; `source` begins the warning, such as `data.root=photos`."""
    if broken:
        names = cut_names([os.path.relpath(path, folder) for path in sorted(broken)], LISTED)
        warnings.warn(f"{source}: skipped {plural(len(broken), 'broken link')}: {names}", stacklevel=1)


def named_files(config: DataConfig) -> dict[str, str]:
    """Return the files and folders that a configuration names, by key.

    For a user's own module without a dataclass that says which keys are paths, they are the texts that name an existing
    file or folder. A key of a shipped set, such as the column `label`, is no path because a folder has its name.
    """
    paths = {}
    for field in fields(config):
        value = vars(config)[field.name]
        is_guessed = "." in config.kind or (config.kind, field.name) == ("huggingface", "dataset")
        if isinstance(value, str) and "://" not in value:
            path = os.path.expanduser(value)
            if field.metadata.get("path", is_guessed and not field.metadata and os.path.exists(path)):
                paths[field.name] = path
    return paths


# -- entries


def cache_root() -> Path:
    return Path(os.environ.get("VITLAB_CACHE") or "~/.cache/vitlab").expanduser().absolute()


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` while this process does `what`; print whom it waits for, and wait without a limit.

    An hour is right for large data, and the lock of a process that has ended is free.
    """
    lock, owner, holder = FileLock(path), path.with_suffix(".owner.lock"), "another process"
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        with suppress(OSError):
            holder = owner.read_text() or holder
        print(f"vitlab: waiting for {holder}, which is {what}; if it hangs, end it", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        with suppress(OSError):  # the lock's own file is emptied by each process that opens it
            owner.write_text(f"{socket.gethostname()}, process {os.getpid()}")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


class Cache:
    """A data set in the cache; a subclass for each kind of data says what an entry is.

    progress(what, done, total) is called while an entry is built. `module` implements the data's kind. A subclass has
    `read()`, the data without the cache, which raises UserError; `write(data, entry)`, which gives the content of an
    entry's data.json and its arrays by name, may write more into its folder, and raises OSError, and UserError for bad
    data; and `read_entry(entry, about, arrays)`, the data of an entry, which may raise for a damaged one.
    """

    def __init__(self, config: DataConfig, module: Any, progress: Progress | None = None):
        self.config, self.module = config, module
        self.progress = progress or (lambda *_: None)

    def is_wanted(self, data: Any) -> bool:
        """Tell whether the data is kept in the cache at all."""
        return True

    def settings(self) -> dict[str, Any]:
        """Return the settings that an entry depends on, with absolute paths: relative ones differ by working folder."""
        related = select(resolved(self.config), type(self.config), affecting(CACHE))
        for field in fields(self.config):
            if field.metadata.get("path") and isinstance(value := related.get(field.name), list):
                here = [one if "://" in str(one) else os.path.abspath(os.path.expanduser(str(one))) for one in value]
                related[field.name] = here
        return related | {key: os.path.abspath(path) for key, path in named_files(self.config).items()}

    def fingerprint(self) -> Any:
        """Return all else that an entry depends on: the module's own fingerprint, or its source and its named files."""
        if of := getattr(self.module, "fingerprint", None):
            return of(self.config)
        source = Path(self.module.__file__).read_bytes() if self.module.__file__ else b""
        files = [stat_files(path) for path in named_files(self.config).values()]
        return {"source": hashlib.sha256(source).hexdigest(), "files": files}

    def entry(self) -> Path:
        """Return the folder of the entry for the configuration and the files as they are now."""
        return self.path([self.settings(), self.fingerprint()])

    def path(self, key: Any) -> Path:
        digest = hashlib.sha256(json.dumps([LAYOUT, key], sort_keys=True).encode()).hexdigest()[:16]
        name = re.sub(r"[^\w.-]", "_", self.config.name)
        return cache_root() / f"{name}-{digest}"

    def open_entry(self, entry: Path) -> Any:
        """Open the data of an entry; return None if it is missing or damaged."""
        try:
            about = json.loads((entry / "data.json").read_text())
            files = {name: entry / f"{name}.npy" for name in about["arrays"]}
            arrays = {name: np.load(file, mmap_mode="r", allow_pickle=False) for name, file in files.items()}
            # plain views: np.memmap takes longer to slice
            return self.read_entry(entry, about, {name: np.asarray(values) for name, values in arrays.items()})
        except (OSError, ValueError, KeyError, TypeError):  # UserError is a ValueError
            return None

    def load(self) -> Any:
        """Load the data from the cache; build a missing entry first, in a single process at a time."""
        if (data := self.open_entry(self.entry())) is not None:
            return data
        settings = self.path(self.settings())
        with ExitStack() as stack:
            try:
                settings.parent.mkdir(parents=True, exist_ok=True)
                lock = settings.with_name(f"{settings.name}.lock")
                stack.enter_context(alone(lock, f"preparing data={self.config.name}"))
            except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
                self.warn(error)
                return self.read()
            return self.build()

    def build(self) -> Any:
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
            about, arrays = self.write(data, partial)
            for name, values in arrays.items():
                with replacing(partial / f"{name}.npy") as file:
                    np.save(file, values, allow_pickle=False)
            write_json(partial / "data.json", {**about, "arrays": list(arrays)})
            shutil.rmtree(entry, ignore_errors=True)  # a damaged one
            os.replace(partial, entry)
        except OSError as error:
            self.warn(error)
            return data
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        opened = self.open_entry(entry)
        return data if opened is None else opened

    def warn(self, error: Exception) -> None:
        warnings.warn(
            f"cannot write the cache in {cache_root()} ({error}): data={self.config.name} will be prepared again each "
            "time, which is slower; set VITLAB_CACHE to a folder that can be written",
            stacklevel=4,
        )


class Mapped:
    """A reader of images in one .npy file, which each process opens at its first read."""

    decoded = True

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def images(self) -> np.ndarray:
        return np.load(self.path, mmap_mode="r", allow_pickle=False)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return np.asarray(self.images[np.asarray(indices)])  # indexing by an array copies

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}


class ImageCache(Cache):
    """A cache of images: each split decoded once into a .npy file that every process maps into its memory.

    An entry holds train.npy and test.npy (uint8 (N, C, H, W)), train_labels.npy, test_labels.npy, two such files of
    validation images if the set's module gives them, the other arrays of a Split, and data.json.
    """

    def read(self) -> ImageData:
        takes_progress = "progress" in inspect.signature(self.module.load).parameters
        return self.module.load(self.config, **({"progress": self.progress} if takes_progress else {}))

    def is_wanted(self, data: ImageData) -> bool:
        count, (height, width) = sum(map(len, data.splits.values())), data.image_size
        return self.config.cache != "auto" or count * data.channels * height * width <= LIMIT

    def read_entry(self, entry: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> ImageData | None:
        size, channels, splits = tuple(about["image_size"]), about["channels"], {}
        for part in about["splits"]:
            own = {name: arrays.get(f"{part}_{name}") for name in ("labels", *BESIDE)}
            splits[part] = Split(read=Mapped(entry / f"{part}.npy"), **own)
            if splits[part].read.images.shape != (len(splits[part]), channels, *size):
                return None
        return ImageData(self.config.name, tuple(about["classes"]), size, channels, **splits)

    def write(self, data: ImageData, entry: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        total, done, problems, arrays = sum(map(len, data.splits.values())), 0, [], {}
        self.progress(f"caching {data.name}", 0, total)
        for part, split in data.splits.items():
            shape = (len(split), data.channels, *data.image_size)
            with replacing(entry / f"{part}.npy") as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                # written, not mapped: a full disk is then an error rather than the end of the process
                for count, future in decode_ahead(split):
                    try:
                        images = future.result()
                    except UserError as error:
                        problems += error.problems
                    else:
                        if images.shape != (count, *shape[1:]) or images.dtype != np.uint8:
                            wrong = f"{images.dtype} {images.shape}, not uint8 {(count, *shape[1:])}"
                            raise UserError(f"data={data.name}: its {part} images are read as {wrong}")
                        file.write(np.ascontiguousarray(images).data)
                    done += count
                    self.progress(f"caching {data.name}", done, total)
            own = {"labels": np.asarray(split.labels, dtype=np.int64), **{name: vars(split)[name] for name in BESIDE}}
            arrays |= {f"{part}_{name}": values for name, values in own.items() if values is not None}
        if problems:
            raise UserError(cut_lines(problems, LISTED, " images that cannot be read"))
        about = {"classes": list(data.classes), "image_size": list(data.image_size), "channels": data.channels}
        return {**about, "splits": list(data.splits)}, arrays


def decode_ahead(split: Split) -> Iterator[tuple[int, Future]]:
    """Yield (number of images, their read) of a split in order, decoded by all cores a little ahead of the writer."""
    cores = count_cores()
    ahead: deque[tuple[int, Future]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        try:
            for start in range(0, len(split), CHUNK):
                indices = np.arange(start, min(start + CHUNK, len(split)))
                ahead.append((len(indices), pool.submit(split.read, indices)))
                if len(ahead) > 2 * cores:
                    yield ahead.popleft()
            yield from ahead
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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
        config = replace(config, holdout="fixed")
        data = load(config)
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
