"""A text file, or a folder of them, as documents."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from vitlab.config import UserError, choices_text
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.cache.file_stats import stat_files, walk_files, warn_of_broken_links
from vitlab.data.split import choose_by_hash, cut_text
from vitlab.data.text.types import Corpus, Examples
from vitlab.files import read_utf8

VERSION = 1  # of the reading
UNITS = ("file", "blank_line")  # what ends a document


def fingerprint(config: TextDataConfig) -> list:
    paths = [path for path in (config.path, config.test_path) if path]
    return [VERSION, *(stat_files(Path(path).expanduser(), endings(config)) for path in paths)]


def endings(config: TextDataConfig) -> tuple[str, ...]:
    return tuple("." + str(each).lower().removeprefix(".") for each in config.extensions)


def read(config: TextDataConfig) -> Corpus:
    """The documents of `path`; those of `test_path` are held out, or else a share by a hash of each one's text.

    Of a single document the end is held out, from the start of a line. Raises UserError.
    """
    if config.split_on not in UNITS:
        raise UserError(f"data.split_on={config.split_on}: unknown; {choices_text(config.split_on, UNITS)}")
    train = list(read_documents(config, "path"))
    if config.test_path:
        return Corpus(Examples((train,)), Examples((list(read_documents(config, "test_path")),)))
    if len(set(train)) == 1:
        train, test = split_text(config, train[0])
    else:
        chosen = choose_by_hash(list(dict.fromkeys(train)), config.test_share)
        train, test = [text for text in train if text not in chosen], [text for text in train if text in chosen]
    return Corpus(Examples((train,)), Examples((test,)))


def read_documents(config: TextDataConfig, key: str) -> Iterator[str]:
    """The documents of the files that a key names, those of a folder in the order of their paths."""
    path = Path(vars(config)[key]).expanduser()
    if not os.path.exists(path):
        raise UserError(f"data.{key}={path}: no such file or folder")
    names, broken = [os.fspath(path)], []
    if path.is_dir():
        names = sorted(entry.path for entry in walk_files(path, endings(config), broken))
        warn_of_broken_links(f"data.{key}={path}", path, broken)
        if not names:
            raise UserError(
                f"data.{key}={path}: no text files ({' '.join(endings(config))}); give others by data.extensions=[...]"
            )
    texts = (read_utf8(Path(name), f"data.{key}") for name in names)
    if config.split_on == "blank_line":
        texts = (part for text in texts for part in re.split(r"\n\s*\n", text))
    documents = [text.strip("\n") for text in texts if text.strip()]
    if not documents:
        raise UserError(f"data.{key}={path}: contains no text")
    yield from documents


def split_text(config: TextDataConfig, text: str) -> tuple[list[str], list[str]]:
    """A document without its end, and the end: its last `test_share` from the next line on."""
    cut = cut_text(text, config.test_share)
    if cut is None:
        reason = "has too few lines to hold out the last of them"
        raise UserError(f"data.path={config.path}: {reason}; give data.test_path=FILE")
    return [cut[0]], [cut[1]]
