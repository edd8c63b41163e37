"""The image classification sets of torchvision.datasets, by the names of their classes there."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from filelock import FileLock
from omegaconf import DictConfig

from vitlab.config import UserError, choices_text, extent, first_line, resolved
from vitlab.data.base import ImageData, Rows, Split
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.cache.store import Progress
from vitlab.data.images.resize import Resized
from vitlab.data.subset import hold_out

VERSION = 1  # of how the pixels are made
MEGABYTE = 1_000_000
NAMES = (
    *("CIFAR10", "CIFAR100", "CLEVRClassification", "Caltech101", "Caltech256", "Country211", "DTD", "EMNIST"),
    *("EuroSAT", "FER2013", "FGVCAircraft", "FashionMNIST", "Flowers102", "Food101", "GTSRB", "ImageNet", "Imagenette"),
    *("KMNIST", "MNIST", "OxfordIIITPet", "PCAM", "Places365", "QMNIST", "RenderedSST2", "SEMEION", "STL10", "SUN397"),
    *("SVHN", "StanfordCars", "USPS"),
)
SPLITS = {  # the values of split= where they are not train and test
    "CLEVRClassification": ("train", "val"),
    "FGVCAircraft": ("trainval", "test"),
    "ImageNet": ("train", "val"),
    "Imagenette": ("train", "val"),
    "OxfordIIITPet": ("trainval", "test"),
    "Places365": ("train-standard", "val"),
}
OPTIONS = ("annotation_level", "folds", "size", "small", "split")  # of a constructor that are the user's to choose
LABELS = ("targets", "labels", "_labels", "y")  # where the sets keep them


def fingerprint(config: DictConfig) -> list:
    """The set's files: those in the root that bear its name, or where none does (SVHN, ImageNet) all."""
    root = Path(config.root).expanduser()
    names = sorted(name for name in os.listdir(root) if name[0] != ".") if root.is_dir() else []
    of_set = [name for name in names if simplify(name).startswith(simplify(config.dataset))]
    return [VERSION, [[name, stat_files(root / name)] for name in of_set or names]]


def simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def load(config: DictConfig, progress: Progress | None = None) -> ImageData:
    """torchvision's set, grey or RGB, resized to cover `image_size`; downloaded when it may be and is not there."""
    name, size = config.dataset, extent(config.image_size)
    if name not in NAMES:
        raise UserError(f"data.dataset={name}: unknown data set; {choices_text(name, NAMES, limit=len(NAMES))}")
    from torchvision import datasets  # 3 s

    constructor = getattr(datasets, name)
    problems = list(check_options(config, constructor))
    if problems:
        raise UserError(problems)
    with download_shown(progress) if progress else contextlib.nullcontext():
        sets = [open_part(config, constructor, part) for part in list_parts(constructor)]
    labels = [read_labels(dataset) for dataset in sets]
    classes, labels = name_classes(sets[0], labels)
    channels = count_channels(sets)
    reads = [make_reader(dataset, config, size, channels) for dataset in sets]
    if len(sets) == 1:
        train, test = hold_out_images(sets[0], labels[0], reads[0], config.test_share)
    else:
        train, test = (Split(lab, read) for lab, read in zip(labels, reads, strict=True))
    return ImageData(config.name, classes, size, channels, train, test)


def list_parts(constructor: type) -> list[dict[str, Any]]:
    """The arguments that give the training and the held-out part; only {} for a set that comes without a split."""
    name, accepted = constructor.__name__, inspect.signature(constructor).parameters
    if "train" in accepted or name == "EMNIST":  # EMNIST takes it as one of its **kwargs
        return [{"train": True}, {"train": False}]
    if "split" in accepted:
        return [{"split": split} for split in SPLITS.get(name, ("train", "test"))]
    return [{}]


def check_options(config: DictConfig, constructor: type) -> Iterator[str]:
    """What is wrong with `data.options`."""
    name, accepted = config.dataset, inspect.signature(constructor).parameters
    free = [key for key in OPTIONS if key in accepted and (key != "split" or name == "EMNIST")]
    for key, value in config.options.items():
        if key not in free:
            known = choices_text(key, free) if free else "it takes none"
            yield f"data.options.{key}={value}: not an option of {name}; {known}"
    for key in free:
        if accepted[key].default is inspect.Parameter.empty and key not in config.options:
            values = ", ".join(getattr(constructor, f"{key}s", ()))
            yield f"data.options.{key} is missing: {name} needs it; give data.options.{key}=X, one of {values}"


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


def read_labels(dataset: Any) -> np.ndarray:
    """The label of every item, int64 (N,), as the set counts them."""
    samples = getattr(dataset, "_samples", None)
    if samples is not None:
        labels = [label for _, label in samples]
    else:
        labels = next((getattr(dataset, key) for key in LABELS if hasattr(dataset, key)), None)
    if labels is None:  # PCAM keeps them in a file
        labels = [dataset[i][1] for i in range(len(dataset))]
    if isinstance(labels, list) and None in labels:
        raise UserError(f"data.dataset={type(dataset).__name__}: its held-out images come without labels")
    labels = np.asarray(labels).astype(np.int64)
    return labels[:, 0] if labels.ndim == 2 else labels  # QMNIST: the class, then who wrote it


def name_classes(dataset: Any, labels: Sequence[np.ndarray]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """(class names, each part's labels counted from 0 in their order); numbers where the set gives no names."""
    names = getattr(dataset, "classes", None) or getattr(dataset, "categories", None)
    if names is None:
        values = np.unique(np.concatenate(labels))
        return tuple(str(value) for value in values), [np.searchsorted(values, part) for part in labels]
    names = [name if isinstance(name, str) else ", ".join(name) for name in names]
    if names[0] == "N/A":  # EMNIST's letters count from 1
        names, labels = names[1:], [part - 1 for part in labels]
    unique = [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]
    return tuple(unique), list(labels)


def count_channels(sets: Sequence[Any]) -> int:
    """1 for a set of grey images, else 3; of sets in files by a few of them."""
    array = get_array(sets[0])
    if array is not None:
        return array.shape[1]
    modes = set()
    for index in np.linspace(0, len(sets[0]) - 1, 8):
        with contextlib.suppress(Exception):  # a broken file is reported by whoever reads it
            modes.add(sets[0][int(index)][0].mode)
    return 1 if modes and modes <= {"1", "L"} else 3


def get_array(dataset: Any) -> np.ndarray | None:
    """uint8 (N, C, H, W), a view of the images of a set that torchvision holds as one array."""
    data = getattr(dataset, "data", None)
    array = data if isinstance(data, np.ndarray) else data.numpy() if hasattr(data, "numpy") else None
    if array is None or array.dtype != np.uint8 or array.ndim not in (3, 4):
        return None
    if array.ndim == 3:
        return array[:, None]
    return array if array.shape[1] == 3 else array.transpose(0, 3, 1, 2)


def make_reader(dataset: Any, config: DictConfig, size: tuple[int, int], channels: int):
    array = get_array(dataset)
    if array is not None:
        return Resized(array, size)
    return ItemImages(dataset, config.dataset, config.root, size, channels)


@dataclass(frozen=True, eq=False)
class ItemImages:
    """Reads items of a set that decodes one at a time: int64 (B,) -> uint8 (B, channels, *size)."""

    dataset: Any
    name: str
    root: str
    size: tuple[int, int]
    channels: int

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        from vitlab.data.images import decode

        images = np.empty((len(indices), self.channels, *self.size), dtype=np.uint8)
        problems = []
        for row, index in enumerate(indices):
            try:
                images[row] = decode.convert(self.dataset[int(index)][0], self.size, self.channels)
            except Exception as error:  # Pillow's readers raise a dozen types for broken files
                problems.append(f"data.root={self.root}: cannot read image {index} of {self.name}: {shorten(error)}")
        if problems:
            raise UserError(problems)
        return images


def hold_out_images(dataset: Any, labels: np.ndarray, read: Any, share: float) -> tuple[Split, Split]:
    """(train, test) of a set that comes whole: a share of each class is held out, always the same images."""
    paths = getattr(dataset, "_image_files", None)
    stable = np.arange(len(labels)) if paths is None else np.argsort([str(path) for path in paths], kind="stable")
    train, test = (np.sort(stable[rows]) for rows in hold_out(labels[stable], share))
    return Split(labels[train], Rows(read, train)), Split(labels[test], Rows(read, test))
