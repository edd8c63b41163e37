"""Split items into training subsets, validation and test sets, by rows or by hashes of names.

Training subsets are nested and stratified: every class keeps its share. If a module gives no validation data, they are
carved here. Early stopping, the best checkpoint and tuning read validation data; nothing is chosen on test data.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import normalize

import numpy as np

from vitlab.config import UserError, raise_all
from vitlab.config.checks import SIZES, is_size
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import Corpus, Examples, ImageData, Joined, Split, take_items
from vitlab.files import write_json
from vitlab.formatting import plural
from vitlab.registry import implementation

VAL_FRACTION = 0.1  # share of the training data carved for validation
MAX_VAL_ITEMS = 5000  # most images or texts carved for validation
LEAST_SHARED = 16  # characters; a shorter shared text may be an answer or a class name, and joins no items
NESTED = "nested"  # random subsets of the training set, beside those of a user's module
NOISE = 2**40  # part of redraw_labels' seed: keeps its random numbers apart from an epoch's

ANY = {"errors": "surrogateescape"}  # names of files may hold bytes that are not text
T = TypeVar("T")
Size = int | float | str  # a count of images (or tokens, documents), a share of them up to 1.0, or "all"


# -- training subsets


def resolve_size(value: Size, total: int, key: str = "size") -> int:
    """Turn a size into a number of units: a share of `total`, or a count, which may exceed it. Raises UserError."""
    if not is_size(value):
        raise UserError(f"{key}={value}: {SIZES}")
    if value == "all":
        return total
    return max(1, round(value * total)) if isinstance(value, float) else value


def size_problems(
    sizes: Sequence[Size], split: Split, classes: Sequence[str], name: str = "the data set", key: str = "sizes"
) -> list[str]:
    """Return a line for each size that the training split cannot give, and for each repeated size."""
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
        elif size < min(2, total):  # a count of 1 is probably meant as the share 1.0
            problems.append(f"{shown}: a single {unit}; give 2 or more, or all for all of them")
        elif size < count:
            problems.append(f"{shown}: {name} has {count} classes; give at least {count}, one {unit} of each")
        elif (items := size // split.per_item) in seen:
            same = f"the same {size} {unit}s" if split.per_item == 1 else f"{items} whole sequences, as many"
            problems.append(f"{shown}: {same} as {key}={seen[items]}; give only one of them")
        seen.setdefault(size // split.per_item, value)
    return problems


def nested_order(
    labels: np.ndarray, seed: int, every_class: bool = True, names: Sequence[Any] | None = None
) -> np.ndarray:
    """Order all indices, int64 (N,), so that every prefix is a stratified subset.

    Each class is permuted once, by chance or by a hash of seed and name. Image k of a class's n images stands at
    (k + 0.5) / n, so a prefix holds the same share of every class, to within one image. With `every_class` the order
    begins with one image of each class, so no prefix of that length or more lacks a class; a large class then lacks up
    to one image for each rare class.
    """
    labels, generator = np.asarray(labels), np.random.default_rng(seed)
    seeded = [f"{seed}/{normalize('NFC', str(name))}".encode(**ANY) for name in (() if names is None else names)]
    rank = np.argsort(sorted(range(len(seeded)), key=lambda row: hashlib.sha256(seeded[row]).digest()))
    position = np.empty(len(labels))
    _, counts = np.unique(labels, return_counts=True)
    for members in np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1]):  # one class at a time
        members = generator.permutation(members) if names is None else members[np.argsort(rank[members])]
        position[members] = (np.arange(len(members)) + 0.5) / len(members)
        if every_class and len(members):
            position[members[0]] = -1
    ties = generator.random(len(labels)) if names is None else rank
    return np.lexsort((ties, position)).astype(np.int64)


def refuse_share(config: DataConfig, source: str) -> None:
    """Raise UserError for a share to hold out of data that bring a test split."""
    given = {key: value for key in ("test_share", "seed") if (value := vars(config).get(key)) is not None}
    own = {key: getattr(type(config), key) for key in given}
    raise_all(f"data.{k}={given[k]}: {source} has its own test; give {own[k]}" for k in given if given[k] != own[k])


def subset(labels: np.ndarray, size: Size, seed: int) -> np.ndarray:
    """Return a stratified subset of a size as sorted indices, int64. Larger subsets contain it."""
    return np.sort(nested_order(labels, seed)[: resolve_size(size, len(labels))])


def training_items(split: Split, size: Size, seed: int, choice: str = NESTED) -> np.ndarray:
    """Return the items of a training set as sorted indices, int64; `size` is in the split's unit.

    Larger sets contain smaller ones. If the unit is a document, the set holds all items of each chosen document.
    choice: the key `subset`, NESTED or a user's module; its `order(split, seed)` returns the items, first ones first.
    """
    return next(nested_items(split, [size], seed, choice))


def nested_items(split: Split, sizes: Sequence[Size], seed: int, choice: str = NESTED) -> Iterator[np.ndarray]:
    """Yield the `training_items` of each size from one draw. Raises UserError if a user's `order` does not fit."""
    documents, labels = None, split.labels
    if split.groups is not None:
        documents, first = np.unique(split.groups, return_index=True)
        labels = labels[first]
    if choice == NESTED:
        order = nested_order(labels, seed)
    elif split.groups is not None:
        raise UserError(f"subset={choice}: orders items, but a training set is of {split.unit}s here; give {NESTED}")
    else:
        order = np.asarray(implementation("", choice, "order", "subset").order(split, seed))
        if not np.array_equal(np.sort(order), np.arange(len(labels))):
            raise UserError(f"subset={choice}: its order(split, seed) must hold each of 0 to {len(labels) - 1} once")
    for size in sizes:
        chosen = order[: max(1, resolve_size(size, split.total) // split.per_item)]
        yield np.sort(chosen) if documents is None else np.flatnonzero(np.isin(split.groups, documents[chosen]))


def long_tail(split: Split, factor: float) -> Split:
    """Thin out classes to an exponential tail, the largest `factor` times the smallest (Cui et al., 2019).

    Classes keep their order by size. All runs choose their subsets from the same items. A factor of 1 keeps all items.
    """
    if factor == 1:
        return split
    (classes, counts), order = np.unique(split.labels, return_counts=True), nested_order(split.labels, 0)
    ranked = np.argsort(-counts, kind="stable")
    shares = factor ** -np.linspace(0, 1, len(counts))
    kept = np.maximum(1, (counts[ranked] / shares).min() * shares + 1e-9).astype(int)
    rows = [order[split.labels[order] == label][:count] for label, count in zip(classes[ranked], kept, strict=True)]
    return take_items(split, np.sort(np.concatenate(rows)))


def redraw_labels(labels: np.ndarray, share: float, classes: int, seed: int) -> np.ndarray:
    """Replace a share of labels (N,) by other classes, drawn evenly. A larger share changes the same, and more."""
    generator = np.random.default_rng([seed, NOISE])
    others = (labels + generator.integers(1, classes, len(labels))) % classes
    return np.where(generator.random(len(labels)) < share, others, labels)


def count_items(split: Split, size: Size, seed: int) -> int:
    """Count the `training_items`. Draws them only for documents, whose items vary in number."""
    if split.groups is not None:
        return len(training_items(split, size, seed))
    return max(1, resolve_size(size, split.total) // split.per_item)


def write_manifest(
    path: Path, split: Split, classes: Sequence[str], sizes: Sequence[Size], seed: int, name: str, choice: str = NESTED
) -> None:
    """Write the size, counts per class and hash of each size's subset of the data `name`.

    `sha256` hashes the sorted indices as little-endian int64: equal hashes show that two studies used the same items.
    """
    counts = sorted(resolve_size(size, split.total) for size in sizes)
    subsets = []
    for count, indices in zip(counts, nested_items(split, counts, seed, choice), strict=True):
        per_class = np.bincount(split.labels[indices], minlength=len(classes)).tolist()
        counted = dict(zip(classes, per_class, strict=True)) if classes else {}
        digest = hashlib.sha256(indices.astype("<i8").data).hexdigest()
        subsets.append({"size": count, "sha256": digest, "per_class": counted})
    about = {"data": name, "seed": seed, "subset": choice, f"train_{split.unit}s": split.total}
    write_json(path, {**about, "sizes": counts, "subsets": subsets})


# -- items chosen by a hash of their names, whatever their folder and the other items


def hash_key(name: str) -> int:
    """Hash an item's name to the first 64 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(name.encode(**ANY)).digest()[:8], "little")


# -- held-out data


def divide(
    labels: np.ndarray, count: int, names: Sequence[Any] | None = None, seed: int = 0, every_class: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Divide items into sorted indices (left, chosen): about `count` are chosen, the same share of each class.

    Items of one name stay together, and count as their rarest class. A class never loses its last name; with
    `every_class` each class of several names loses one. `nested_order` hashes the names, so adding or removing a name
    moves few others. If all names have more than `count` items, the smallest name of each class is chosen.
    """
    labels, numbers = np.asarray(labels), {}
    count = max(count, len(np.unique(labels))) if every_class else count
    keys = range(len(labels)) if names is None else names
    groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    rarest = np.argsort(np.bincount(labels)[labels], kind="stable")
    _, first, sizes = np.unique(groups[rarest], return_index=True, return_counts=True)
    classes, chosen, room = labels[rarest[first]], np.zeros(len(first), dtype=bool), count
    left, order = np.bincount(classes), nested_order(classes, seed, every_class, None if names is None else [*numbers])
    for group in order:
        if left[classes[group]] > 1 and sizes[group] <= room:
            chosen[group] = True
            left[classes[group]] -= 1
            room -= sizes[group]
            if not room:
                break
    if len(sizes) < len(labels) and (every_class or count * len(sizes) < 2 * len(labels)):
        for label in np.setdiff1d(classes, classes[chosen]):
            if left[label] > 1:
                chosen[min(order[classes[order] == label], key=sizes.__getitem__)] = True
    for label in np.setdiff1d(labels, labels[~chosen[groups]]):  # names of several classes may hold all of one
        chosen[min(np.unique(groups[labels == label]), key=sizes.__getitem__)] = False
    return np.flatnonzero(~chosen[groups]), np.flatnonzero(chosen[groups])


def divide_texts(
    texts: Sequence[T], share: float, names: Sequence[str] = (), labels: Sequence[int] = (), seed: int = 0
) -> tuple[list[T], list[T]]:
    """Divide texts into (left, chosen), a share of each class. Without `names` each text is its own name."""
    labels = labels if len(labels) else np.zeros(len(texts), dtype=np.int64)
    sides = divide(labels, round(share * len(texts)), names or texts, seed, every_class=True)
    return tuple([texts[row] for row in rows] for rows in sides)


def hold_out(split: Split, share: float, seed: int = 0) -> tuple[Split, Split]:
    """Hold out a share of each class, one item at least: (left, held out)."""
    sides = divide(split.labels, round(share * len(split)), group_names(split), seed, every_class=True)
    return take_items(split, sides[0]), take_items(split, sides[1])


def group_names(split: Split) -> Sequence[Any] | None:
    return split.names if split.together is None else split.together.tolist()


def count_validation(items: int) -> int:
    """Count the items that become validation data: a tenth, at least two of four or more."""
    return min(MAX_VAL_ITEMS, max(min(2, items // 2), round(VAL_FRACTION * items)))


def carve_images(data: ImageData) -> ImageData:
    """Carve validation images out of the training images. Raises UserError if there are too few."""
    split = data.train
    train, validation = divide(split.labels, count_validation(len(split)), group_names(split))
    if not len(validation):
        of = "" if data.train.together is None else f" of {plural(len(np.unique(data.train.together)), 'group')}"
        raise UserError(f"data={data.name}: {len(train)} training images{of}, none to spare for validation; add some")
    return replace(data, train=take_items(split, train), validation=take_items(split, validation))


def draw_again(data: ImageData, seed: int) -> ImageData:
    """Draw another test set from all images by a seed (repeated hold-out).

    All seeds give equally many training images; if held-out groups leave more, some are dropped. Raises UserError for
    images in shards.
    """
    splits = list(data.splits.values())
    if splits[0].blocks is not None:
        raise UserError(f"data.holdout={seed}: data={data.name} is read in the order of its shards; give fixed")
    joined = {
        name: np.concatenate([vars(split)[name] for split in splits])
        for name in ("labels", "targets", "names", "together")
        if vars(splits[0])[name] is not None
    }
    starts = np.cumsum([0, *map(len, splits)])
    whole = Split(read=Joined(tuple(split.read for split in splits), starts), **joined, decoded=data.cached)
    rest = take_items(whole, np.arange(len(whole) - len(data.test)))
    count = len(rest) - len(divide(rest.labels, count_validation(len(rest)), group_names(rest))[1])
    for attempt in range(100):  # large groups may leave too few
        train, test = hold_out(whole, len(data.test) / len(whole), seed + (attempt << 32))
        carved = carve_images(replace(data, train=shorten(train, len(rest), seed), test=test, validation=None))
        if len(carved.train) >= count:
            break
    return replace(carved, train=shorten(carved.train, count, seed))


def shorten(split: Split, count: int, seed: int) -> Split:
    """Return at most `count` items of a split, drawn with a seed, in their order."""
    return take_items(split, np.sort(np.random.default_rng(seed).permutation(len(split))[:count]))


def carve_texts(corpus: Corpus, name: str) -> Corpus:
    """Carve validation texts out of a corpus's training texts; groups, else those of `name_groups`, stay together.

    A single document gives its end, from the start of a line. Raises UserError, with the data's `name`, for too few.
    """
    train = corpus.train
    items = [*zip(*(train.parts if train.spans is None else train.parts[-1:]), strict=True)]
    names = train.groups or name_groups(items, by_source=train.are_pairs)
    labels = np.zeros(len(train), dtype=np.int64) if train.labels is None else train.labels
    left, held = divide(labels, count_validation(len(train)), names)
    if len(held):
        return replace(corpus, train=take(train, left), validation=take(train, held))
    plain = len(train.parts) == 1 and (train.labels, train.targets, train.tags, train.groups) == (None,) * 4
    cut = cut_text(train.parts[0][0], VAL_FRACTION) if plain and len({*names}) == 1 else None
    if cut is None:
        of = "" if train.groups is None else f" of {plural(len({*names}), 'group')}"
        raise UserError(
            f"data={name}: {plural(len(train), 'training text')}{of}, none to spare for validation; give more"
        )
    return replace(corpus, train=Examples(([cut[0]],)), validation=Examples(([cut[1]],)))


def name_groups(items: Sequence[Sequence[Any]], by_source: bool = False) -> list[str]:
    """Name each item's group from its texts. Items of a group share a text and stay on one side of every split.

    Only one column counts: the first one `by_source`, else the column with the most repeated text (passages, premises)
    in texts of LEAST_SHARED or more characters. Sharing by several columns would chain most items.
    """
    least = 1 if by_source else LEAST_SHARED
    columns = [[text if len(text) >= least else "" for text in map(str, column)] for column in zip(*items, strict=True)]
    repeated = lambda column: sum(map(len, column)) - sum(map(len, {*column}))  # noqa: E731
    shared = max(columns[: 1 if by_source else None], key=repeated, default=())
    first: dict[str, str] = {}
    return [first.setdefault(text or repr(item), repr(item)) for text, item in zip(shared, items, strict=True)]


def take(examples: Examples, rows: Sequence[int]) -> Examples:
    """Return the examples at `rows`."""
    kept = lambda values: None if values is None else [values[row] for row in rows]  # noqa: E731
    parts, *beside = vars(examples).values()
    return Examples(tuple(map(kept, parts)), *map(kept, beside))


def cut_text(text: str, share: float) -> tuple[str, str] | None:
    """Split a text at the line break before its last share: (start, end); None if it has too few lines."""
    cut = text.find("\n", int(len(text) * (1 - share))) + 1
    return (text[:cut], text[cut:]) if cut and text[:cut].strip() and text[cut:].strip() else None
