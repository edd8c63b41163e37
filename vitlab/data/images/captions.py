"""A folder of pictures and a table of their captions, one or several for each: CSV, or TSV (Flickr8k's captions.txt).

Which pictures are held out is chosen by their names and the seed: adding some later moves few of the others.
"""

import csv
import os
from collections.abc import Container, Iterator
from pathlib import Path

import numpy as np

from vitlab.config import UserError, choices_text, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.images.imagefolder import EXTENSIONS, FileImages
from vitlab.data.split import choose_by_hash
from vitlab.data.text.table import parse_rows
from vitlab.files import read_utf8

VERSION = 2  # of the reading
SHOWN = 5  # rows named in an error

Captions = dict[str, tuple[str, ...]]  # of each picture, by its path below the root


def fingerprint(config: ImageDataConfig) -> list:
    return [VERSION, stat_files(Path(config.path).expanduser()), stat_files(Path(config.root).expanduser(), EXTENSIONS)]


def contents(config: ImageDataConfig) -> str:
    """The names and the sizes of the pictures; their captions are in the targets."""
    root = Path(config.root).expanduser()
    return "\n".join(f"{os.path.getsize(root / name)} {name}" for name in read_captions(config))


def load(config: ImageDataConfig) -> ImageData:
    """The pictures of the table, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault."""
    root, size = Path(config.root).expanduser(), extent(config.image_size)
    splits = {
        part: Split(np.zeros(len(names), dtype=np.int64), FileImages(str(root), tuple(names), size))
        for part, names in split_names(config, read_captions(config)).items()
    }
    return ImageData(config.name, (), size, 3, **splits)


def captions(config: ImageDataConfig) -> dict[str, list[tuple[str, ...]]]:
    """The captions of each picture of each split."""
    by_name = read_captions(config)
    return {part: [by_name[name] for name in names] for part, names in split_names(config, by_name).items()}


def split_names(config: ImageDataConfig, found: Captions) -> dict[str, list[str]]:
    """The pictures of each split: `test_share` for the test, as many for validation, the rest for training."""
    test = choose_by_hash(list(found), config.test_share, config.seed)
    rest = [name for name in found if name not in test]
    validation = choose_by_hash(rest, min(1.0, len(test) / max(1, len(rest))), config.seed)
    splits = {"train": set(rest) - validation, "validation": validation, "test": test}
    if not all(splits.values()):
        raise UserError(f"data.path={config.path}: captions of {len(found)} pictures; give at least 3")
    return {part: sorted(names) for part, names in splits.items()}


def read_captions(config: ImageDataConfig) -> Captions:
    """The captions of each picture of the table. Raises UserError for a missing column, picture or caption."""
    root, path = Path(config.root).expanduser(), Path(config.path).expanduser()
    source = f"data.path={path}"
    if not root.is_dir():
        raise UserError(f"data.root={root}: {'not a folder' if root.exists() else 'no such folder'}")
    text = read_utf8(path, "data.path")
    try:
        rows = list(parse_rows(text, "\t" if "\t" in text.partition("\n")[0] else ",", quoting=True))
    except csv.Error as error:
        raise UserError(f"{source}: {error}; quote a caption that has a comma or a quote") from None
    names = [name.strip() for name in rows[0][1]] if rows else []
    problems = [
        f"data.{key}={name}: {source} has no column '{name}'; {choices_text(name, names)}"
        for key, name in (("image_column", config.image_column), ("caption_column", config.caption_column))
        if name not in names
    ]
    if not problems and len(rows) < 2:
        problems = [f"{source}: no rows below the names of the columns"]
    if problems:
        raise UserError(problems)
    places = [names.index(vars(config)[key]) for key in ("image_column", "caption_column")]
    by_name: dict[str, list[str]] = {}
    for number, row in rows[1:]:
        image, caption = (" ".join(row[place].split()) if place < len(row) else "" for place in places)
        problems += (f"{source}: row {number}: {problem}" for problem in check_row(root, image, caption, by_name))
        by_name.setdefault(image, []).append(caption)
    if problems:
        more = [f"{source}: ... and {len(problems) - SHOWN} more such rows"] if len(problems) > SHOWN else []
        raise UserError(problems[:SHOWN] + more)
    return {image: tuple(captions) for image, captions in by_name.items()}


def check_row(root: Path, image: str, caption: str, known: Container[str]) -> Iterator[str]:
    if not image:
        yield "no picture; write the name of its file"
    elif image not in known and not (root / image).is_file():
        yield f"no picture '{image}' in data.root={root}; correct the name, or delete the row"
    elif image not in known and not (root / image).resolve().is_relative_to(root.resolve()):
        yield f"the picture '{image}' lies outside data.root={root}; copy it there and name that, or delete the row"
    if not caption:
        yield f"no caption for '{image}'; write one, or delete the row"
