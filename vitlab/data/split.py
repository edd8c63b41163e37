"""What is held out of a data set, and how: by names or by rows. Test data come from each set's own module.

Validation data are carved here for every set whose module gives none: early stopping, the best checkpoint and tuning
read them, so that nothing is chosen on test data.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitlab.config import UserError
from vitlab.data.base import ImageData, Rows
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


def choose_validation(labels: np.ndarray) -> np.ndarray:
    """bool (N,): the items that become validation data, of each class the same share; always the same ones.

    At least two of four or more items; the only item of a class stays in training, so there may be none.
    """
    count = min(MAX_VAL_ITEMS, max(min(2, len(labels) // 2), round(VAL_FRACTION * len(labels))))
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    order = nested_order(labels, seed=0, every_class=False)
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[order[sizes[classes[order]] > 1][:count]] = True
    return chosen


def carve_images(data: ImageData) -> ImageData:
    """The data with validation images out of their training images. Raises UserError where those are too few."""
    labels, read = data.train.labels, data.train.read
    chosen = choose_validation(labels)
    if not chosen.any():
        raise UserError(f"data={data.name}: {len(labels)} training images, none to spare for validation; add some")
    train, validation = (
        replace(data.train, labels=labels[rows], read=Rows(read, rows))
        for rows in (np.flatnonzero(~chosen), np.flatnonzero(chosen))
    )
    return replace(data, train=train, validation=validation)


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
