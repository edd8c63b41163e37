"""Texts without a download: Python's own documentation in three tasks, numbers in words, and facts about boxes.

Docstrings of a library module are alike, so figures on held-out docstrings hold for known modules.
"""

import ast
import re
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.base import Corpus, Examples
from vitlab.data.split import divide_texts

VERSION = 2  # of the reading below
SKIPPED = {  # no part of the library, or no prose: tests, applications, tables
    *("test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data", "encodings"),
    *("site-packages", "dist-packages", "__pycache__"),
}
PROSE = 60  # characters; shorter paragraphs do not count when chapters are compared
LEAST = 4  # least words of a docstring, of a summary and of a body
ANSWERS = ("other", "own")  # the classes of a pair: is the body another summary's, or its own
MOST_DIGITS = 6
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", *TEENS]
COLORS = ["red", "green", "blue", "white", "black", "yellow", "brown", "grey"]
THINGS = ["pens", "cups", "shells", "coins", "books", "stones", "keys", "apples", "nails", "cards", "bells", "ropes"]
BOXES = 4  # of a text
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def fingerprint(config: TextDataConfig) -> list:
    """Return the version of this reading and of the running Python, on which the texts depend."""
    return [VERSION, sys.version]


def read(config: TextDataConfig) -> Corpus:
    """Read the texts of `config.kind`; hold out a share, chosen by a hash of texts or names."""
    kinds = {"pydoc": read_pydoc, "docstrings": read_packages, "summaries": read_summaries, "numbers": read_numbers}
    kinds["facts"] = read_facts
    return read_pairs(config) if config.kind == "docstrings" and config.pairs else kinds[config.kind](config)


def read_pydoc(config: TextDataConfig) -> Corpus:
    """Read one document for each chapter of the language reference, and one for each library module's docstrings."""
    documents = {f"topic {name}": text for name, text in read_topics().items()}
    modules: dict[str, list[str]] = {}
    for text, module in unique_docstrings().items():
        modules.setdefault(f"module {module}", []).append(text)
    documents |= {name: "\n\n".join(texts) for name, texts in modules.items()}
    splits = divide_texts(list(documents), config.test_share)
    return Corpus(*(Examples(([documents[name] for name in names],)) for names in splits))


def read_packages(config: TextDataConfig) -> Corpus:
    """Read docstrings labelled by package, from the `classes` top-level modules and packages with the most docstrings.

    Docstrings stay as they are, even if they name their package. A text found in several packages is left out.
    """
    packages: dict[str, set[str]] = {}
    for module, text in read_docstrings():
        if len(text.split()) >= LEAST:
            packages.setdefault(text, set()).add(module.partition(".")[0])
    single = {text: next(iter(names)) for text, names in packages.items() if len(names) == 1}
    sizes, count = Counter(single.values()), config.classes
    if not 2 <= count <= len(sizes):
        raise UserError(f"data.classes={count}: give from 2 to {len(sizes)}, the packages that have docstrings")
    classes = tuple(sorted(sorted(sizes, key=lambda name: (-sizes[name], name))[:count]))
    texts = [text for name in classes for text, package in single.items() if package == name]
    splits = divide_texts(texts, config.test_share, labels=[classes.index(single[text]) for text in texts])
    return Corpus(*(Examples((of,), labels=[classes.index(single[text]) for text in of]) for of in splits), classes)


def read_pairs(config: TextDataConfig) -> Corpus:
    """Read pairs of a one-line summary and a body, half of them mismatched; the label says whether the two match.

    Each summary and each body comes once, in the split of its docstring, so neither tells the label by itself.
    """
    splits = []
    for body_of in split_summaries(config.test_share):
        _, moved = divide_texts(list(body_of), 0.5, seed=1)  # rotate their bodies by one
        paired = {**body_of, **{moved[n - 1]: body_of[summary] for n, summary in enumerate(moved)}}
        labels = [int(paired[summary] == body) for summary, body in body_of.items()]
        splits.append(Examples((list(body_of), list(paired.values())), labels=labels))
    return Corpus(*splits, ANSWERS)


def read_summaries(config: TextDataConfig) -> Corpus:
    """Read docstrings as pairs of a body (source) and its summary (target); no text is in two splits."""
    return Corpus(*(Examples((list(of.values()), list(of))) for of in split_summaries(config.test_share)))


def split_summaries(share: float) -> Iterator[dict[str, str]]:
    """Yield each split's docstrings as {summary line: body}. All texts are distinct and have at least LEAST words."""
    body_of: dict[str, str] = {}
    bodies: set[str] = set()
    for text in unique_docstrings():
        summary, _, body = (part.strip() for part in text.partition("\n\n"))
        long = len(summary.split()) >= LEAST and len(body.split()) >= LEAST
        if long and "\n" not in summary and summary not in body_of and body not in bodies:
            body_of[summary] = body
            bodies.add(body)
    for summaries in divide_texts(list(body_of), share):
        yield {summary: body_of[summary] for summary in summaries}


def unique_docstrings() -> dict[str, str]:
    """Return each text of `read_docstrings` once, with the first module that has it."""
    first: dict[str, str] = {}
    for module, text in read_docstrings():
        first.setdefault(text, module)
    return first


@cache
def read_docstrings() -> tuple[tuple[str, str], ...]:
    """Read the docstrings of the library's Python modules as (dotted module, text), in the order of their sources.

    Parses the sources, and imports nothing.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    docstrings: list[tuple[str, str]] = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if SKIPPED & set(parts) or not all(part.isidentifier() for part in parts):  # config-3.11-x86_64-linux-gnu
            continue
        module = ".".join(parts).removesuffix(".__init__")
        docstrings += ((module, text) for text in parse_docstrings(path))
    return tuple(docstrings)


def parse_docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a source file's module, classes and functions, in the order of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in old sources
        try:
            pending: list[ast.AST] = [ast.parse(path.read_bytes())]
        except SyntaxError:  # files that test syntax errors
            return
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = (ast.get_docstring(node) or "").strip()
            if text:
                yield text.encode(errors="replace").decode()  # a literal may hold half of a surrogate pair
        pending += reversed(list(ast.iter_child_nodes(node)))


def read_topics() -> dict[str, str]:
    """Read the chapters of the language reference by name, as `help("for")` shows them.

    Leaves out a chapter that is a section of a longer one.
    """
    from pydoc_data.topics import topics as chapters

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


def read_numbers(config: TextDataConfig) -> Corpus:
    """Make pairs of a whole number in English words and its digits: "seven thousand four" -> "7004".

    The task can be solved and checked: each source has one right target, and training shows no held-out number. Makes
    `count` numbers, as equally many of one to six digits as exist.
    """
    numbers = [str(number) for number in draw_numbers(config.count)]
    splits = divide_texts(numbers, config.test_share)
    return Corpus(*(Examples(([spell(int(digits)) for digits in split], split)) for split in splits))


def read_facts(config: TextDataConfig) -> Corpus:
    """Make texts about the content of boxes, and questions whose answer is a span of the text, "forty two pens"."""
    generator, facts = np.random.default_rng(0), {}
    while len(facts) < config.count:
        colors = generator.permutation(COLORS)[:BOXES]
        held = [f"{spell(int(generator.integers(1, 1000)))} {generator.choice(THINGS)}" for _ in colors]
        text = " ".join(f"The {color} box holds {what}." for color, what in zip(colors, held, strict=True))
        asked = int(generator.integers(BOXES))
        first = text.index(f"{colors[asked]} box holds ") + len(f"{colors[asked]} box holds ")
        facts[text] = f"What does the {colors[asked]} box hold?", (first, first + len(held[asked]))
    splits = []
    for texts in divide_texts(list(facts), config.test_share):
        questions, spans = zip(*(facts[text] for text in texts), strict=True)
        splits.append(Examples((questions, texts), [1] * len(texts), spans=spans))
    return Corpus(*splits)


def draw_numbers(count: int) -> list[int]:
    """Draw `count` distinct numbers, the same in every run."""
    generator, numbers, left = np.random.default_rng(0), [], count
    for digits in range(1, MOST_DIGITS + 1):
        first, last = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits
        wanted = min(last - first, left // (MOST_DIGITS + 1 - digits))
        numbers += (first + generator.permutation(last - first)[:wanted]).tolist()
        left -= wanted
    return numbers


def spell(number: int) -> str:
    """Spell a number from 0 to 999,999 in words."""
    if number < len(ONES):
        return ONES[number]
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            count, rest = divmod(number, size)
            return f"{spell(count)} {name}" + (f" {spell(rest)}" if rest else "")
    tens, rest = divmod(number, 10)
    return TENS[tens - 2] + (f" {ONES[rest]}" if rest else "")
