"""The documentation that every Python brings: its language reference and the docstrings of its library."""

import ast
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig

VERSION = 1  # of the reading below
SKIPPED = {  # no part of the library, or no prose: tests, applications, tables
    *("test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data", "encodings"),
    *("site-packages", "dist-packages", "__pycache__"),
}
PROSE = 60  # characters from which a paragraph is told from others by its text


@dataclass(frozen=True)
class Docstring:
    module: str  # dotted
    text: str

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


def fingerprint(config: TextDataConfig) -> list:
    """What the texts depend on: this reading, and the Python that runs."""
    return [VERSION, sys.version]


def read_docstrings(unique: bool = True) -> list[Docstring]:
    """The docstrings of the library's Python modules in the order of their sources; `unique`: each text once.

    The sources are parsed, nothing is imported. Raises UserError where this Python came without them.
    """
    docstrings = collect_docstrings()
    if not unique:
        return list(docstrings)
    first: dict[str, Docstring] = {}
    for docstring in docstrings:
        first.setdefault(docstring.text, docstring)
    return list(first.values())


@cache
def collect_docstrings() -> tuple[Docstring, ...]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    docstrings: list[Docstring] = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if SKIPPED & set(parts) or not all(part.isidentifier() for part in parts):  # config-3.11-x86_64-linux-gnu
            continue
        module = ".".join(parts).removesuffix(".__init__")
        docstrings += (Docstring(module, text) for text in parse_docstrings(path))
    if not docstrings:
        raise UserError(f"data: no sources of Python's library in {folder}; install them, or give data=textfile")
    return tuple(docstrings)


def parse_docstrings(path: Path) -> Iterator[str]:
    """The docstrings of one source file in its order: of the module, of its classes and their functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in old sources
        try:
            pending: list[ast.AST] = [ast.parse(path.read_bytes())]
        except SyntaxError:  # files that test how a syntax error is told
            return
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = (ast.get_docstring(node) or "").strip()
            if text:
                yield text.encode(errors="replace").decode()  # a literal may hold half of a surrogate pair
        pending += reversed(list(ast.iter_child_nodes(node)))


def read_topics() -> dict[str, str]:
    """The chapters of the language reference by name, as `help("for")` shows them.

    A chapter may be a section of a longer one: of such only the longer is there. Raises UserError.
    """
    try:
        from pydoc_data.topics import topics as chapters
    except ImportError:
        raise UserError("data: this Python has no pydoc_data; install its documentation topics") from None
    seen: set[str] = set()
    topics = []
    for name in sorted(chapters, key=lambda name: (-len(chapters[name]), name)):
        paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", chapters[name])]
        paragraphs = [paragraph for paragraph in paragraphs if len(paragraph) >= PROSE]
        repeated = sum(len(paragraph) for paragraph in paragraphs if paragraph in seen)
        if 2 * repeated < sum(map(len, paragraphs)):
            topics.append(name)
            seen.update(paragraphs)
    return {name: chapters[name].strip() for name in sorted(topics)}
