"""From the columns of a table, or of a Hugging Face data set, to texts with labels, numbers or tags."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.config import UserError, choices_text
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.split import choose_by_hash
from vitlab.data.text.types import Corpus, Examples

VERSION = 4  # of the reading, also of the modules that read such files
LARGEST = 1e30  # of targets, which are kept in float32
TARGETS = ("class", "number", "tags")
SHOWN = "text"  # the column that `data.text` means when it is not given

Record = tuple[tuple, Any]  # the parts of a row, and what its label says


@dataclass(frozen=True)
class Wanted:
    """What is read of a table: the names of columns, and how that of the labels is meant."""

    text: tuple[str, ...]
    label: str | None
    target: str
    test_share: float  # held out where there is no other table for it
    skip: frozenset[str] = frozenset()  # labels whose rows are left out

    @classmethod
    def of(cls, config: TextDataConfig) -> "Wanted":
        """From the keys `text` (one or several), `label`, `target`, `test_share` and `skip` of a configuration."""
        several = isinstance(config.text, list)
        text = config.text if several else [SHOWN if config.text is None else config.text]
        label = None if config.label is None else str(config.label)
        return cls(tuple(map(str, text)), label, config.target, config.test_share, frozenset(map(str, config.skip)))


@dataclass(frozen=True)
class Table:
    """Columns of equal length, by name.

    source: the beginning of a message, such as `data.path=x.csv`.
    numbers: of the rows, for messages.
    classes: names of the numbers in the column of labels, where they have any.
    """

    source: str
    columns: Mapping[str, Sequence[Any]]
    numbers: Sequence[int]
    classes: Sequence[str] = ()


def fingerprint(config: TextDataConfig) -> list:
    """This reading, and the files `path` and `test_path` as they are."""
    paths = [Path(path).expanduser() for path in (config.path, config.test_path) if path]
    return [VERSION, *(stat_files(path) for path in paths if path.is_file())]


def make_corpus(wanted: Wanted, train: Table, test: Table | None) -> Corpus:
    """The texts of the columns `text`, with what the column `label` holds, read as `target` says.

    Without a `test` table a share of the rows is held out, of each class where there are classes; rows of the same
    texts stay together. Raises UserError.
    """
    problems = [line for table in (train, test) if table for line in check_columns(wanted, table)]
    if problems:
        raise UserError(problems)
    rows = read_records(wanted, train)
    rows, held = (rows, read_records(wanted, test)) if test else hold_out(wanted, rows)
    classes = () if wanted.label is None or wanted.target == "number" else train.classes or collect_names(wanted, rows)
    unseen = sorted(set(collect_names(wanted, held)) - set(classes)) if classes else ()
    if unseen:
        problem = f"{(test or train).source}: the held-out label '{unseen[0]}' is not among the training labels"
        raise UserError(f"{problem}; {choices_text('', classes)}")
    choices = len(rows[0][0]) - 1 if rows else 0
    if wanted.target == "class" and classes and choices > 1 and len(classes) != choices:
        problem = f"{len(classes)} different values for {choices} choices"
        raise UserError(f"data.label={wanted.label}: {problem}; it must name the right choice")
    return Corpus(make_examples(wanted, rows, classes), make_examples(wanted, held, classes), tuple(classes))


def hold_out(wanted: Wanted, rows: list[Record]) -> tuple[list[Record], list[Record]]:
    """(train, held out): of each class the share of rows with the smallest hash of their texts."""
    groups: dict[Any, dict[str, None]] = {}
    placed: set[str] = set()
    for texts, label in rows:
        if (name := repr(texts)) not in placed:  # the same texts with two labels are of the first
            placed.add(name)
            groups.setdefault(label if wanted.target == "class" else None, {})[name] = None
    chosen = {name for group in groups.values() for name in choose_by_hash(list(group), wanted.test_share)}
    return [row for row in rows if repr(row[0]) not in chosen], [row for row in rows if repr(row[0]) in chosen]


def collect_names(wanted: Wanted, rows: list[Record]) -> list[str]:
    """The different names among the labels: whole numbers by their value, else by the alphabet."""
    names = {name for _, label in rows for name in (label if wanted.target == "tags" else [label])}
    whole = all(name.isascii() and name.removeprefix("-").isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name) if whole else 0, name))


def make_examples(wanted: Wanted, rows: list[Record], classes: Sequence[str]) -> Examples:
    parts = tuple(map(list, zip(*(texts for texts, _ in rows), strict=True)))
    labels = [label for _, label in rows]
    number = {name: index for index, name in enumerate(classes)}
    if wanted.label is None:
        return Examples(parts)
    if wanted.target == "number":
        return Examples(parts, targets=labels)
    if wanted.target == "tags":
        return Examples(parts, tags=[[number[tag] for tag in tags] for tags in labels])
    return Examples(parts, labels=[number[label] for label in labels])


def check_columns(wanted: Wanted, table: Table) -> Iterator[str]:
    """Columns that the table does not have, and options that do not fit each other."""
    if not wanted.text:
        yield "data.text=[]: give at least one column"
    for key, names in (("text", wanted.text), ("label", [wanted.label])):
        for name in names:
            if name is not None and name not in table.columns:
                yield f"data.{key}={name}: {table.source} has no column '{name}'; {choices_text(name, table.columns)}"
    if wanted.target not in TARGETS:
        yield f"data.target={wanted.target}: unknown; {choices_text(wanted.target, TARGETS)}"
    elif wanted.target != "class" and wanted.label is None:
        yield f"data.target={wanted.target}: give data.label=COLUMN"
    if wanted.target == "tags" and len(wanted.text) != 1:
        yield f"data.text={list(wanted.text)}: tags are of the words of one column"


def read_records(wanted: Wanted, table: Table) -> list[Record]:
    """The texts and the label of each row whose label is not one of `skip`.

    A cell with a list of texts is several parts; with tags the one part is the words. The label is a class's name, a
    number, or the names of tags; None without a column of labels.
    """
    columns = [table.columns[name] for name in wanted.text]
    labels = None if wanted.label is None else table.columns[wanted.label]
    read = {"class": read_class, "number": read_number, "tags": read_tags}[wanted.target]
    records: list[Record] = []
    for row, number in enumerate(table.numbers):
        if labels is not None and wanted.skip and read_name(labels[row], table) in wanted.skip:
            continue
        cells = [column[row] for column in columns]
        texts = (tuple(map(str, split_words(cells[0]))),) if wanted.target == "tags" else tuple(list_texts(cells))
        try:
            if records and len(texts) != len(records[0][0]):
                raise ValueError(f"{len(texts)} texts, the first row has {len(records[0][0])}")
            if labels is None and len(columns) > 1 and not all(text.strip() for text in texts):
                named = zip(wanted.text, cells, strict=True)
                empty = next((name for name, cell in named if not str(cell or "").strip()), wanted.text[-1])
                raise ValueError(f"nothing in the column '{empty}'; each text needs the other")
            records.append((texts, None if labels is None else read(labels[row], cells[0], table)))
        except ValueError as error:
            raise UserError(f"{table.source}: row {number}: {error}") from None
    return records


def list_texts(cells: Sequence[Any]) -> Iterator[str]:
    for cell in cells:
        for text in cell if isinstance(cell, (list, tuple)) else [cell]:
            yield "" if text is None else str(text)


def read_class(cell: Any, text: Any, table: Table) -> str:
    name = read_name(cell, table)
    if not name:
        raise ValueError("no label; add it, or skip such rows by data.skip=['']")
    return name


def read_number(cell: Any, text: Any, table: Table) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"'{'' if cell is None else cell}' is not a number")
    if abs(number) > LARGEST:
        raise ValueError(f"{cell} is larger than {LARGEST:g}; give such numbers in another unit")
    return number


def read_tags(cell: Any, text: Any, table: Table) -> list[str]:
    tags = [read_name(tag, table) for tag in split_words(cell)]
    if len(tags) != len(split_words(text)):
        raise ValueError(f"{len(split_words(text))} words and {len(tags)} tags; give one for each word")
    if not all(tags):
        raise ValueError("an empty tag")
    return tags


def read_name(cell: Any, table: Table) -> str:
    """A label's name; a number below 0 stands for a missing one where numbers have names, as in Hugging Face's sets."""
    if table.classes and isinstance(cell, int):
        return table.classes[cell] if 0 <= cell < len(table.classes) else ""
    return "" if cell is None else str(cell).strip()


def split_words(cell: Any) -> list[Any]:
    """The words of a cell, given one by one or with white space between them."""
    return list(cell) if isinstance(cell, (list, tuple)) else str("" if cell is None else cell).split()
