"""A folder of pictures and a table (CSV or TSV) of what each shows: a class, several labels, or a number.

Its columns may also say which split a picture belongs to, and which pictures stay on one side of every split because
they show the same patient, camera or film.
"""

import csv
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional

import numpy as np

from vitlab.config import UserError, choices_text, extent
from vitlab.config.schema.data import ImageDataConfig
from vitlab.config.schema.fields import MISSING, setting
from vitlab.data.base import ImageData, Split
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.images.imagefolder import EXTENSIONS, FileImages, to_names
from vitlab.data.split import choose_held_out
from vitlab.data.text.table import parse_rows
from vitlab.files import read_utf8

VERSION = 1  # of the reading
SHOWN = 5  # rows named in an error
SPLITS = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
SEPARATOR = ";"  # between the labels of a picture

Row = dict[str, str]


@dataclass(frozen=True)
class Config(ImageDataConfig):
    kind: str = setting("imagetable", fixed=True)
    root: str = setting(MISSING, path=True)
    path: str = setting(MISSING, path=True)
    file: str = "file"
    label: str = "label"
    target: Literal["class", "labels", "number"] = "class"
    group: Optional[str] = None
    split: Optional[str] = None
    test_share: float = setting(0.2, above=0, below=1)
    seed: int = setting(0, least=0)


def fingerprint(config: Config) -> list:
    return [VERSION, stat_files(Path(config.path).expanduser()), stat_files(Path(config.root).expanduser(), EXTENSIONS)]


def contents(config: Config) -> str:
    """The names and the sizes of the pictures, and their groups; what they show is in labels and targets."""
    root = Path(config.root).expanduser()
    rows = read_rows(config)
    return "\n".join(
        f"{os.path.getsize(root / row[config.file])} {row[config.file]} {row.get(config.group or '')}" for row in rows
    )


def load(config: Config) -> ImageData:
    """The pictures of the table, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault."""
    rows, size = read_rows(config), extent(config.image_size)
    classes, labels, targets = read_targets(config, rows)
    together = None
    if config.group:
        numbers: dict[str, int] = {}
        together = np.array([numbers.setdefault(row[config.group], len(numbers)) for row in rows])
    root, paths = str(Path(config.root).expanduser()), [row[config.file] for row in rows]
    splits = {}
    for part, places in divide(config, rows, labels, together).items():
        splits[part] = Split(
            labels[places],
            FileImages(root, tuple(paths[place] for place in places), size),
            names=to_names([paths[place] for place in places]),
            targets=None if targets is None else targets[places],
            together=None if together is None else together[places],
        )
    return ImageData(config.name, classes, size, 3, **splits)


def read_rows(config: Config) -> list[Row]:
    """The table's rows, by the names of its columns. Raises UserError for a missing column, file or cell."""
    root, path = Path(config.root).expanduser(), Path(config.path).expanduser()
    source = f"data.path={path}"
    if not root.is_dir():
        raise UserError(f"data.root={root}: {'not a folder' if root.exists() else 'no such folder'}")
    text = read_utf8(path, "data.path")
    try:
        header, *numbered = parse_rows(text, "\t" if "\t" in text.partition("\n")[0] else ",", quoting=True)
    except (csv.Error, ValueError) as error:
        raise UserError(f"{source}: {error if isinstance(error, csv.Error) else 'it is empty'}") from None
    columns = [name.strip() for name in header[1]]
    wanted = {"file": config.file, "label": config.label, "group": config.group, "split": config.split}
    problems = [
        f"data.{key}={name}: {source} has no column '{name}'; {choices_text(name, columns)}"
        for key, name in wanted.items()
        if name is not None and name not in columns
    ]
    if problems or not numbered:
        raise UserError(problems or f"{source}: no rows below the names of the columns")
    rows, lines = [], {}
    for number, cells in numbered:
        row = dict(zip(columns, [cell.strip() for cell in cells] + [""] * len(columns), strict=False))
        problems += (f"{source}: row {number}: {problem}" for problem in check_row(config, root, row, lines))
        lines.setdefault(row[config.file], number)
        rows.append(row)
    if problems:
        more = [f"{source}: ... and {len(problems) - SHOWN} more such rows"] if len(problems) > SHOWN else []
        raise UserError(problems[:SHOWN] + more)
    return rows


def check_row(config: Config, root: Path, row: Row, lines: dict[str, int]) -> Iterator[str]:
    file, label = row[config.file], row[config.label]
    if not file:
        yield "no picture; write the name of its file"
    elif file in lines:
        yield f"'{file}' is in row {lines[file]} too; give each picture one row"
    elif not (root / file).is_file():
        yield f"no picture '{file}' in data.root={root}; correct the name, or delete the row"
    elif not (root / file).resolve().is_relative_to(root.resolve()):
        yield f"'{file}' lies outside data.root={root}; copy it there and name that, or delete the row"
    if config.target == "class" and not label:
        yield f"no label of '{file}'; write one, or delete the row"
    elif config.target == "number" and not is_number(label):
        yield f"{config.label}={label}: is not a number; correct it, or delete the row"
    if config.split and row[config.split].lower() not in SPLITS:
        yield f"{config.split}={row[config.split]}: {choices_text(row[config.split], SPLITS)}"


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def read_targets(config: Config, rows: Sequence[Row]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray | None]:
    """(classes, labels int64 (N,), targets): targets are 0 and 1 float32 (N, C) of several labels, or numbers (N,).

    The label of a picture with several is its rarest one, so that splits share out the rare ones.
    """
    if config.target == "number":
        return (), np.zeros(len(rows), dtype=np.int64), np.array([row[config.label] for row in rows], dtype=np.float32)
    several = config.target == "labels"
    listed = [
        [name.strip() for name in row[config.label].split(SEPARATOR) if name.strip()]
        if several
        else [row[config.label]]
        for row in rows
    ]
    classes = tuple(sorted({name for names in listed for name in names}))
    if len(classes) < 2:
        raise UserError(f"data.path={config.path}: only one class, '{''.join(classes)}'; give two or more")
    places = {name: place for place, name in enumerate(classes)}
    if not several:
        return classes, np.array([places[names[0]] for names in listed]), None
    targets = np.zeros((len(rows), len(classes)), dtype=np.float32)
    for target, names in zip(targets, listed, strict=True):
        target[[places[name] for name in names]] = 1
    rarity = np.where(targets > 0, targets.sum(axis=0), np.inf)
    return classes, np.where(targets.any(axis=1), rarity.argmin(axis=1), len(classes)), targets


def divide(
    config: Config, rows: Sequence[Row], labels: np.ndarray, together: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The rows of each split: as the column `split` says, else a share of each class for the test. Raises UserError."""
    if config.split is None:
        held = choose_held_out(labels, round(config.test_share * len(rows)), together, config.seed, every_class=True)
        splits = {"train": np.flatnonzero(~held), "test": np.flatnonzero(held)}
    else:
        parts = np.array([SPLITS[row[config.split].lower()] for row in rows])
        if "test" not in parts:
            parts[parts == "validation"] = "test"
        splits = {part: np.flatnonzero(parts == part) for part in dict.fromkeys(SPLITS.values()) if part in parts}
    if not {"train", "test"} <= splits.keys() or not all(map(len, splits.values())):
        why = f"data.split={config.split}" if config.split else f"data.test_share={config.test_share}"
        raise UserError(f"{why}: of {len(rows)} pictures none is left for training or for the test; give more")
    if together is not None and config.split is not None:
        refuse_shared_groups(config, rows, splits)
    return splits


def refuse_shared_groups(config: Config, rows: Sequence[Row], splits: dict[str, np.ndarray]) -> None:
    """Raise UserError where a group is in two splits."""
    home: dict[str, str] = {}
    problems: dict[str, Any] = {}
    for part, places in splits.items():
        for place in places:
            name = rows[place][config.group]
            if home.setdefault(name, part) != part:
                problems[f"data.group={config.group}: '{name}' is in {home[name]} and in {part}; move it to one"] = None
    if problems:
        raise UserError([*problems][:SHOWN])
