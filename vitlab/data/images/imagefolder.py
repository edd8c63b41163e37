"""A folder of images, one subfolder for each class; with train/ and val/ (or valid, validation, test) inside, a split.

Without a split a share of each class is held out, chosen by the seed and each file's own name: adding files later
moves few of the others.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from vitlab.config import UserError, extent
from vitlab.data.base import ImageData, Split
from vitlab.data.cache.file_stats import files, stamps
from vitlab.data.split import hashed_share

VERSION = 1  # of the decoding
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
TRAIN = "train"
HELD_OUT = ("val", "valid", "validation", "test")  # the first that is there
LAYOUT = "put the images of each class into a folder of its own"

Listing = dict[str, list[str]]  # class -> its files, as paths below the root


def fingerprint(config: DictConfig) -> list:
    return [VERSION, stamps(Path(config.root).expanduser(), EXTENSIONS)]


def contents(config: DictConfig) -> str:
    """The names and the sizes of all images: a copy of the folder has the same."""
    found = stamps(Path(config.root).expanduser(), EXTENSIONS)
    return "\n".join(f"{size} {path}" for path, size, _ in found)


def load(config: DictConfig) -> ImageData:
    """The images of `config.root`, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault."""
    root = Path(config.root).expanduser()
    problems = []
    if not 0 < config.test_share < 1:
        problems.append(f"data.test_share={config.test_share}: give a share of each class between 0 and 1")
    problems += unusable(root)
    if problems:
        raise UserError(problems)
    held_out = next((name for name in HELD_OUT if has_split(root, name)), None)
    if held_out:
        train, test = listing(root, TRAIN), listing(root, held_out)
        problems += list(empty(root, train)) + list(empty(root, test))
        problems += list(disagreements(root, train, test, held_out))
    else:
        everything = listing(root)
        problems += list(empty(root, everything)) + list(alone(root, everything))
        train, test = divided(everything, config.test_share, config.seed)
    if len(train) < 2:
        problems.append(only_one(root, train))
    if problems:
        raise UserError(problems)
    size, classes = extent(config.image_size), tuple(train)
    splits = {}
    for part, listed in (("train", train), ("test", test)):
        labels = np.repeat(np.arange(len(classes)), [len(listed[name]) for name in classes])
        paths = tuple(path for name in classes for path in listed[name])
        splits[part] = Split(labels.astype(np.int64), FileImages(str(root), paths, size))
    return ImageData(config.name, classes, size, 3, **splits)


def unusable(root: Path) -> Iterator[str]:
    if not root.exists():
        yield f"data.root={root}: no such folder; give the one that holds a folder of images for each class"
    elif not root.is_dir():
        yield f"data.root={root}: not a folder; give the one that holds a folder of images for each class"
    elif not os.access(root, os.R_OK | os.X_OK):
        yield f"data.root={root}: may not be read; change its permissions"
    elif not class_names(root):
        loose = sum(1 for _ in files(root, EXTENSIONS))
        yield f"data.root={root}: holds no folders{f', but {loose} loose images' if loose else ''}; {LAYOUT}"


def class_names(folder: Path) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith((".", "__")))


def has_split(root: Path, held_out: str) -> bool:
    """Whether train/ and the held-out folder are there and hold class folders, rather than being classes themselves."""
    return all((root / name).is_dir() and class_names(root / name) for name in (TRAIN, held_out))


def listing(root: Path, part: str = "") -> Listing:
    """The image files of each class folder, however deep, sorted."""
    start = len(str(root).rstrip(os.sep)) + 1
    return {
        name: sorted(entry.path[start:] for entry in files(root / part / name, EXTENSIONS))
        for name in class_names(root / part)
    }


def empty(root: Path, listed: Listing) -> Iterator[str]:
    kinds = " ".join(kind.removeprefix(".") for kind in EXTENSIONS)
    for name, paths in listed.items():
        if not paths:
            yield f"data.root={root}: class '{name}' has no images; add some ({kinds}) or remove its folder"


def alone(root: Path, listed: Listing) -> Iterator[str]:
    for name, paths in listed.items():
        if len(paths) == 1:
            yield f"data.root={root}: class '{name}' has a single image; add another, one of them is held out"


def disagreements(root: Path, train: Listing, test: Listing, held_out: str) -> Iterator[str]:
    for here, there, without in ((train, test, held_out), (test, train, TRAIN)):
        for name in here:
            if name not in there:
                yield f"data.root={root}: class '{name}' is not in {without}/; both need the same class folders"


def only_one(root: Path, listed: Listing) -> str:
    (name,) = listed
    if name in (TRAIN, *HELD_OUT):
        other = f"{' or '.join(f'{n}/' for n in HELD_OUT)}" if name == TRAIN else f"{TRAIN}/"
        return f"data.root={root}: only {name}/; add {other} beside it, or give data.root={root / name}"
    return f"data.root={root}: only one class, '{name}'; give two or more, each a folder of images"


def divided(listed: Listing, share: float, seed: int) -> tuple[Listing, Listing]:
    """(train, held out): of each class the share of files with the smallest hash of seed and name, at least one."""
    train, test = {}, {}
    for name, paths in listed.items():
        chosen = hashed_share(paths, share, seed)
        test[name], train[name] = sorted(chosen), sorted(set(paths) - chosen)
    return train, test


@dataclass(frozen=True)
class FileImages:
    """Decodes files by index: int64 (B,) -> uint8 (B, 3, H, W)."""

    root: str
    paths: tuple[str, ...]
    size: tuple[int, int]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        from vitlab.data.images import decode  # Pillow, which a warm cache does not need

        images = np.empty((len(indices), 3, *self.size), dtype=np.uint8)
        problems = []
        for row, index in enumerate(indices):
            path = os.path.join(self.root, self.paths[index])
            try:
                images[row] = decode.read(path, self.size, channels=3)
            except Exception as error:  # Pillow's readers raise a dozen types for broken files
                problems.append(f"data.root={self.root}: cannot read {self.paths[index]}: {reason(path, error)}")
        if problems:
            raise UserError(problems)
        return images


def reason(path: str, error: Exception) -> str:
    if os.path.exists(path) and not os.path.getsize(path):
        return "the file is empty; replace or delete it"
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = "it is not an image" if text.startswith("cannot identify image file") else text
    return f"{text}; replace or delete it"
