"""Nested subsets of the training data, and the manifest that says which items they hold.

They are stratified: every class has its share. Of items with keys, which may be more than fit into memory, a hash of
the key decides instead (Split.keys): a subset has as many items as asked for, and of each class its share, in
expectation.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError
from vitlab.config.checks import SIZES, is_size
from vitlab.config.errors import Problem
from vitlab.data.base import Split
from vitlab.data.keys import choose_share
from vitlab.files import write_json

Size = int | float | str  # a count of images (or tokens, documents), a share of them up to 1.0, or "all"


def resolve_size(value: Size, total: int, key: str = "size") -> int:
    """The number of units that a size means of `total`; a count may be larger than that. Raises UserError."""
    if not is_size(value):
        raise UserError(Problem(key, value, SIZES))
    if value == "all":
        return total
    return max(1, round(value * total)) if isinstance(value, float) else value


def size_problems(
    sizes: Sequence[Size], split: Split, classes: Sequence[str], name: str = "the data set", key: str = "sizes"
) -> list[str]:
    """One line for each size that a training split cannot give, or that comes twice."""
    total, unit, count = split.total, split.unit, len(classes) * split.per_item
    problems: list[str] = []
    seen: dict[int, Size] = {}
    for value in sizes:
        try:
            size = resolve_size(value, total, key)
        except UserError as error:
            problems += error.problems
            continue
        shown = f"{key}={value}" if value == size else f"{key}={value} ({size} {unit}s)"
        if size > total:
            problems.append(f"{shown}: {name} has {total} training {unit}s; give at most {total} or all")
        elif size < split.per_item:
            problems.append(f"{shown}: less than one sequence; give at least {split.per_item}, the {unit}s of one")
        elif size < count:
            each = "" if split.keys is not None else f", one {unit} of each"  # a choice by hashes may lack a class
            problems.append(f"{shown}: {name} has {count} classes; give at least {count}{each}")
        elif (items := size // split.per_item) in seen:
            same = f"the same {size} {unit}s" if split.per_item == 1 else f"{items} whole sequences, as many"
            problems.append(f"{shown}: {same} as {key}={seen[items]}; give only one of them")
        seen.setdefault(size // split.per_item, value)
    return problems


def nested_order(labels: np.ndarray, seed: int, every_class: bool = True) -> np.ndarray:
    """An order of all indices, int64 (N,); every prefix is a stratified subset.

    Each class is permuted once. Its k-th of n images stands at (k + 0.5) / n, so a prefix holds the same share of
    every class, to within an image; classes that stand level are ordered at random. With `every_class` one image of
    each class comes before all others, so that no prefix of that many or more lacks a class.
    """
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    position = np.empty(len(labels))
    _, counts = np.unique(labels, return_counts=True)
    for members in np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1]):  # one class at a time
        members = generator.permutation(members)
        position[members] = (np.arange(len(members)) + 0.5) / len(members)
        if every_class:
            position[members[0]] = -1
    return np.lexsort((generator.random(len(labels)), position)).astype(np.int64)


def hold_out(labels: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(train, held out): sorted indices, a share of each class held out, and on both sides one of each at least."""
    order, classes = nested_order(labels, seed=0), len(np.unique(labels))
    count = min(max(round(share * len(labels)), classes), len(labels) - classes)
    return np.sort(order[count:]), np.sort(order[:count])


def subset(labels: np.ndarray, size: Size, seed: int) -> np.ndarray:
    """The sorted indices, int64 (size,), of the stratified subset of that size; a larger one contains it."""
    count = resolve_size(size, len(labels))
    assert count <= len(labels), f"{count} of {len(labels)} images"
    return np.sort(nested_order(labels, seed)[:count])


def training_items(split: Split, size: Size, seed: int) -> np.ndarray:
    """The sorted indices, int64, of the items of a training set of that size, in the split's unit.

    A larger one contains it. Where the unit is a document, all items of the chosen ones. Raises UserError where no
    key is chosen.
    """
    return next(nested_items(split, [size], seed))


def nested_items(split: Split, sizes: Sequence[Size], seed: int) -> Iterator[np.ndarray]:
    """`training_items` of each size, of one draw."""
    documents, labels = None, split.labels
    if split.groups is not None:
        documents, first = np.unique(split.groups, return_index=True)
        labels = labels[first]
    order = nested_order(labels, seed) if split.keys is None else None
    for size in sizes:
        count = resolve_size(size, split.total)
        if split.keys is not None:
            items = np.flatnonzero(choose_share(split.keys, find_threshold(split, count), f"subset {seed}"))
            if not len(items):
                raise UserError(
                    f"size={size}: the hashes of {split.total} keys choose none with seed {seed}; give more"
                )
            yield items
        elif documents is not None:
            yield np.flatnonzero(np.isin(split.groups, documents[order[:count]]))
        else:
            yield np.sort(order[: max(1, count // split.per_item)])


def count_items(split: Split, size: Size, seed: int) -> int:
    """The number of `training_items`; drawn only where it depends on the draw: with keys or documents."""
    if split.groups is not None or split.keys is not None:
        return len(training_items(split, size, seed))
    return max(1, resolve_size(size, split.total) // split.per_item)


def find_threshold(split: Split, count: int) -> int:
    """The items of a training set of `count` are those whose draw, 64 bits, is below this."""
    return (count << 64) // split.total


def examples(labels: np.ndarray, count: int) -> np.ndarray:
    """The sorted indices, int64, of at most `count` items of every class alike: the first ones often lie by class."""
    return np.sort(nested_order(labels, seed=0)[:count])


def write_manifest(
    path: str | Path,
    split: Split,
    classes: Sequence[str],
    sizes: Sequence[Size],
    seed: int,
    name: str | None = None,
) -> dict[str, Any]:
    """Write, and give back, what is in the subset of each size; `name` of the data, else from `<name>-seed<k>.json`.

    `sha256` is of the subset's sorted indices as little-endian int64, so anyone can check that two studies used the
    same items. Of items with keys it is of their sorted keys as little-endian uint64; `threshold` is what a key's draw
    was below, and `found` how many were.
    """
    path = Path(path)
    counts = sorted(resolve_size(size, split.total) for size in sizes)
    subsets, smaller = [], np.empty(0, dtype=np.int64)
    for count, indices in zip(counts, nested_items(split, counts, seed), strict=True):
        assert np.isin(smaller, indices).all(), "a subset does not contain the smaller one"
        per_class = np.bincount(split.labels[indices], minlength=len(classes)).tolist()
        chosen, by_key = indices.astype("<i8"), {}
        if split.keys is not None:
            chosen = np.sort(split.keys[indices]).astype("<u8")
            by_key = {"found": len(indices), "threshold": hex(find_threshold(split, count))}
        subsets.append(
            {
                "size": count,
                **by_key,
                "sha256": hashlib.sha256(chosen.data).hexdigest(),
                "per_class": dict(zip(classes, per_class, strict=True)) if classes else {},
            }
        )
        smaller = indices
    manifest = {
        "data": name or path.stem.rpartition("-seed")[0] or path.stem,
        "seed": seed,
        f"train_{split.unit}s": split.total,
        "sizes": counts,
        "subsets": subsets,
    }
    write_json(path, manifest)
    return manifest
