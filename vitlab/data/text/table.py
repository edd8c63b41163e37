"""A file of rows and columns: CSV, TSV, the files of GLUE."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.text import columns
from vitlab.data.text.columns import Table, Wanted
from vitlab.data.text.types import Corpus
from vitlab.files import read_utf8

LARGEST_FIELD = 2**31 - 1  # characters; the csv module's own limit is 131,072
fingerprint = columns.fingerprint


def read(config: TextDataConfig) -> Corpus:
    """The rows of `path` as `vitlab.data.text.columns` reads them; `test_path` is held out. Raises UserError."""
    if len(config.delimiter) != 1 or config.delimiter in '\r\n"':
        raise UserError(f"data.delimiter={config.delimiter!r}: give a single character, for example ',' or '\\t'")
    train = read_table(config, "path")
    return columns.make_corpus(Wanted.of(config), train, read_table(config, "test_path") if config.test_path else None)


def read_table(config: TextDataConfig, key: str) -> Table:
    """The columns of a file: by the names in its first row, else numbered from 0. A cell that a row lacks is empty."""
    path = Path(vars(config)[key]).expanduser()
    source = f"data.{key}={path}"
    try:
        numbered = list(parse_rows(read_utf8(path, f"data.{key}"), config.delimiter, config.quoting))
    except csv.Error as error:
        raise UserError(f"{source}: {error}; for a file without quotes give data.quoting=false") from None
    if len(numbered) <= config.header:
        raise UserError(f"{source}: no rows{' below the names of the columns' if numbered else ''}")
    if config.header:
        names = [name.strip() for name in numbered.pop(0)[1]]
    else:
        names = list(map(str, range(max(len(row) for _, row in numbered))))
    wanted = Wanted.of(config)
    for name in (*wanted.text, wanted.label):
        if names.count(name) > 1:
            raise UserError(f"{source}: two columns are named '{name}'; rename one of them")
    cells = {name: [row[n] if n < len(row) else "" for _, row in numbered] for n, name in enumerate(names)}
    return Table(source, cells, [number for number, _ in numbered])


def parse_rows(text: str, delimiter: str, quoting: bool) -> Iterator[tuple[int, list[str]]]:
    """(number from 1, cells) of the rows that are not empty."""
    if quoting:
        csv.field_size_limit(LARGEST_FIELD)
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    else:
        rows = (line.split(delimiter) for line in text.split("\n"))
    return ((number, row) for number, row in enumerate(rows, 1) if any(row))
