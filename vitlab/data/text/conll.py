"""Words with tags in columns, as in the shared tasks of CoNLL: a word a line, an empty line between sentences."""

from pathlib import Path

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.text import columns
from vitlab.data.text.columns import Table, Wanted
from vitlab.data.text.types import Corpus
from vitlab.files import read_utf8

DOCUMENT = "-DOCSTART-"  # a line of its own before each document of CoNLL-2003
fingerprint = columns.fingerprint


def read(config: TextDataConfig) -> Corpus:
    """The sentences of `path` with the tags of their words; those of `test_path` are held out. Raises UserError."""
    wanted = Wanted(("words",), "tags", target="tags", test_share=config.test_share)
    train = read_table(config, "path")
    return columns.make_corpus(wanted, train, read_table(config, "test_path") if config.test_path else None)


def read_table(config: TextDataConfig, key: str) -> Table:
    """The sentences of a file, by the number of their first line: columns `words` and `tags` of lists.

    Lines that begin with `#` and a space are comments, as in CoNLL-U.
    """
    path = Path(vars(config)[key]).expanduser()
    source = f"data.{key}={path}"
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    numbers = [1]
    for number, line in enumerate(read_utf8(path, f"data.{key}").split("\n"), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or cells[0] == DOCUMENT:
            if words[-1]:
                words.append([])
                tags.append([])
                numbers.append(number + 1)
        elif not line.startswith("# "):
            if not words[-1]:
                numbers[-1] = number
            for column, into in ((config.word, words), (config.tag, tags)):
                if not -len(cells) <= column < len(cells):
                    raise UserError(f"{source}: line {number} has {len(cells)} columns, not a column {column}")
                into[-1].append(cells[column])
    whole = [n for n, sentence in enumerate(words) if sentence]
    if not whole:
        raise UserError(f"{source}: no lines with words")
    columns_of_lists = {"words": [words[n] for n in whole], "tags": [tags[n] for n in whole]}
    return Table(source, columns_of_lists, [numbers[n] for n in whole])
