"""Errors of runs read from a CSV file, by group. Imports no numpy: a mistake in the file is told at once."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vitlab.config import UserError, choices_text
from vitlab.formatting import plural

FEWEST = 3  # sizes of a fit
THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")
Name = tuple[str, ...]  # the values of the columns of a group


@dataclass
class Points:
    """The runs of one group. `chance` is the error of guessing, where the file has it."""

    sizes: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    chance: float | None = None

    def add(self, size: float, error: float, seed: int) -> None:
        self.sizes.append(size)
        self.errors.append(error)
        self.seeds.append(seed)


class Problems:
    """What is wrong with a table: a message for each kind of problem, with all of its lines."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # of the first line of each kind
        self.lines: dict[str, list[int]] = {}

    def add(self, kind: str, text: str, line: int) -> None:
        self.texts.setdefault(kind, text)
        self.lines.setdefault(kind, []).append(line)

    def describe(self, path: Path) -> list[str]:
        return [
            f"{path}, {plural(len(lines), 'line')} ({', '.join(map(str, lines[:5]))}{' ...' if lines[5:] else ''}): "
            f"{self.texts[kind]}"
            for kind, lines in self.lines.items()
        ]


def read_points(path: Path, x: str, y: str, group: Sequence[str]) -> dict[Name, Points]:
    """The points of each group, in the order of the file; rows without a y are left out. Raises UserError."""
    columns, rows = read_rows(path)
    if len(columns) == 1 and (mark := next((mark for mark in (";", "\t") if mark in columns[0]), None)):
        raise UserError(
            f"{path}: its columns are separated by {mark!r}; separate them by commas, and write 0.5 for 0,5"
        )
    missing = [
        f"--{option} {name}: {path} has no such column; {choices_text(name, columns)}"
        for option, names in (("x", [x]), ("y", [y]), ("group", group))
        for name in names
        if name not in columns
    ]
    used = dict.fromkeys([x, y, *group, "seed", "test_items", "chance"])
    missing += [
        f"{path}: has {columns.count(name)} columns '{name}'; keep one" for name in used if columns.count(name) > 1
    ]
    if missing:
        raise UserError(missing)
    problems = Problems()
    groups: dict[Name, Points] = {}
    earlier: Counter[tuple[Name, float]] = Counter()  # runs of a group and a size above the line
    for line, row in rows:
        if not row[y].strip():
            continue
        size, error = as_number(row[x]), as_number(row[y])
        for key, value in ((x, size), (y, error)):
            if value is None or value < 0:  # one message for a whole column
                problems.add(f"{key} is not a number", f"{key}={row[key]!r} is not a positive number", line)
        if size is None or error is None or min(size, error) < 0:
            continue
        if error == 0 and (items := as_number(row.get("test_items", ""))) is not None and items >= 1:
            error = 0.5 / items  # none of so many test items is wrong: fewer than one in twice as many
        if error == 0:
            advice = "leave the row out, or test on more examples"
            problems.add(f"{y} is 0", f"{y}=0: has no logarithm; {advice}", line)
        if size == 0:
            problems.add(f"{x} is 0", f"{x}=0: has no logarithm; leave the row out", line)
        name = tuple(row[key] for key in group)
        points = groups.setdefault(name, Points())
        points.add(size, error, read_seed(row, earlier[name, size]))
        earlier[name, size] += 1
        if y == "error" and (guessed := as_number(row.get("chance", ""))) is not None:
            if not 0 <= guessed <= 1:
                text = f"chance={row['chance']}: give the share that guessing gets right, from 0 to 1"
                problems.add(text, text, line)
            points.chance = 1 - guessed
    if not groups and not problems.lines:
        others = list_numeric(rows)
        near = f"; {choices_text('', others)}" if others else ""
        raise UserError(f"--y {y}: {path} has no value in this column{near}")
    texts = problems.describe(path) or list(find_short(path, groups))
    if texts:
        raise UserError(texts)
    return groups


def read_rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The names of the columns, and (line, cells by column) of each row that is not empty. Raises UserError."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            columns = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = columns
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not a CSV file ({error})"
        raise UserError(f"{path}: {reason}; give a CSV file with the names of its columns in the first line") from None
    if not rows:
        raise UserError(f"{path}: has no rows{' below the names of its columns' if columns else ''}")
    return columns, rows


def as_number(text: str) -> float | None:
    """The finite number that a cell holds, or None."""
    try:
        value = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def read_seed(row: dict[str, str], earlier: int) -> int:
    """The run's seed; without a column `seed` the number of `earlier` runs of its size."""
    text = row.get("seed", "").strip()
    return int(text) if text.isascii() and text.isdigit() else earlier


def find_short(path: Path, found: dict[Name, Points]) -> Iterator[str]:
    for name, points in found.items():
        if (sizes := len(set(points.sizes))) < FEWEST:
            label = ", ".join(name)
            yield f"{path}, {label}: {plural(sizes, 'different size')}; a law needs {FEWEST} or more"


def list_numeric(rows: list[tuple[int, dict[str, str]]]) -> list[str]:
    """The columns that hold numbers in some row."""
    return [key for key in rows[0][1] if any(as_number(row[key]) is not None for _, row in rows)]
