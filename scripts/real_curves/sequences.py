"""Tasks of the next symbol: characters of code and of documentation, words of docstrings, kinds of tokens of code."""

import io
import keyword
import tokenize
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

import numpy as np
from ngrams import make_contexts, ngrams
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from task import CLASSIFIERS, Data, Task, choose, ladder
from texts import read_library

from vitlab import config
from vitlab.data.text import corpora

CHARACTERS, WORDS, TOKENS = 96, 4_000, 64  # symbols; the last stands for all rarer ones
BLOCK = 1_000  # symbols of a passage
EXACT = {tokenize.OP, tokenize.NAME}  # kinds of tokens that are told apart by their text, names where they are keywords


def make_data(train: Iterable[Hashable], test: Iterable[Hashable], symbols: int, longest: int, test_items: int) -> Data:
    """Contexts and what follows, of a fixed random part of the test sequence; the most frequent symbols are known."""
    train, test = list(train), list(test)
    frequent = [symbol for symbol, _ in Counter(train).most_common(symbols - 1)]
    numbers = {symbol: number for number, symbol in enumerate(frequent)}
    parts = []
    for sequence in (train, test):
        coded = np.array([numbers.get(symbol, symbols - 1) for symbol in sequence], dtype=np.int16)
        parts += [make_contexts(coded, longest), coded.astype(np.int64)]
    chosen = np.sort(np.random.default_rng(0).permutation(len(test))[:test_items])
    blocks = np.arange(len(train)) // BLOCK
    chance = float(np.bincount(parts[3][chosen]).max() / len(chosen))
    return Data(parts[0], parts[1], parts[2][chosen], parts[3][chosen], blocks=blocks, chance=chance)


def split_sources() -> tuple[list[str], list[str]]:
    """Every eighth module of the library is held out."""
    sources = list(read_library().values())
    return [source for number, source in enumerate(sources) if number % 8], sources[::8]


def load_code() -> Data:
    train, test = split_sources()
    return make_data("".join(train), "".join(test), CHARACTERS, 5, 40_000)


def load_documentation() -> Data:
    """Python's language reference and docstrings: vitlab's data set."""
    corpus = corpora.read(config.load("data", "pydoc"))
    train, test = ("\n".join(split.parts[0]) for split in (corpus.train, corpus.test))
    return make_data(train, test, CHARACTERS, 5, 40_000)


def load_words() -> Data:
    """The words of the same documentation, in lower case, punctuation apart."""
    corpus = corpora.read(config.load("data", "pydoc"))
    train, test = (chain.from_iterable(map(split_words, split.parts[0])) for split in (corpus.train, corpus.test))
    return make_data(train, test, WORDS, 2, 20_000)


def split_words(text: str) -> list[str]:
    spaced = "".join(letter if letter.isalnum() or letter == "_" else f" {letter} " for letter in text.lower())
    return spaced.split()


def load_tokens() -> Data:
    """Kinds of tokens of code: operators and keywords by their text, all else by its type."""
    train, test = (chain.from_iterable(map(list_tokens, sources[::2])) for sources in split_sources())
    return make_data(train, test, TOKENS, 8, 3_000)


def list_tokens(source: str) -> Sequence[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        token.string if token.type == tokenize.OP or keyword.iskeyword(token.string) else tokenize.tok_name[token.type]
        for token in tokens
    ]


def one_hot() -> OneHotEncoder:
    return OneHotEncoder(categories=[np.arange(TOKENS)] * 8)


TASKS = (
    Task(
        "code",
        "log_loss",
        ladder(1_000, 6, 4),
        load_code,
        ngrams(CHARACTERS, "add_2 witten_2 witten_3 witten_4 kneser_3 kneser_6"),
    ),
    Task(
        *("documentation", "log_loss", ladder(1_000, 10), load_documentation),
        ngrams(CHARACTERS, "add_2 add_3 witten_2 witten_3 witten_5 absolute_4 kneser_4"),
    ),
    Task(
        *("words", "log_loss", ladder(2_000, 7), load_words),
        ngrams(WORDS, "add_1 witten_2 witten_3 absolute_2 kneser_3"),
    ),
    Task(
        *("tokens", "error", ladder(500, 7), load_tokens),
        ngrams(TOKENS, "witten_2 witten_3 kneser_5")
        | choose(CLASSIFIERS, "tree forest neighbors")
        | {
            "bayes": lambda seed: CategoricalNB(alpha=0.1, min_categories=TOKENS),
            "logistic": lambda seed: make_pipeline(one_hot(), LogisticRegression(C=1, max_iter=50)),
        },
    ),
)
