"""Tasks of whole texts and words: which package, module, category or kind they are of."""

import ast
import re
import sys
import sysconfig
import unicodedata
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from task import CLASSIFIERS, TEXT_CLASSIFIERS, Data, Task, choose, ladder, split_pool

from vitlab import config
from vitlab.data.text import corpora

KINDS = (ast.ClassDef, ast.FunctionDef, ast.arg, ast.Attribute, ast.Name)  # what a name is first seen as
LETTERS = 4  # from either end of a name
LONG_LINE = 20  # characters from which a line tells something


@cache
def read_library() -> dict[str, str]:
    """The source of each module at the top level of Python's library, by its name, in the order of the names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return {path.stem: path.read_text(errors="replace") for path in sorted(folder.glob("*.py"))}


def hash_texts(texts: Sequence[str], bits: int, **options):
    """Counts of hashed words or letters, (N, 2**bits), sparse."""
    return HashingVectorizer(n_features=2**bits, alternate_sign=False, norm=None, **options).transform(texts)


def load_packages() -> Data:
    """The package that a docstring is of: vitlab's data set."""
    corpus = corpora.read(config.load("data", "docstrings"))
    parts = []
    for split in (corpus.train, corpus.test):
        parts += [hash_texts(split.parts[0], 14), np.asarray(split.labels)]
    return Data(*parts, chance=float(np.bincount(parts[3]).max() / len(parts[3])))


def load_lines() -> Data:
    """The module that a line of code is of, out of the 12 longest ones; each line once, from letters."""
    longest = sorted(read_library().items(), key=lambda item: len(item[1]))[-12:]
    module_of: dict[str, int] = {}
    for number, (_, source) in enumerate(longest):
        for line in map(str.strip, source.splitlines()):
            if len(line) >= LONG_LINE:
                module_of.setdefault(line, number)
    inputs = hash_texts(list(module_of), 15, analyzer="char_wb", ngram_range=(3, 4), lowercase=False)
    return split_pool(inputs, np.array(list(module_of.values())), 4_000, classes=True)


def load_categories() -> Data:
    """The general category of a character of Unicode, out of the 12 most frequent ones, from the words of its name.

    Numbered names and Korean syllables are left out: they are most of all, and alike.
    """
    names = {character: unicodedata.name(character, "") for character in map(chr, range(sys.maxunicode))}
    categories = {
        name: unicodedata.category(character)
        for character, name in names.items()
        if name and not re.search(r"-[0-9A-F]+$|^HANGUL SYLLABLE", name)
    }
    frequent = [category for category, _ in Counter(categories.values()).most_common(12)]
    texts = [name for name, category in categories.items() if category in frequent]
    labels = np.array([frequent.index(categories[name]) for name in texts])
    return split_pool(hash_texts(texts, 13), labels, 4_000, classes=True)


def load_kinds() -> Data:
    """What a name in the library's code is first used as, from its first and last letters and how it is written."""
    kind_of: dict[str, int] = {}
    for source in read_library().values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in old sources
            tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, KINDS):
                name = next(value for value in map(vars(node).get, ("name", "arg", "attr", "id")) if value)
                kind_of.setdefault(name, KINDS.index(type(node)))
    inputs = np.array([describe_name(name) for name in kind_of], dtype=np.float32)
    return split_pool(inputs, np.array(list(kind_of.values())), 4_000, classes=False)


def describe_name(name: str) -> list[float]:
    ends = name[:LETTERS].ljust(LETTERS), name[-LETTERS:].rjust(LETTERS)
    written = [str.isupper, str.isdigit, "_".__eq__, "aeiou".__contains__]
    return [*map(ord, "".join(ends)), len(name), name.isupper(), *(sum(map(test, name)) for test in written)]


TASKS = (
    Task(
        *("packages", "error", ladder(100, 6), load_packages),
        choose(TEXT_CLASSIFIERS, "bayes bernoulli complement svm perceptron neighbors"),
    ),
    Task(
        *("lines", "error", ladder(128, 7), load_lines),
        choose(TEXT_CLASSIFIERS, "bayes bernoulli complement svm perceptron neighbors"),
    ),
    Task(
        *("categories", "error", ladder(128, 7), load_categories),
        choose(TEXT_CLASSIFIERS, "bayes complement logistic svm perceptron neighbors"),
    ),
    Task(
        *("kinds", "log_loss", ladder(64, 7), load_kinds),
        choose(CLASSIFIERS, "logistic lda neighbors forest trees boosting mlp"),
    ),
)
