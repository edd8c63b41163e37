"""Load text as tokens: read a corpus by its module, train or load a tokenizer, encode the texts, and cache the result.

A cache entry (vitlab.data.cache) holds the tokenizer in its JSON, and every array of each split's `Texts`.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import numpy as np

from vitlab.config import UserError, raise_all
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.base import Corpus, Examples, Ragged, Show, TextData, Texts, join_written, list_arrays
from vitlab.data.cache import Entry, cached, key_of
from vitlab.data.split import carve_texts
from vitlab.data.text import tokenization

SPLITS = {"train": "training", "validation": "validation", "test": "held-out"}  # a split's name in messages
T = TypeVar("T")


def load_texts(config: TextDataConfig, module: Any, progress: Show) -> TextData:
    """Load a data set of text through the cache. The key hashes the content of a tokenizer's file."""
    is_path = tokenization.is_path(config.tokenizer)

    def key() -> tuple[Any, Any]:
        settings, of_corpus = key_of(config, module)
        of_all = {"carved": "by source", "kept": "as read", "tokenizers": version("tokenizers"), "corpus": of_corpus}
        if is_path:
            del settings["tokenizer"]
            file = tokenization.locate_file(config.tokenizer)
            of_all["tokenizer"] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
        return settings, of_all

    build = partial(read_texts, config, module, progress)
    about, arrays = build() if config.cache == "never" else cached(config.name, key, build)
    splits = {}
    for split, size in about["sizes"].items():
        own = {name.removeprefix(f"{split}_"): values for name, values in arrays.items() if name.startswith(split)}
        parts = tuple(Ragged(own[f"part{n}_values"], own[f"part{n}_starts"]) for n in range(about["parts"]))
        written = Ragged(own["written_values"], own["written_starts"]) if "written_values" in own else None
        tags = Ragged(own["tags"], parts[-1].starts) if "tags" in own else None
        splits[split] = Texts(parts, own["labels"], own.get("targets"), tags, size, written)
    lengths = {"length": config.length, "target_length": config.target_length or config.length}
    tokenizer = tokenization.from_text(about["tokenizer"])
    return TextData(config.name, tuple(about["classes"]), tokenizer=tokenizer, **splits, **lengths, exact=config.exact)


def read_texts(config: TextDataConfig, module: Any, progress: Show) -> Entry:
    """Read and encode a data set. Leaves out examples with a text that has no token.

    Trains a tokenizer on the training texts of all parts, and on no others.
    """
    # first, because reading the corpus takes longer
    tokenizer = tokenization.from_file(config.tokenizer) if tokenization.is_path(config.tokenizer) else None
    progress(f"reading {config.name}", 0, 1)
    corpus: Corpus = module.read(config)
    progress(f"reading {config.name}", 1, 1)
    check_texts(config, corpus)
    corpus = carve_texts(corpus, config.name) if corpus.validation is None else corpus
    if (corpus.train.are_pairs or corpus.train.groups) and (shared := ", ".join(count_shared(corpus))):
        warnings.warn(f"data={config.name}: {shared}", stacklevel=1)
    if tokenizer is None:
        texts = (join_words(text) for part in corpus.train.parts for text in part)
        tokenizer = tokenization.train(
            texts, config.tokenizer, config.vocabulary, config.lowercase, config.split_digits
        )
    total, done = sum(map(len, corpus.splits.values())) * len(corpus.train.parts), 0

    def track(texts: Iterable[T]) -> Iterator[T]:
        nonlocal done
        for text in texts:
            yield text
            done += 1
            if done * 100 // total > (done - 1) * 100 // total:  # at each percent
                progress(f"encoding {config.name}", done, total)

    progress(f"encoding {config.name}", 0, total)
    arrays, sizes = {}, {}
    for split, examples in corpus.splits.items():
        keep = examples.spans is not None or (split != "train" and len(examples.parts) == 2 and examples.tags is None)
        texts = encode_examples(examples, tokenizer, track, keep)
        if len(texts) < len(examples):
            gone = f"{len(examples) - len(texts)} of {len(examples)} {SPLITS[split]} texts"
            warnings.warn(f"data={config.name}: {gone} are left out: they have no tokens", stacklevel=1)
        if not len(texts):
            which = f"the {SPLITS[split]} texts in {name_source(config, split)}"
            raise UserError(f"data={config.name}: {which} have no tokens with data.tokenizer={config.tokenizer}")
        arrays |= {f"{split}_{name}": values for name, values in list_arrays(texts).items()}
        sizes[split] = texts.size
    about = {"classes": corpus.classes, "parts": len(corpus.train.parts), "sizes": sizes}
    return {**about, "tokenizer": tokenizer.inner.to_str()}, arrays


def count_shared(corpus: Corpus) -> Iterator[str]:
    """Yield how many held-out sources and targets, or texts, are training texts, if any are."""
    for place, what in enumerate(("sources", "targets") if corpus.train.are_pairs else ("texts",)):
        for split in ("validation", "test"):
            texts, known = corpus.splits[split].parts[place], {*corpus.train.parts[place]}
            if count := sum(text in known for text in texts):
                yield f"{count:,} of {len(texts):,} {SPLITS[split]} {what} are training {what} too"


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
    """Join a text given as words; return a string unchanged."""
    return text if isinstance(text, str) else " ".join(text)


def encode_examples(
    examples: Examples, tokenizer: tokenization.Tokenizer, track: Callable[[Iterable], Iterator], keep: bool = False
) -> Texts:
    """Encode one split as tokens, and `keep` what scores need as read; `track` wraps its texts to count them."""
    with_tags, tags = examples.spans if examples.tags is None else examples.tags, None
    parts = [list(tokenizer.rows(track(part))) for part in (examples.parts[:-1] if with_tags else examples.parts)]
    if with_tags:
        encode = tokenizer.encode_span if examples.tags is None else tokenizer.encode_tags
        encoded = [encode(text, of) for text, of in zip(track(examples.parts[-1]), with_tags, strict=True)]
        parts, tags = [*parts, [ids for ids, _ in encoded]], [of for _, of in encoded]
    whole = [row for row in range(len(examples)) if all(len(part[row]) for part in parts)]
    columns = examples.parts
    if examples.spans is not None:
        columns = columns[-1], [text[slice(*of)] for text, of in zip(columns[-1], examples.spans, strict=True)]
    labels = np.zeros(len(examples)) if examples.labels is None else np.asarray(examples.labels)
    targets = None if examples.targets is None else np.asarray(examples.targets, dtype=np.float32)[whole]
    return Texts(
        parts=tuple(join_rows([part[row] for row in whole]) for part in parts),
        labels=labels.astype(np.int64)[whole],
        targets=targets,
        tags=None if tags is None else join_rows([tags[row] for row in whole]),
        size=sum(len(join_words(part[row]).encode()) for part in examples.parts for row in whole),
        written=join_rows([join_written([column[row] for column in columns]) for row in whole]) if keep else None,
    )


def join_rows(rows: Sequence[np.ndarray]) -> Ragged:
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    return Ragged(np.concatenate(rows or [np.empty(0, dtype=np.int32)]), starts)
