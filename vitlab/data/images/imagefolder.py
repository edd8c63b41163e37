"""A folder of images, one subfolder for each class; with train/, val/ and test/ above them, by any usual name, a split.

A single held-out folder beside train/ is the test data. Without a split a share of each class is held out, chosen
by the seed and each file's own name: adding files later moves few files.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unicodedata import normalize

import numpy as np

from vitlab.config import extent, printable, raise_all
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.cache import SYSTEM, hash_bytes, is_folder, stat_files, walk_files, warn_of_broken_links
from vitlab.data.split import hold_out, refuse_share
from vitlab.formatting import cut_names, plural

VERSION = 5  # of the decoding, and of which folders are splits and classes
EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
KINDS = " ".join(extension.removeprefix(".") for extension in EXTENSIONS)
SPLITS = ("train", "validation", "test")
SPLIT = re.compile(  # names of splits, in any case; a fold of cross-validation is of no use, but no class either
    r"[\W\d_]*(?:(?P<train>trn|train(?:ing|val)?)|(?P<validation>val|valid(?:at(?:e|ion))?|dev(?:elopment)?)"
    r"|(?P<test>tst|test(?:ing)?|h[eo]ld[\W_]*out)|(?P<eval>eval(?:uat(?:e|ion))?)|(?P<fold>fold))"
    r"(?:data|images?|imgs?|pictures|photos|set|split|[\W\d_])*",
    re.IGNORECASE,
)
WHOLE = "all"  # the name of the one split of a folder that has none
LAYOUT = "put the images of each class into a folder of its own"

Listing = dict[str, list[str]]  # class -> its files, as paths below the root


SCANNED: dict[str, list[tuple[str, int, int]]] = {}  # by root: what was listed for a key, for the hash after it


def fingerprint(config: ImageDataConfig) -> list:
    SCANNED[config.root] = scan_files(config)
    return [VERSION, SCANNED[config.root]]


def scan_files(config: ImageDataConfig) -> list[tuple[str, int, int]]:
    """List (path below the root, bytes, modification time in ns) of all images; warn of broken links."""
    root, broken = Path(config.root).expanduser(), []
    files = stat_files(root, EXTENSIONS, broken)
    warn_of_broken_links(f"data.root={config.root}", root, broken)
    return files


def contents(config: ImageDataConfig) -> str:
    """List all images' names, the validation folder and a hash of all bytes: a copy of the folder has the same."""
    root = Path(config.root).expanduser()
    splits = [f"{part} {name}" for part, name in find_splits(root).items() if part == "validation"]
    listed = SCANNED.pop(config.root, None) or stat_files(root, EXTENSIONS)
    names, paths = zip(*((normalize("NFC", path), os.path.join(root, path)) for path, *_ in listed), strict=True)
    return "\n".join([*names, *splits, hash_bytes(config.name, paths)])


def load(config: ImageDataConfig) -> ImageData:
    """Load RGB images of `config.root`, resized to cover `image_size`, cropped. Raises UserError, a line a fault."""
    root = Path(config.root).expanduser()
    raise_all(check_root(root))
    if config.cache == "never":
        scan_files(config)  # for its warning: nothing asks for the fingerprint
    folders = list_splits(root)
    raise_all(find_problems(root, folders))
    if find_splits(root):
        refuse_share(config, f"data.root={config.root}")
    size, classes, splits = extent(config.image_size), tuple(next(iter(folders.values()))), {}
    for part, images in zip(find_splits(root) or [WHOLE], folders.values(), strict=True):
        labels = np.repeat(np.arange(len(classes)), [len(images[name]) for name in classes])
        paths = tuple(path for name in classes for path in images[name])
        splits[part] = Split(
            labels.astype(np.int64), FileImages(str(root), paths, size, config.bits), names=to_names(paths)
        )
    if WHOLE in splits:
        splits = dict(zip(("train", "test"), hold_out(splits[WHOLE], config.test_share, config.seed), strict=True))
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
    else:
        yield from check_splits(root)


def class_names(folder: Path) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if is_folder(e) and not SYSTEM.fullmatch(e.name))


def name_splits(names: Iterable[str]) -> dict[str, str]:
    """Map names such as `Training`, `test_set`, `val2017` to their splits; leave out other names.

    An `eval` is the test, or beside a test the validation. A single held-out split is the test.
    """
    parts = {name: found.lastgroup for name in names if (found := SPLIT.fullmatch(name))}
    others = {"eval": "validation" if "test" in parts.values() else "test"}
    others |= {} if {"test", "eval"} & {*parts.values()} else {"validation": "test"}
    return {name: others.get(part, part) for name, part in parts.items()}


def check_splits(root: Path) -> Iterator[str]:
    """Yield problems of folders named like splits that are none. A lone one may be a class: trains, beside buses."""
    inside = {name: class_names(root / name) for name in class_names(root)}
    words = {name: name_splits(re.split(r"[\W\d_]+|(?<=[a-z])(?=[A-Z])", name)) for name in inside}
    parts = name_splits(inside) or {name: min(found.values(), default="") for name, found in words.items()}
    found, deep = {*parts.values()}, [name for name in parts if inside[name]]
    fits = name_splits(deep) == parts and len(found) == len(parts) and {"train", "test"} <= found <= {*SPLITS}
    if "" not in found and (deep or len(found) > 1) and not fits:
        names = ", ".join(f"{name}/" for name in parts)
        advice = "give one train/ and one val/, one test/ or both, each with class folders; rename what is a class"
        yield f"data.root={root}: named as splits, which do not fit: {names}; {advice}; or give one as data.root"
    for name, below in inside.items():
        if len({*name_splits(below).values()}) > 1:
            line = f"data.root={root}: {name}/ holds {' and '.join(f'{split}/' for split in name_splits(below))}"
            yield f"{line}; give data.root={root / name}, or put the splits above the classes"


def find_splits(root: Path) -> dict[str, str]:
    """Find the folder of each split; empty unless there are a train/ and a held-out folder with class folders."""
    named = name_splits(name for name in name_splits(class_names(root)) if class_names(root / name))
    parts = SPLITS if {"train", "test"} <= {*named.values()} else ()
    return {part: name for part in parts for name in named if named[name] == part}


def list_images(root: Path, part: str = "") -> Listing:
    """List the images of each class folder, however deep, sorted; a name in two Unicode forms (Mac, Linux) is one."""
    start, listed = len(str(root / "_")) - 1, {}  # 0 in the current folder
    for name in sorted(class_names(root / part), key=partial(normalize, "NFC")):
        files = listed.setdefault(normalize("NFC", name), [])
        files += [entry.path[start:] for entry in walk_files(root / part / name, EXTENSIONS)]
    return {name: sorted(files) for name, files in listed.items()}


def list_splits(root: Path) -> dict[str, Listing]:
    """List the images of each split's folder, the training split first; a folder without splits has all, as WHOLE."""
    folders = find_splits(root).values()
    return {name: list_images(root, name) for name in folders} if folders else {WHOLE: list_images(root)}


def find_problems(root: Path, folders: dict[str, Listing]) -> list[str]:
    """List problems of the names, counts and links of the files of `list_splits`."""
    source, problems = f"data.root={root}:", []
    for folder, listing in folders.items():
        for name, paths in listing.items():
            if name.encode(errors="ignore").decode() != name:
                problems.append(f"{source} the name of class folder {os.fsencode(name)!r} is not UTF-8; rename it")
            elif not paths:
                problems.append(f"{source} class '{name}' has no images; add some ({KINDS}) or remove its folder")
            elif folder == WHOLE and len(paths) == 1:
                problems.append(f"{source} class '{name}' has a single image; add another, one of them is held out")
    classes = dict.fromkeys(name for listing in folders.values() for name in listing)
    problems += [
        f"{source} class '{name}' is not in {folder}/; all splits need the same class folders"
        for folder, listing in reversed(folders.items())
        for name in classes
        if name not in listing
    ]
    if len(classes) == 1:
        problems.append(f"{source} only one class, '{min(classes)}'; give two or more, each a folder of images")
    real, homes, twice = cache(os.path.realpath), {}, []  # by links: in another class, or on another side of a split
    for path in (path for listing in folders.values() for paths in listing.values() for path in paths):
        folder, name = os.path.split(full := os.path.join(root, path))
        home = os.path.realpath(full) if os.path.islink(full) else f"{real(folder)}/{name}"
        if homes.setdefault(home, path) != path:
            twice.append(f"{path} is {homes[home]}")
    if twice:
        advice = "remove the links, a picture has one class and one split"
        problems.append(f"{source} {plural(len(twice), 'picture')} twice, by links: {cut_names(twice, 1)}; {advice}")
    return list(dict.fromkeys(problems))


def to_names(paths: Sequence[str]) -> np.ndarray:
    """Turn paths into str (N,); bytes that are not UTF-8 are shown as escapes."""
    return np.array([printable(path) for path in paths])


@dataclass(frozen=True)
class FileImages:
    """A reader that decodes files by index: int64 (B,) -> uint8 (B, 3, H, W)."""

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
                line = f"data.root={self.root}: cannot read {self.paths[index]}: {explain(path, error)}"
                problems.append(f"{line}, or give data.skip_unreadable=true")
        raise_all(problems)
        return images


def explain(path: str, error: Exception) -> str:
    if os.path.exists(path) and not os.path.getsize(path):
        return "the file is empty; replace or delete it"
    from vitlab.data.images import decode

    text = decode.explain(error)
    return text if "; " in text else f"{text}; replace or delete it"
