"""Several data sets as one text-to-text set (T5: Raffel et al., 2020, section 2.4): each source begins with the name of
its task, "numbers: seven hundred", and what is to be said of it is text: a class is its name.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitlab.config import UserError, groups
from vitlab.config.schema.data import TextDataConfig
from vitlab.data import module_of
from vitlab.data.split import carve_texts, choose_by_hash, take
from vitlab.data.text.corpus import SPLITS, check_examples
from vitlab.data.text.types import Corpus, Examples
from vitlab.registry import find_function

VERSION = 1  # of the mixing
DEFAULT = {"numbers": "numbers", "summarize": "summaries"}


def fingerprint(config: TextDataConfig) -> list:
    """What each part depends on; of a module that does not say it, nothing more than its configuration."""
    parts = load_parts(config).items()
    modules = {name: (module_of(part), part) for name, part in parts}
    fingerprints = {name: find_function(module, "fingerprint") for name, (module, _) in modules.items()}
    return [VERSION, {name: of(modules[name][1]) for name, of in fingerprints.items() if of}]


def read(config: TextDataConfig) -> Corpus:
    """The texts of all parts; the classes are their names, so that a subset has its share of each. Raises UserError."""
    corpora: dict[str, Corpus] = {}
    problems: list[str] = []
    for name, part in load_parts(config).items():
        try:
            corpora[name] = read_part(name, part, config.limit)
        except UserError as error:
            problems += [f"data.parts.{name}: {problem}" for problem in error.problems]
    if problems:
        raise UserError(problems)
    joined = {split: join([corpus.splits[split] for corpus in corpora.values()]) for split in SPLITS}
    return Corpus(**joined, classes=tuple(corpora))


def load_parts(config: TextDataConfig) -> dict[str, TextDataConfig]:
    """The configuration of each part by its name. Raises UserError."""
    given = DEFAULT if config.parts is None else config.parts
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"data.parts={given}: give names and data sets, data.parts={{NAME: DATA, ...}}")
    parts: dict[str, TextDataConfig] = {}
    problems: list[str] = []
    for name, choice in given.items():
        key = f"data.parts.{name}"
        try:
            part = groups.load("data", choice if isinstance(choice, dict) else str(choice), key)
        except UserError as error:
            problems += error.problems
            continue
        if part.modality != "text" or part.kind == "mixture":
            problems.append(f"{key}={part.name}: cannot be part of a mixture; give a data set of texts")
        parts[str(name)] = part
    if problems:
        raise UserError(problems)
    return parts


def read_part(name: str, config: TextDataConfig, limit: int | None) -> Corpus:
    """Pairs (source, target) of one data set, at most `limit` of them for training. Raises UserError."""
    corpus: Corpus = module_of(config).read(config)
    if problems := [line for split in corpus.splits for line in check_examples(config, corpus, split)]:
        raise UserError(problems)
    if corpus.validation is None:
        corpus = carve_texts(corpus, config.name)
    splits = {split: make_pairs(name, part, corpus.classes, config) for split, part in corpus.splits.items()}
    sources = splits["train"].parts[0]
    if limit is not None and limit < len(sources):
        chosen = choose_by_hash(list(dict.fromkeys(sources)), limit / len(sources))
        splits["train"] = take(splits["train"], np.array([source in chosen for source in sources]))
    return Corpus(**splits)


def make_pairs(name: str, examples: Examples, classes: tuple[str, ...], config: TextDataConfig) -> Examples:
    """Sources that begin with the name, and what is to be said of them. Raises UserError where that is not one text."""
    *sources, last = examples.parts
    if examples.tags is not None or len(sources) > 1:
        raise UserError(
            f"data={config.name}: tags and choices have no place in a mixture; give classes, numbers, pairs"
        )
    targets: list[Any] = list(last)
    if examples.targets is not None:
        sources, targets = [*sources, last], [f"{value:g}" for value in examples.targets]
    elif examples.labels is not None and classes:
        sources, targets = [*sources, last], [classes[label] for label in examples.labels]
    elif not sources:
        raise UserError(f"data={config.name}: has one text each and nothing to predict; give pairs, classes or numbers")
    texts = (f"{name}: " + "\n".join(parts) for parts in zip(*sources, strict=True))
    return Examples((list(texts), targets))


def join(parts: list[Examples]) -> Examples:
    """The examples of all parts, labelled with the part's place."""
    labels = [number for number, examples in enumerate(parts) for _ in range(len(examples))]
    return Examples(tuple([text for part in parts for text in part.parts[side]] for side in (0, 1)), labels=labels)
