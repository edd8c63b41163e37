"""A folder of images, one subfolder for each class; with train/, val/ (or valid, validation) and test/, a split.

With train/ and one of the others that one is the test data. Without a split a share of each class is held out, chosen
by the seed and each file's own name: adding files later moves few of the others.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitlab.config import extent, printable, raise_all
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.cache import is_folder, stat_files, walk_files, warn_of_broken_links
from vitlab.data.split import divide_by_hash

VERSION = 3  # of the decoding
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
KINDS = " ".join(extension.removeprefix(".") for extension in EXTENSIONS)
TRAIN = "train"
WHOLE = "all"  # the name of the one split of a folder that has none
VALIDATION = ("val", "valid", "validation")  # the first that is there
TEST = "test"
LAYOUT = "put the images of each class into a folder of its own"

Listing = dict[str, list[str]]  # class -> its files, as paths below the root


def fingerprint(config: ImageDataConfig) -> list:
    return [VERSION, scan_files(config)]


def scan_files(config: ImageDataConfig) -> list[tuple[str, int, int]]:
    """(path below the root, bytes, modification time in ns) of all images; warns of links that lead nowhere."""
    root, broken = Path(config.root).expanduser(), []
    files = stat_files(root, EXTENSIONS, broken)
    warn_of_broken_links(f"data.root={config.root}", root, broken)
    return files


def contents(config: ImageDataConfig) -> str:
    """The names and the sizes of all images, and which folder is which split: a copy of the folder has the same."""
    root = Path(config.root).expanduser()
    splits = [f"{part} {name}" for part, name in find_splits(root).items() if part == "validation"]
    return "\n".join(f"{size} {path}" for path, size, _ in stat_files(root, EXTENSIONS)) + "".join(splits)


def load(config: ImageDataConfig) -> ImageData:
    """The images of `config.root`, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault."""
    root = Path(config.root).expanduser()
    raise_all(check_root(root))
    scan_files(config)  # for its warning: without a cache nothing asks for the fingerprint
    folders = list_splits(root)
    raise_all(find_problems(root, folders))
    listed = dict(zip(find_splits(root), folders.values(), strict=False))
    if not listed:
        sides = {name: divide_by_hash(paths, config.test_share, config.seed) for name, paths in folders[WHOLE].items()}
        listed = {part: {name: of[n] for name, of in sides.items()} for n, part in enumerate(("train", "test"))}
    size, classes = extent(config.image_size), tuple(listed["train"])
    splits = {}
    for part, images in listed.items():
        labels = np.repeat(np.arange(len(classes)), [len(images[name]) for name in classes])
        paths = tuple(path for name in classes for path in images[name])
        splits[part] = Split(
            labels.astype(np.int64), FileImages(str(root), paths, size, config.bits), names=to_names(paths)
        )
    return ImageData(config.name, classes, size, 3, **splits)


def check_root(root: Path) -> Iterator[str]:
    if not root.is_dir():
        what = "not a folder" if root.exists() else "a broken link" if root.is_symlink() else "no such folder"
        yield f"data.root={root}: {what}; give the one that holds a folder of images for each class"
    elif not os.access(root, os.R_OK | os.X_OK):
        yield f"data.root={root}: may not be read; change its permissions"
    elif not class_names(root):
        loose = sum(1 for _ in walk_files(root, EXTENSIONS))
        yield f"data.root={root}: holds no folders{f', but {loose} loose images' if loose else ''}; {LAYOUT}"


def class_names(folder: Path) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if is_folder(e) and not e.name.startswith((".", "__")))


def find_splits(root: Path) -> dict[str, str]:
    """The folder of each split; empty unless there are a train/ and a held-out folder."""
    validation = [name for name in VALIDATION if has_split(root, name)][:1]
    splits = [*validation, *([TEST] if has_split(root, TEST) else [])]
    parts = ("validation", "test") if len(splits) == 2 else ("test",)
    return {"train": TRAIN, **dict(zip(parts, splits, strict=True))} if splits else {}


def has_split(root: Path, held_out: str) -> bool:
    """Whether train/ and the held-out folder are there and hold class folders, rather than being classes themselves."""
    return all((root / name).is_dir() and class_names(root / name) for name in (TRAIN, held_out))


def list_images(root: Path, part: str = "") -> Listing:
    """The image files of each class folder, however deep, sorted."""
    start = len(str(root / "_")) - 1  # 0 in the current folder
    return {
        name: sorted(entry.path[start:] for entry in walk_files(root / part / name, EXTENSIONS))
        for name in class_names(root / part)
    }


def list_splits(root: Path) -> dict[str, Listing]:
    """The images of each split's folder, the training split first; of a folder without splits all, as WHOLE."""
    folders = find_splits(root).values()
    return {name: list_images(root, name) for name in folders} if folders else {WHOLE: list_images(root)}


def find_problems(root: Path, folders: dict[str, Listing]) -> list[str]:
    """What is wrong with the names and counts of the files of `list_splits`."""
    train, problems = next(iter(folders.values())), []
    for name, listing in folders.items():
        problems += check_classes(root, listing, least=2 if name == WHOLE else 1)
        problems += check_same_classes(root, train, listing, name)
    if len(train) == 1:
        problems.append(only_one(root, train))
    return list(dict.fromkeys(problems))


def check_classes(root: Path, listed: Listing, least: int = 1) -> Iterator[str]:
    """One line for each class folder with an unusable name, or with fewer than `least` images."""
    for name, paths in listed.items():
        if name.encode(errors="ignore").decode() != name:
            yield f"data.root={root}: the name of class folder {os.fsencode(name)!r} is not UTF-8; rename it"
        elif not paths:
            yield f"data.root={root}: class '{name}' has no images; add some ({KINDS}) or remove its folder"
        elif len(paths) < least:
            yield f"data.root={root}: class '{name}' has a single image; add another, one of them is held out"


def check_same_classes(root: Path, train: Listing, test: Listing, held_out: str) -> Iterator[str]:
    for here, there, without in ((train, test, held_out), (test, train, TRAIN)):
        for name in here:
            if name not in there:
                yield f"data.root={root}: class '{name}' is not in {without}/; both need the same class folders"


def only_one(root: Path, listed: Listing) -> str:
    (name,) = listed
    held_out = (*VALIDATION, TEST)
    if name in (TRAIN, *held_out):
        other = " or ".join(f"{n}/" for n in held_out) if name == TRAIN else f"{TRAIN}/"
        return f"data.root={root}: only {name}/; add {other} beside it, or give data.root={root / name}"
    return f"data.root={root}: only one class, '{name}'; give two or more, each a folder of images"


def to_names(paths: Sequence[str]) -> np.ndarray:
    """str (N,) of paths; bytes that are not UTF-8 are shown as escapes."""
    return np.array([printable(path) for path in paths])


@dataclass(frozen=True)
class FileImages:
    """Decodes files by index: int64 (B,) -> uint8 (B, 3, H, W)."""

    root: str
    paths: tuple[str, ...]
    size: tuple[int, int]
    bits: int = 16  # of white, in files of more than 8 bits of grey

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        from vitlab.data.images import decode  # Pillow, which a warm cache does not need

        images = np.empty((len(indices), 3, *self.size), dtype=np.uint8)
        problems = []
        for row, index in enumerate(indices):
            path = os.path.join(self.root, self.paths[index])
            try:
                images[row] = decode.read(path, self.size, 3, self.bits)
            except Exception as error:  # Pillow's readers raise a dozen types for broken files
                problems.append(f"data.root={self.root}: cannot read {self.paths[index]}: {explain(path, error)}")
        raise_all(problems)
        return images


def explain(path: str, error: Exception) -> str:
    if os.path.exists(path) and not os.path.getsize(path):
        return "the file is empty; replace or delete it"
    from vitlab.data.images import decode

    text = decode.explain(error)
    return text if "; " in text else f"{text}; replace or delete it"
