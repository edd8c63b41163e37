"""Small data sets of texts of every kind, and the task for them, for the tests."""

from types import SimpleNamespace

import numpy as np

from tests import learning
from tests.texts import ragged
from vitlab.data.base import TextData, Texts
from vitlab.data.loader import Items
from vitlab.data.text import NO_TAG

LENGTH, V = 13, 31
GPT = SimpleNamespace(pad=0, start=1, separator=2, end=3, document_end=3, special=(0, 1, 2, 3), size=V)
TINY = ["model.width=24", "model.depth=2"]
BODIES = {
    "bert": ["model=bert_nano", *TINY, "model.heads=3"],
    "gpt": ["model=gpt_nano", *TINY, "model.heads=3"],
    "lstm": ["model=lstm_nano", *TINY],
    "lstm both ways": ["model=lstm_nano", "model.causal=false", *TINY],
}
KINDS = ("classes", "pairs", "both orders", "choices", "numbers", "tags")


def texts(kind, count, seed=0):
    """`count` texts of 2 to 9 tokens, each with the first token of its own."""
    rng = np.random.default_rng(seed)
    parts = {"pairs": 2, "both orders": 2, "choices": 4}.get(kind, 1)
    rows = [[rng.integers(4, V, rng.integers(2, 10)) for _ in range(count)] for _ in range(parts)]
    tags = targets = None
    if kind == "tags":
        tags = ragged([np.where(row % 4 == 0, NO_TAG, row % 5) for row in rows[0]])
    if kind == "numbers":
        targets = rng.normal(70.0, 20.0, count).astype(np.float32)
    labels = rng.permutation(np.arange(count) % 3).astype(np.int64)
    return Texts(tuple(map(ragged, rows)), labels, targets, tags, size=0)


def data(kind="classes", count=17, **changes):
    classes = {"tags": tuple("abcde"), "numbers": ()}.get(kind, tuple("xyz"))
    splits = {"train": texts(kind, count), "validation": texts(kind, count, seed=2), "test": texts(kind, count, seed=1)}
    return TextData(**{"name": "toy", "classes": classes, "length": LENGTH, "tokenizer": GPT, **splits, **changes})


def build(kind="classes", *words, of=None):
    """(task, configuration)"""
    words = [*BODIES["bert"], *words] if not any(word.startswith("model=") for word in words) else words
    options = ["task.both_orders=true"] if kind == "both orders" else []
    return learning.build(["task=text_classification", *words, *options], of or data(kind))


def whole(task, split="train", rows=None):
    split = getattr(task, split)
    return task.prepare(Items(split).__getitems__(list(range(len(split)) if rows is None else rows)))
