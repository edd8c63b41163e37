"""The uint8 cache: each split decoded once into a .npy file that every process maps into its memory.

    $VITLAB_CACHE or ~/.cache/vitlab/
      <name>-<fingerprint>/  train.npy  test.npy (uint8 (N, C, H, W))  train_labels.npy  test_labels.npy  data.json

The fingerprint covers all that the pixels depend on, so an entry is never out of date, only unused; deleting any of
them is safe.
"""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from filelock import FileLock
from omegaconf import DictConfig

from vitlab.config import UserError, resolved
from vitlab.data.base import ImageData, Split
from vitlab.data.stamps import stamps
from vitlab.files import replacing, write_json

LIMIT = 2_000_000_000  # bytes of both splits together that `auto` caches
LAYOUT = 1  # of an entry's files
CHUNK = 128  # images decoded at a time by one thread
LISTED = 5  # images that cannot be decoded, named in an error
NOT_PIXELS = ("name", "sizes", "mean", "std", "augment", "cache", "download")
FILE_KEYS = ("root", "path", "file", "folder")  # of a module that gives no fingerprint of its own

Progress = Callable[[str, int, int], None]


class Mapped:
    """Reads images of one .npy file, which each process opens at its first read."""

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


def load(config: DictConfig, module: ModuleType, progress: Progress | None) -> ImageData:
    """The data set from the cache, which is built when it is not there yet and `config.cache` lets it.

    Where the cache cannot be written the images are decoded at each read, with a warning. Raises UserError.
    """
    entry = place(config, module)
    if (data := opened(entry, config.name)) is not None:
        return data
    lock = FileLock(entry.with_name(f"{safe(config.name)}-{digest(settings(config))}.lock"))
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        warn(entry.parent, error)
        return module.load(config)
    try:
        return built(config, module, progress or (lambda *_: None))
    finally:
        lock.release()


def built(config: DictConfig, module: ModuleType, progress: Progress) -> ImageData:
    """What `load` gives when the entry is not there; one process at a time."""
    entry = place(config, module)
    if (data := opened(entry, config.name)) is not None:  # another process was first
        return data
    data = module.load(config)
    if config.cache == "auto" and pixels(data) > LIMIT:
        return data
    entry = place(config, module)  # loading may have downloaded the files
    try:
        build(data, entry, progress)
    except OSError as error:
        warn(entry.parent, error)
        return data
    return opened(entry, config.name) or data


def warn(folder: Path, error: Exception) -> None:
    warnings.warn(
        f"cannot write the image cache in {folder} ({error}): images will be decoded at each read, which is slower; "
        "set VITLAB_CACHE to a folder that can be written",
        stacklevel=4,
    )


def root() -> Path:
    return Path(os.environ.get("VITLAB_CACHE") or "~/.cache/vitlab").expanduser().absolute()


def place(config: DictConfig, module: ModuleType) -> Path:
    """The folder of the entry for this configuration and the files it now reads."""
    own = module.fingerprint(config) if hasattr(module, "fingerprint") else observed(config, module)
    return root() / f"{safe(config.name)}-{digest([settings(config), own])}"


def settings(config: DictConfig) -> dict[str, Any]:
    """What the pixels depend on in the configuration; a relative `root` is another one in another folder."""
    kept = {key: value for key, value in resolved(config).items() if key not in NOT_PIXELS}
    if isinstance(kept.get("root"), str):
        kept["root"] = os.path.abspath(os.path.expanduser(kept["root"]))
    return {"layout": LAYOUT, **kept}


def observed(config: DictConfig, module: ModuleType) -> dict[str, Any]:
    """The source of a module and the files that its configuration names."""
    paths = [config[key] for key in FILE_KEYS if isinstance(config.get(key), str)]
    source = Path(module.__file__).read_bytes() if module.__file__ else b""
    return {"source": hashlib.sha256(source).hexdigest(), "files": [stamps(os.path.expanduser(p)) for p in paths]}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def safe(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def pixels(data: ImageData) -> int:
    height, width = data.image_size
    return (len(data.train) + len(data.test)) * data.channels * height * width


def opened(entry: Path, name: str) -> ImageData | None:
    """The data set of an entry; None when it is not there or damaged."""
    try:
        about = json.loads((entry / "data.json").read_text())
        splits = {}
        for part in ("train", "test"):
            labels = np.load(entry / f"{part}_labels.npy", allow_pickle=False)
            read = Mapped(entry / f"{part}.npy")
            if read.images.shape != (len(labels), about["channels"], *about["image_size"]):
                return None
            splits[part] = Split(labels, read)
        return ImageData(name, tuple(about["classes"]), tuple(about["image_size"]), about["channels"], **splits)
    except (OSError, ValueError, KeyError):
        return None


def build(data: ImageData, entry: Path, progress: Progress) -> None:
    """Write an entry: beside its place, and moved there whole. Raises OSError, and UserError for bad images."""
    partial = entry.with_name(f"{entry.name}.partial")  # ours alone, under the lock
    remove(partial)
    partial.mkdir(parents=True)
    total, done, problems = len(data.train) + len(data.test), 0, []
    progress(f"caching {data.name}", 0, total)
    try:
        for part in ("train", "test"):
            split = getattr(data, part)
            shape = (len(split), data.channels, *data.image_size)
            with replacing(partial / f"{part}.npy") as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                # written, not mapped: a full disk is then an error rather than the end of the process
                for count, future in decoded(split):
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
                    progress(f"caching {data.name}", done, total)
            with replacing(partial / f"{part}_labels.npy") as file:
                np.save(file, np.asarray(split.labels, dtype=np.int64), allow_pickle=False)
        if problems:
            more = len(problems) - LISTED
            raise UserError(
                problems[:LISTED] + ([f"... and {more} more images that cannot be read"] if more > 0 else [])
            )
        about = {"classes": list(data.classes), "image_size": list(data.image_size), "channels": data.channels}
        write_json(partial / "data.json", about)
        remove(entry)  # a damaged one
        os.replace(partial, entry)
    finally:
        remove(partial)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def decoded(split: Split) -> Iterator[tuple[int, Future]]:
    """(number of images, their read) of a split in order, decoded by all cores a little ahead of the writer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ahead: deque[tuple[int, Future]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        try:
            for start in range(0, len(split), CHUNK):
                indices = np.arange(start, min(start + CHUNK, len(split)))
                ahead.append((len(indices), pool.submit(split.read, indices)))
                if len(ahead) > 2 * cores:
                    yield ahead.popleft()
            while ahead:
                yield ahead.popleft()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
