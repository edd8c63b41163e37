"""A data set of text as tokens: read, its tokenizer trained or loaded, encoded, and kept in the cache.

An entry (vitlab.data.cache) holds tokenizer.json, data.json, and of each split one .npy file for each array of
`Texts`, which processes map into their memory.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vitlab.config import UserError, raise_all
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.base import NO_TAG, Corpus, Examples, Ragged, TextData, Texts, list_arrays
from vitlab.data.cache import Cache
from vitlab.data.split import carve_texts
from vitlab.data.text import tokenization

TRAINED = ("tokenizer", "vocabulary", "lowercase", "split_digits")  # keys of a tokenizer that is trained
SPLITS = {"train": "training", "validation": "validation", "test": "held-out"}  # and what a message calls them
T = TypeVar("T")


class TextCache(Cache):
    """A cache of tokens. The tokenizer is trained on the training texts alone, of all parts."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that an entry depends on; a tokenizer's file counts by its content, see `fingerprint`."""
        related = super().settings()
        if tokenization.is_path(self.config.tokenizer):
            related = {key: value for key, value in related.items() if key not in TRAINED}
        return related

    def fingerprint(self) -> dict[str, Any]:
        settings = {"tokenizers": version("tokenizers"), "corpus": super().fingerprint()}
        if tokenization.is_path(self.config.tokenizer):
            file = tokenization.locate_file(self.config.tokenizer)
            settings["tokenizer"] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
        return settings

    def read(self) -> TextData:
        """Read the data set without the cache. Texts without a token are left out, with the rest of their example."""
        config, progress = self.config, self.progress
        # before the corpus, which takes longer
        tokenizer = tokenization.from_file(config.tokenizer) if tokenization.is_path(config.tokenizer) else None
        progress(f"reading {config.name}", 0, 1)
        corpus: Corpus = self.module.read(config)
        progress(f"reading {config.name}", 1, 1)
        check_texts(config, corpus)
        corpus = carve_texts(corpus, config.name) if corpus.validation is None else corpus
        if tokenizer is None:
            texts = (join_words(text) for part in corpus.train.parts for text in part)
            tokenizer = tokenization.train(
                texts, config.tokenizer, config.vocabulary, config.lowercase, config.split_digits
            )
        total = sum(map(len, corpus.splits.values())) * len(corpus.train.parts)
        done = 0

        def track(texts: Iterable[T]) -> Iterator[T]:
            nonlocal done
            for text in texts:
                yield text
                done += 1
                if done * 100 // total > (done - 1) * 100 // total:  # a percent more
                    progress(f"encoding {config.name}", done, total)

        progress(f"encoding {config.name}", 0, total)
        splits = {split: encode_examples(examples, tokenizer, track) for split, examples in corpus.splits.items()}
        for split, texts in splits.items():
            if len(texts) < (count := len(corpus.splits[split])):
                gone = f"{count - len(texts)} of {count} {SPLITS[split]} texts"
                warnings.warn(f"data={config.name}: {gone} are left out: they have no tokens", stacklevel=1)
            if not len(texts):
                which = f"the {SPLITS[split]} texts in {name_source(config, split)}"
                raise UserError(f"data={config.name}: {which} have no tokens with data.tokenizer={config.tokenizer}")
        return self.data(tuple(corpus.classes), tokenizer, splits)

    def data(self, classes: tuple[str, ...], tokenizer: tokenization.Tokenizer, splits: dict[str, Texts]) -> TextData:
        lengths = {"length": self.config.length, "target_length": self.config.target_length or self.config.length}
        return TextData(self.config.name, classes, tokenizer=tokenizer, **splits, **lengths, exact=self.config.exact)

    def write(self, data: TextData, entry: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        data.tokenizer.save(entry / tokenization.FILE)
        lists = {split: list_arrays(texts) for split, texts in data.splits.items()}
        arrays = {f"{split}_{name}": values for split, own in lists.items() for name, values in own.items()}
        sizes = {split: texts.size for split, texts in data.splits.items()}
        return {"classes": data.classes, "parts": len(data.train.parts), "sizes": sizes}, arrays

    def read_entry(self, entry: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> TextData:
        tokenizer, splits = tokenization.from_file(entry / tokenization.FILE), {}
        for split, size in about["sizes"].items():
            names = (f"{split}_part{number}" for number in range(about["parts"]))
            parts = tuple(Ragged(arrays[f"{name}_values"], arrays[f"{name}_starts"]) for name in names)
            tags = Ragged(arrays[f"{split}_tags"], parts[-1].starts) if f"{split}_tags" in arrays else None
            splits[split] = Texts(parts, arrays[f"{split}_labels"], arrays.get(f"{split}_targets"), tags, size)
        return self.data(tuple(about["classes"]), tokenizer, splits)


def check_texts(config: TextDataConfig, corpus: Corpus) -> None:
    """Raise UserError for each split without texts."""
    raise_all(
        f"data={config.name}: no {SPLITS[split]} texts found in {name_source(config, split)}; give more there"
        for split, texts in corpus.splits.items()
        if not texts.parts or not len(texts)
    )


def name_source(config: TextDataConfig, split: str) -> str:
    """Name the source of a split's texts as the user gave it."""
    own = ("test_path", "test_files", "test_split", "test_source") if split == "test" else ()
    keys = (key for key in (*own, "path", "dataset", "source") if vars(config).get(key))
    return next((f"data.{key}={vars(config)[key]}" for key in keys), "what was read")


def join_words(text: str | Sequence[str]) -> str:
    """Join a text that is given word by word; return any other as it is."""
    return text if isinstance(text, str) else " ".join(text)


def encode_examples(
    examples: Examples, tokenizer: tokenization.Tokenizer, track: Callable[[Iterable], Iterator]
) -> Texts:
    """Encode one split, whose texts are read through `track`, as tokens."""
    rows, tags = [], None
    if examples.spans is not None:
        questions, texts = examples.parts
        encoded = [tokenizer.encode_span(text, span) for text, span in zip(track(texts), examples.spans, strict=True)]
        parts = [list(tokenizer.rows(track(questions))), [ids for ids, _ in encoded]]
        tags = [inside for _, inside in encoded]
    elif examples.tags is None:
        parts = [list(tokenizer.rows(track(part))) for part in examples.parts]
    else:
        tags = []
        for words, of_words in track(zip(examples.parts[0], examples.tags, strict=True)):
            ids, numbers = tokenizer.encode_words(words)
            # the first token of a word carries its tag, the others none
            firsts = [word != last for last, word in zip([-1, *numbers], numbers, strict=False)]
            carried = [of_words[word] if first else NO_TAG for word, first in zip(numbers, firsts, strict=True)]
            rows.append(np.asarray(ids, dtype=np.int32))
            tags.append(np.asarray(carried, dtype=np.int32))
        parts = [rows]
    whole = [row for row in range(len(examples)) if all(len(part[row]) for part in parts)]
    labels = np.zeros(len(examples)) if examples.labels is None else np.asarray(examples.labels)
    targets = None if examples.targets is None else np.asarray(examples.targets, dtype=np.float32)[whole]
    return Texts(
        parts=tuple(join_rows([part[row] for row in whole]) for part in parts),
        labels=labels.astype(np.int64)[whole],
        targets=targets,
        tags=None if tags is None else join_rows([tags[row] for row in whole]),
        size=sum(len(join_words(part[row]).encode()) for part in examples.parts for row in whole),
    )


def join_rows(rows: Sequence[np.ndarray]) -> Ragged:
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    return Ragged(np.concatenate([*rows, np.empty(0, dtype=np.int32)]).astype(np.int32, copy=False), starts)
