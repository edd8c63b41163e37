"""The image classification sets of torchvision.datasets, by the names of their classes there."""

import contextlib
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError, choices_text, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Rows, Split
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.cache.store import Progress
from vitlab.data.images.resize import Resized
from vitlab.data.images.torchvision_files import download_shown, open_part, shorten
from vitlab.data.subset import hold_out

VERSION = 2  # of how the pixels are made
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


def fingerprint(config: ImageDataConfig) -> list:
    """The set's files: those in the root that bear its name, or where none does (SVHN, ImageNet) all."""
    root = Path(config.root).expanduser()
    names = sorted(name for name in os.listdir(root) if name[0] != ".") if root.is_dir() else []
    of_set = [name for name in names if simplify(name).startswith(simplify(config.dataset))]
    return [VERSION, [[name, stat_files(root / name)] for name in of_set or names]]


def simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def load(config: ImageDataConfig, progress: Progress | None = None) -> ImageData:
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


def check_options(config: ImageDataConfig, constructor: type) -> Iterator[str]:
    """What is wrong with `data.options`."""
    name, accepted = config.dataset, inspect.signature(constructor).parameters
    free = [key for key in OPTIONS if key in accepted and (key != "split" or name == "EMNIST")]
    for key, value in config.options.items():
        if key not in free:
            choices = choices_text(key, free) if free else "it takes none"
            yield f"data.options.{key}={value}: not an option of {name}; {choices}"
    for key in free:
        if accepted[key].default is inspect.Parameter.empty and key not in config.options:
            values = ", ".join(find_attribute(constructor, f"{key}s") or ())
            yield f"data.options.{key} is missing: {name} needs it; give data.options.{key}=X, one of {values}"


def find_attribute(dataset: Any, *names: str) -> Any:
    """The first of these attributes that a set has; its sets have no interface beyond their items."""
    return next((value for name in names if (value := getattr(dataset, name, None)) is not None), None)


def read_labels(dataset: Any) -> np.ndarray:
    """The label of every item, int64 (N,), as the set counts them."""
    samples = find_attribute(dataset, "_samples")
    labels = find_attribute(dataset, *LABELS) if samples is None else [label for _, label in samples]
    if labels is None:  # PCAM keeps them in a file
        labels = [dataset[i][1] for i in range(len(dataset))]
    if isinstance(labels, list) and None in labels:
        raise UserError(f"data.dataset={type(dataset).__name__}: its held-out images come without labels")
    labels = np.asarray(labels).astype(np.int64)
    return labels[:, 0] if labels.ndim == 2 else labels  # QMNIST: the class, then who wrote it


def name_classes(dataset: Any, labels: Sequence[np.ndarray]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """(class names, each part's labels counted from 0 in their order); numbers where the set gives no names."""
    names = find_attribute(dataset, "classes", "categories")
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
    data = find_attribute(dataset, "data")
    if data is None or isinstance(data, list):
        return None
    array = data if isinstance(data, np.ndarray) else data.numpy()
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        return None
    if array.ndim == 3:
        return array[:, None]
    return array if array.shape[1] == 3 else array.transpose(0, 3, 1, 2)


def make_reader(dataset: Any, config: ImageDataConfig, size: tuple[int, int], channels: int):
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
    paths = find_attribute(dataset, "_image_files")
    stable = np.arange(len(labels)) if paths is None else np.argsort([str(path) for path in paths], kind="stable")
    train, test = (np.sort(stable[rows]) for rows in hold_out(labels[stable], share))
    return Split(labels[train], Rows(read, train)), Split(labels[test], Rows(read, test))
