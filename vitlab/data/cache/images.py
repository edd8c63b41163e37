"""The uint8 cache: each split decoded once into a .npy file that every process maps into its memory.

An entry (vitlab.data.cache.store) holds train.npy and test.npy (uint8 (N, C, H, W)), train_labels.npy, test_labels.npy,
the same of validation images where the set's module gives them, what else a Split says of its items, and data.json.
"""

import inspect
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError
from vitlab.data.base import BESIDE, ImageData, Split
from vitlab.data.cache.store import Cache
from vitlab.files import replacing, write_json
from vitlab.hardware import count_cores

LIMIT = 2_000_000_000  # bytes of all splits together that `auto` caches
LAYOUT = 3  # of an entry's files
CHUNK = 128  # images decoded at a time by one thread
LISTED = 5  # images that cannot be decoded, named in an error


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


class ImageCache(Cache[ImageData]):
    kind = "image"
    without = "images will be decoded at each read, which is slower"

    def settings(self) -> dict[str, Any]:
        return {"layout": LAYOUT, **super().settings()}

    def read(self) -> ImageData:
        takes_progress = "progress" in inspect.signature(self.module.load).parameters
        return self.module.load(self.config, **({"progress": self.progress} if takes_progress else {}))

    def is_wanted(self, data: ImageData) -> bool:
        return self.config.cache != "auto" or count_bytes(data) <= LIMIT

    def open_entry(self, entry: Path) -> ImageData | None:
        try:
            about = json.loads((entry / "data.json").read_text())
            size, channels = tuple(about["image_size"]), about["channels"]
            splits = {}
            for part in about["splits"]:
                labels = np.load(entry / f"{part}_labels.npy", allow_pickle=False)
                read = Mapped(entry / f"{part}.npy")
                if read.images.shape != (len(labels), channels, *size):
                    return None
                files = {name: entry / f"{part}_{name}.npy" for name in BESIDE}
                beside = {name: np.load(file, allow_pickle=False) for name, file in files.items() if file.exists()}
                splits[part] = Split(labels, read, **beside)
            return ImageData(self.config.name, tuple(about["classes"]), size, channels, **splits)
        except (OSError, ValueError, KeyError):
            return None

    def write(self, data: ImageData, entry: Path) -> None:
        splits = list_splits(data)
        total, done, problems = sum(map(len, splits.values())), 0, []
        self.progress(f"caching {data.name}", 0, total)
        for part, split in splits.items():
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
            beside = {name: vars(split)[name] for name in BESIDE if vars(split)[name] is not None}
            for name, values in {"labels": np.asarray(split.labels, dtype=np.int64), **beside}.items():
                with replacing(entry / f"{part}_{name}.npy") as file:
                    np.save(file, values, allow_pickle=False)
        if problems:
            if len(problems) > LISTED:
                problems[LISTED:] = [f"... and {len(problems) - LISTED} more images that cannot be read"]
            raise UserError(problems)
        about = {"classes": list(data.classes), "image_size": list(data.image_size), "channels": data.channels}
        write_json(entry / "data.json", {**about, "splits": list(splits)})


def count_bytes(data: ImageData) -> int:
    height, width = data.image_size
    return sum(map(len, list_splits(data).values())) * data.channels * height * width


def list_splits(data: ImageData) -> dict[str, Split]:
    """The splits that a module has given."""
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return {part: split for part, split in splits.items() if split is not None}


def decode_ahead(split: Split) -> Iterator[tuple[int, Future]]:
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
