"""Tasks of the next symbol: characters of code and of documentation, words of docstrings, kinds of tokens of code.

Learners are n-gram models with back-off, on arrays: inputs are contexts (N, longest), the nearest symbol first; targets
the symbols (N) that follow; all from 0 to `symbols`. A context of k symbols and what follows are one number in base
`symbols`.
"""

import io
import keyword
import tokenize
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from tasks import CLASSIFIERS, Data, Task, choose, ladder, read_library

from vitlab import config
from vitlab.data.text import corpora

CHARACTERS, WORDS, TOKENS = 96, 4_000, 64  # symbols; the last stands for all rarer ones
BLOCK = 1_000  # symbols of a passage
DISCOUNT = 0.75  # of each count, with absolute discounting and Kneser and Ney's


@dataclass(frozen=True)
class Counts:
    """Of contexts of one length: how often each is followed by each symbol, by anything, and by how many symbols."""

    pairs: np.ndarray  # (P), sorted: context * symbols + what follows
    pair_counts: np.ndarray  # (P)
    contexts: np.ndarray  # (C), sorted
    totals: np.ndarray  # (C)
    kinds: np.ndarray  # (C)


class NGram:
    """Smoothing: `add` (one to each count), `witten` (and Bell's), `absolute` discounting, `kneser` (and Ney's)."""

    def __init__(self, smoothing: str, order: str, symbols: int):
        self.order, self.symbols, self.smoothing = int(order), symbols, smoothing

    def fit(self, contexts: np.ndarray, following: np.ndarray) -> None:
        lengths = range(self.order)
        raw = [np.unique(self.encode(contexts, length, following), return_counts=True) for length in lengths]
        if self.smoothing == "kneser":  # shorter contexts count in how many longer ones a pair stands
            shortened = [self.shorten(raw[length + 1][0], length) for length in lengths[:-1]]
            raw = [*(np.unique(pairs, return_counts=True) for pairs in shortened), raw[-1]]
        self.counts = [self.tabulate(*found) for found in raw]

    def encode(self, contexts: np.ndarray, length: int, following: np.ndarray) -> np.ndarray:
        base = self.symbols ** np.arange(length, dtype=np.int64)
        return (contexts[:, :length] * base).sum(1, dtype=np.int64) * self.symbols + following

    def shorten(self, pairs: np.ndarray, length: int) -> np.ndarray:
        """Pairs whose contexts lose all but their nearest `length` symbols."""
        return pairs // self.symbols % self.symbols**length * self.symbols + pairs % self.symbols

    def tabulate(self, pairs: np.ndarray, counts: np.ndarray) -> Counts:
        contexts, first, kinds = np.unique(pairs // self.symbols, return_index=True, return_counts=True)
        return Counts(pairs, counts, contexts, np.add.reduceat(counts, first), kinds)

    def probabilities(self, contexts: np.ndarray, following: np.ndarray) -> np.ndarray:
        """(N): of each symbol that follows, backed off from the longest context to none and to all symbols alike."""
        share = np.full(len(following), 1 / self.symbols)
        for length, counts in enumerate(self.counts):
            pairs = self.encode(contexts, length, following)
            count = look_up(counts.pairs, counts.pair_counts, pairs)
            total = look_up(counts.contexts, counts.totals, pairs // self.symbols)
            kinds = look_up(counts.contexts, counts.kinds, pairs // self.symbols)
            if self.smoothing == "add":
                share = (count + 1) / (total + self.symbols)
            elif self.smoothing == "witten":
                share = np.where(total > 0, (count + kinds * share) / np.maximum(total + kinds, 1), share)
            else:
                kept = np.maximum(count - DISCOUNT, 0) + DISCOUNT * kinds * share
                share = np.where(total > 0, kept / np.maximum(total, 1), share)
        return share

    def log_probabilities(self, contexts: np.ndarray, following: np.ndarray) -> np.ndarray:
        return np.log(self.probabilities(contexts, following))

    def predict(self, contexts: np.ndarray) -> np.ndarray:
        """(N): the most probable symbol."""
        every = [self.probabilities(contexts, np.full(len(contexts), symbol)) for symbol in range(self.symbols)]
        return np.argmax(every, axis=0)


def look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 where it is not among the sorted keys."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def make_contexts(symbols: np.ndarray, longest: int) -> np.ndarray:
    """(N, longest): the symbols before each of N, the nearest first; zeros before the beginning."""
    padded = np.concatenate([np.zeros(longest, symbols.dtype), symbols])
    return np.stack([padded[longest - back : len(padded) - back] for back in range(1, longest + 1)], axis=1)


def ngrams(symbols: int, names: str) -> dict:
    """Learners by names such as `witten_3`: the smoothing and the order."""
    return {name: lambda seed, name=name: NGram(*name.split("_"), symbols) for name in names.split()}


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


TASKS = (
    Task(
        *("code", "log_loss", ladder(1_000, 6, 4), load_code),
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
            "logistic": lambda seed: make_pipeline(
                OneHotEncoder(categories=[np.arange(TOKENS)] * 8), LogisticRegression(C=1, max_iter=50)
            ),
        },
    ),
)
