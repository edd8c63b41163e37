"""Small texts as tokens, for the tests."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from vitlab.data.base import Ragged, TextData, Texts, join_written
from vitlab.data.text.corpus import join_rows

PAD, START, SEPARATOR, END, STOP, MASK = range(6)
WORDS = 41  # ordinary tokens
TOKENIZER = SimpleNamespace(
    pad=PAD,
    unknown=PAD,
    start=START,
    decoder_start=START,
    separator=SEPARATOR,
    end=END,
    document_end=STOP,
    mask=MASK,
    special=(PAD, START, SEPARATOR, END, STOP, MASK),
    size=6 + WORDS,
    save=lambda path: None,
)


def ragged(rows):
    rows = [np.asarray(row, dtype=np.int32) for row in rows]
    return Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def pairs_of(sources, targets):
    """Pairs of tokens, whose texts are the tokens' numbers."""
    written = [join_written([" ".join(map(str, row)) for row in pair]) for pair in zip(sources, targets, strict=True)]
    return replace(texts(sources), parts=(ragged(sources), ragged(targets)), written=join_rows(written))


def texts(rows, labels=None):
    """Texts of one part, of 5 bytes a token."""
    part = ragged(rows)
    labels = np.zeros(len(part), dtype=np.int64) if labels is None else np.asarray(labels, dtype=np.int64)
    return Texts((part,), labels, None, None, 5 * len(part.values))


def counting(documents, seed=0, longest=60):
    """Documents that a model can learn: each token is the one before plus a step that the document keeps."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(documents):
        first, step = generator.integers(WORDS), generator.integers(1, 4)
        rows.append(6 + (first + step * np.arange(generator.integers(9, longest))) % WORDS)
    return rows


def text_data(train=None, test=None, length=16):
    train, test = train or texts(counting(60)), test or texts(counting(13, seed=1))
    return TextData("made", (), length, TOKENIZER, train, validation=test, test=test)
