"""Data sets from libraries: torchvision's, by their names there, and the digits of scikit-learn."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError, choices_text, extent, first_line, raise_all
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Split, take_items
from vitlab.data.cache import alone, stat_files
from vitlab.data.split import hold_out, refuse_share

VERSIONS = {"torchvision": 3, "digits": 1}  # of how the pixels are made
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
LABELS = ("targets", "labels", "_labels", "y")  # where the sets keep them
PROPERTIES = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "above 4": (5, 6, 7, 8, 9), "loop": (0, 6, 8, 9)}
DIGIT_LEVELS = 16  # the white of scikit-learn's digits


def fingerprint(config: ImageDataConfig) -> list:
    """Return the version, and for torchvision the root's files with the set's name, or all if there are none (SVHN)."""
    if config.kind == "digits":
        return [VERSIONS["digits"]]

    def simplify(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.lower())

    root = Path(config.root).expanduser()
    names = sorted(name for name in os.listdir(root) if name[0] != ".") if root.is_dir() else []
    of_set = [name for name in names if simplify(name).startswith(simplify(config.dataset))]
    return [VERSIONS["torchvision"], [[name, stat_files(root / name)] for name in of_set or names]]


def load(config: ImageDataConfig) -> ImageData:
    """Load the set, grey or RGB, resized to cover `image_size`; download it if it is missing and that is allowed."""
    return load_digits(config) if config.kind == "digits" else load_torchvision(config)


def load_digits(config: ImageDataConfig) -> ImageData:
    """Load the 1,797 handwritten digits of 8x8 pixels (UCI), with a fixed `config.test_share` of each class held out.

    `config.target` chooses a digit's target: its class, its PROPERTIES, or the number itself.
    """
    from sklearn import datasets  # 2 s

    original = datasets.load_digits()
    labels = original.target.astype(np.int64)
    properties = np.array([np.isin(labels, digits) for digits in PROPERTIES.values()], dtype=np.float32).T
    targets = {  # and the classes
        "class": (None, tuple(str(name) for name in original.target_names)),
        "labels": (properties, tuple(PROPERTIES)),
        "number": (labels.astype(np.float32), ()),
    }
    target, classes = targets[config.target]
    size = extent(config.image_size)
    read = Resized((original.images[:, None] * (255 / DIGIT_LEVELS)).astype(np.float32), size)
    return ImageData(config.name, classes, size, 1, *hold_out(Split(labels, read, target), config.test_share))


def load_torchvision(config: ImageDataConfig) -> ImageData:
    name, size = config.dataset, extent(config.image_size)
    if name not in NAMES:
        raise UserError(f"data.dataset={name}: unknown data set; {choices_text(name, NAMES, limit=len(NAMES))}")
    from PIL import EpsImagePlugin
    from torchvision import datasets  # 3 s

    EpsImagePlugin.gs_binary = False  # the sets open any format by themselves, and no file may start Ghostscript
    constructor = getattr(datasets, name)
    sets = [open_part(config, constructor, part) for part in list_parts(constructor)]
    classes, labels = name_classes(sets[0], [read_labels(dataset) for dataset in sets])
    arrays = [get_array(dataset) for dataset in sets]
    modes = set()  # of a few images; a broken file is reported by whoever reads it
    for index in np.linspace(0, len(sets[0]) - 1, 8) if arrays[0] is None else ():
        with contextlib.suppress(Exception):
            modes.add(sets[0][int(index)][0].mode)
    channels = (1 if modes and modes <= {"1", "L"} else 3) if arrays[0] is None else arrays[0].shape[1]
    train, *test = (
        Split(of_set, ItemImages(dataset, name, config.root, size, channels) if array is None else Resized(array, size))
        for dataset, array, of_set in zip(sets, arrays, labels, strict=True)
    )
    if test:
        refuse_share(config, f"data.dataset={name}")
        return ImageData(config.name, classes, size, channels, train, *test)
    # a set that comes whole: a share of each class is held out, always the same images
    paths = find_attribute(sets[0], "_image_files")
    order = np.arange(len(train)) if paths is None else np.argsort([str(path) for path in paths], kind="stable")
    return ImageData(config.name, classes, size, channels, *hold_out(take_items(train, order), config.test_share))


def list_parts(constructor: type) -> list[dict[str, Any]]:
    """List the constructor's arguments for the training and the held-out part; [{}] for a set without a split."""
    name, accepted = constructor.__name__, inspect.signature(constructor).parameters
    if "train" in accepted or name == "EMNIST":  # EMNIST takes it as one of its **kwargs
        return [{"train": True}, {"train": False}]
    if "split" in accepted:
        return [{"split": split} for split in SPLITS.get(name, ("train", "test"))]
    return [{}]


def open_part(config: ImageDataConfig, constructor: type, part: dict[str, Any]) -> Any:
    """Open one part of the set: as it is on disk, else unpacked or downloaded by torchvision if that is allowed.

    torchvision unpacks archives that are in place, and unpickles only files whose MD5 is the published one. Raises
    UserError with torchvision's message.
    """
    root, name, place = Path(config.root).expanduser(), config.dataset, f"data.root={config.root}"
    options = {**config.options, **part}
    try:
        return constructor(root, **options, **downloading(constructor, False))
    except Exception as error:  # the sets raise RuntimeError, OSError, ValueError, and their parsers' errors
        missing = error
    if isinstance(missing, TypeError) or (isinstance(missing, ValueError) and config.options):
        raise UserError(f"data.options={config.options}: {shorten(missing)}") from None
    if not downloading(constructor, True):
        advice = f"torchvision cannot download it: put its files in {place}"
        raise UserError(f"data.dataset={name}: {shorten(missing)}; {advice}") from None
    if not config.download:
        advice = f"put its files or archives in {place} and give data.download=true, which fetches only what is missing"
        raise UserError(f"data.dataset={name}: {shorten(missing)}; {advice}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with alone(root / f".{name}.lock", f"downloading or unpacking data.dataset={name}"):
            return constructor(root, **options, **downloading(constructor, True))
    except Exception as error:  # as above, and those of urllib, tarfile and zipfile
        advice = f"put its archives into {place}, they are unpacked there"
        raise UserError(f"data.dataset={name}: cannot download or unpack it: {shorten(error)}; {advice}") from None


def downloading(constructor: type, allowed: bool) -> dict[str, bool]:
    """Return the `download` argument of a set's constructor, {} if it takes none: some download by default."""
    accepted = inspect.signature(constructor).parameters
    return {"download": allowed} if "download" in accepted or constructor.__name__ in ("EMNIST", "QMNIST") else {}


def shorten(error: Exception) -> str:
    """Return an error's first line, without torchvision's advice on download=True."""
    return re.sub(r"\.?\s*You can use download=True to download it\.?", "", first_line(error)).rstrip(" :.")


def find_attribute(dataset: Any, *names: str) -> Any:
    """Return the first of these attributes that a set has; torchvision's sets have no interface beyond their items."""
    return next((value for name in names if (value := getattr(dataset, name, None)) is not None), None)


def read_labels(dataset: Any) -> np.ndarray:
    """Read the label of every item, int64 (N,), as the set counts them."""
    samples = find_attribute(dataset, "_samples")
    labels = find_attribute(dataset, *LABELS) if samples is None else [label for _, label in samples]
    if labels is None:  # PCAM keeps them in a file
        labels = [dataset[i][1] for i in range(len(dataset))]
    if isinstance(labels, list) and None in labels:
        raise UserError(f"data.dataset={type(dataset).__name__}: its held-out images come without labels")
    labels = np.asarray(labels).astype(np.int64)
    return labels[:, 0] if labels.ndim == 2 else labels  # QMNIST: the class, then who wrote it


def name_classes(dataset: Any, labels: Sequence[np.ndarray]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Return (class names, each part's labels counted from 0 in their order); names are numbers if the set has none."""
    names = find_attribute(dataset, "classes", "categories")
    if names is None:
        values = np.unique(np.concatenate(labels))
        return tuple(str(value) for value in values), [np.searchsorted(values, part) for part in labels]
    names = [name if isinstance(name, str) else ", ".join(name) for name in names]
    if names[0] == "N/A":  # EMNIST's letters count from 1
        names, labels = names[1:], [part - 1 for part in labels]
    unique = [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]
    return tuple(unique), list(labels)


def get_array(dataset: Any) -> np.ndarray | None:
    """Return uint8 (N, C, H, W), a view of the images of a set that torchvision holds as one array; None for others."""
    data = find_attribute(dataset, "data")
    if data is None or isinstance(data, list):
        return None
    array = data if isinstance(data, np.ndarray) else data.numpy()
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        return None
    if array.ndim == 3:
        return array[:, None]
    return array if array.shape[1] == 3 else array.transpose(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Resized:
    """A reader of images in an array (N, C, h, w), uint8 or floats from 0 to 255: int64 (B,) -> uint8 (B, C, *size).

    Images are resized to cover the size and cropped to its centre, bilinear, antialiased if they shrink.
    """

    images: np.ndarray
    size: tuple[int, int]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        images, size = self.images[indices], self.size
        if images.shape[2:] == size:
            return np.ascontiguousarray(images.round().astype(np.uint8))
        import torch  # not at the top: a warm cache resizes nothing

        _, _, height, width = images.shape
        scale = max(size[0] / height, size[1] / width)
        inner = max(size[0], round(height * scale)), max(size[1], round(width * scale))
        values = torch.from_numpy(np.ascontiguousarray(images)).float()
        values = torch.nn.functional.interpolate(values, inner, mode="bilinear", antialias=True)
        top, left = (inner[0] - size[0]) // 2, (inner[1] - size[1]) // 2
        values = values[:, :, top : top + size[0], left : left + size[1]]
        return np.ascontiguousarray(values.round().clamp(0, 255).byte().numpy())


@dataclass(frozen=True, eq=False)
class ItemImages:
    """A reader of a set that decodes one item at a time: int64 (B,) -> uint8 (B, channels, *size)."""

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
        raise_all(problems)
        return images
