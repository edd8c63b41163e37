"""What is held out of a data set, and how: by names or by rows. Test data come from each set's own module.

Validation data are carved here for every set whose module gives none: early stopping, the best checkpoint and tuning
read them, so that nothing is chosen on test data.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitlab.config import UserError
from vitlab.data.base import ImageData, Joined, Split, take_items
from vitlab.data.subset import nested_order
from vitlab.data.text.types import Corpus, Examples

VAL_FRACTION = 0.1  # of the training data that becomes validation data
MAX_VAL_ITEMS = 5000  # of images or texts that do


def choose_by_hash(names: Sequence[str], share: float, seed: int = 0) -> set[str]:
    """The share of the names with the smallest hash of seed and name; at least one, and never all of them.

    Others that come or go move few of them.
    """
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest())
    return set(ranked[: max(0, min(max(1, round(share * len(names))), len(names) - 1))])


def choose_validation(labels: np.ndarray, together: np.ndarray | None = None) -> np.ndarray:
    """bool (N,): the items that become validation data, of each class the same share; always the same ones.

    At least two of four or more items; the only item of a class stays in training, so there may be none.
    """
    return choose_held_out(labels, count_validation(len(labels)), together)


def count_validation(items: int) -> int:
    return min(MAX_VAL_ITEMS, max(min(2, items // 2), round(VAL_FRACTION * items)))


def choose_held_out(
    labels: np.ndarray, count: int, together: np.ndarray | None = None, seed: int = 0, every_class: bool = False
) -> np.ndarray:
    """bool (N,): at most `count` items, of each class the same share, with `every_class` one at least.

    Items of one number in `together` (N,) are chosen or left as one; they count as the class of the first. The last
    ones of a class are left.
    """
    groups = np.arange(len(labels)) if together is None else np.unique(together, return_inverse=True)[1]
    _, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    _, classes, left = np.unique(labels[first], return_inverse=True, return_counts=True)
    chosen, room = np.zeros(len(first), dtype=bool), count
    for group in nested_order(labels[first], seed, every_class):
        if left[classes[group]] > 1 and sizes[group] <= room:
            chosen[group] = True
            left[classes[group]] -= 1
            room -= sizes[group]
            if not room:
                break
    return chosen[groups]


def carve_images(data: ImageData) -> ImageData:
    """The data with validation images out of their training images. Raises UserError where those are too few."""
    held = choose_validation(data.train.labels, data.train.together)
    if not held.any():
        raise UserError(f"data={data.name}: {len(held)} training images, none to spare for validation; add some")
    train, validation = (take_items(data.train, np.flatnonzero(rows)) for rows in (~held, held))
    return replace(data, train=train, validation=validation)


def draw_again(data: ImageData, seed: int) -> ImageData:
    """The same images with another test set, drawn with this seed out of all: repeated hold-out.

    Every seed gives as many training images; where whole groups are held out and leave more, some are left out.
    Raises UserError for images in shards.
    """
    splits = list(data.splits.values())
    if splits[0].keys is not None:
        raise UserError(f"data.holdout={seed}: data={data.name} is read in the order of its shards; give fixed")
    joined = {
        name: None if vars(splits[0])[name] is None else np.concatenate([vars(split)[name] for split in splits])
        for name in ("labels", "targets", "names", "together")
    }
    starts = np.cumsum([0, *map(len, splits)])
    whole = Split(read=Joined(tuple(split.read for split in splits), starts), unit=data.train.unit, **joined)
    held = choose_held_out(whole.labels, len(data.test), whole.together, seed, every_class=True)
    rest = len(whole) - len(data.test)
    train = shorten(take_items(whole, np.flatnonzero(~held)), rest, seed)
    carved = carve_images(replace(data, train=train, test=take_items(whole, np.flatnonzero(held)), validation=None))
    return replace(carved, train=shorten(carved.train, rest - count_validation(rest), seed))


def shorten(split: Split, count: int, seed: int) -> Split:
    """At most `count` of its items, in their order."""
    if len(split) <= count:
        return split
    return take_items(split, np.sort(np.random.default_rng(seed).permutation(len(split))[:count]))


def carve_texts(corpus: Corpus, name: str) -> Corpus:
    """The corpus `name` with validation texts out of its training texts; the same texts stay together.

    Of a single document it is the end, from the start of a line. Raises UserError where there is too little.
    """
    train, numbers = corpus.train, {}
    groups = np.array([numbers.setdefault(repr(texts), len(numbers)) for texts in zip(*train.parts, strict=True)])
    _, first = np.unique(groups, return_index=True)
    chosen = choose_validation(np.zeros(len(first)) if train.labels is None else np.asarray(train.labels)[first])
    if chosen.any():
        held = chosen[groups]
        return replace(corpus, train=take(train, ~held), validation=take(train, held))
    plain = len(train.parts) == 1 and (train.labels, train.targets, train.tags) == (None, None, None)
    cut = cut_text(train.parts[0][0], VAL_FRACTION) if plain and len(first) == 1 else None
    if cut is None:
        problem = f"{len(train)} training text{'s' * (len(train) > 1)}, none to spare for validation"
        raise UserError(f"data={name}: {problem}; give more")
    return replace(corpus, train=Examples(([cut[0]],)), validation=Examples(([cut[1]],)))


def take(examples: Examples, rows: np.ndarray) -> Examples:
    """The examples whose place in `rows`, bool (N,), is True."""

    def kept(values: Sequence | None) -> list | None:
        return None if values is None else [values[row] for row in np.flatnonzero(rows)]

    beside = map(kept, (examples.labels, examples.targets, examples.tags))
    return Examples(tuple(map(kept, examples.parts)), *beside)


def cut_text(text: str, share: float) -> tuple[str, str] | None:
    """A text without its end, and the end: its last share, from the next line on; None where it has too few lines."""
    cut = text.find("\n", int(len(text) * (1 - share))) + 1
    return (text[:cut], text[cut:]) if cut and text[:cut].strip() and text[cut:].strip() else None
