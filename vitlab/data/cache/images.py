"""The uint8 cache: each split decoded once into a .npy file that every process maps into its memory.

An entry (vitlab.data.entries) holds train.npy and test.npy (uint8 (N, C, H, W)), train_labels.npy, test_labels.npy
and data.json.
"""

import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from omegaconf import DictConfig

from vitlab.config import UserError
from vitlab.data.base import ImageData, Split
from vitlab.data.cache.store import Cache, Progress, digest, fingerprint, root, safe
from vitlab.data.cache.store import settings as kept
from vitlab.files import replacing, write_json
from vitlab.hardware import count_cores

LIMIT = 2_000_000_000  # bytes of both splits together that `auto` caches
LAYOUT = 1  # of an entry's files
CHUNK = 128  # images decoded at a time by one thread
LISTED = 5  # images that cannot be decoded, named in an error
NOT_PIXELS = ("name", "sizes", "mean", "std", "augment", "cache", "download")


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
    cache = Cache(
        place=lambda: place(config, module),
        opened=lambda entry: opened(entry, config.name),
        read=lambda: module.load(config),
        write=lambda data, entry: write(data, entry, progress or (lambda *_: None)),
        wanted=lambda data: config.cache != "auto" or pixels(data) <= LIMIT,
        what="image cache",
        without="images will be decoded at each read, which is slower",
    )
    return cache.load(lock=f"{safe(config.name)}-{digest(settings(config))}")


def place(config: DictConfig, module: ModuleType) -> Path:
    """The folder of the entry for this configuration and the files it now reads."""
    return root() / f"{safe(config.name)}-{digest([settings(config), fingerprint(config, module)])}"


def settings(config: DictConfig) -> dict[str, Any]:
    """What the pixels depend on in the configuration."""
    return {"layout": LAYOUT, **kept(config, NOT_PIXELS)}


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


def write(data: ImageData, entry: Path, progress: Progress) -> None:
    """Write the files of an entry. Raises OSError, and UserError for bad images."""
    total, done, problems = len(data.train) + len(data.test), 0, []
    progress(f"caching {data.name}", 0, total)
    for part in ("train", "test"):
        split = getattr(data, part)
        shape = (len(split), data.channels, *data.image_size)
        with replacing(entry / f"{part}.npy") as file:
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
        with replacing(entry / f"{part}_labels.npy") as file:
            np.save(file, np.asarray(split.labels, dtype=np.int64), allow_pickle=False)
    if problems:
        more = len(problems) - LISTED
        raise UserError(problems[:LISTED] + ([f"... and {more} more images that cannot be read"] if more > 0 else []))
    about = {"classes": list(data.classes), "image_size": list(data.image_size), "channels": data.channels}
    write_json(entry / "data.json", about)


def decoded(split: Split) -> Iterator[tuple[int, Future]]:
    """(number of images, their read) of a split in order, decoded by all cores a little ahead of the writer."""
    cores = count_cores()
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
