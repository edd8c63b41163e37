"""Parts of a batch, which several devices or several micro-batches share, and random numbers for their rows.

What is drawn for an example depends on the seed and on its place in the whole batch, not on who prepares it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """The `number`-th of `count` equal parts of a batch, with the `context` rows before it that its preparation reads.

    The row before a batch's first is its last.
    """

    number: int = 0
    count: int = 1
    context: int = 0

    def places(self, size: int) -> np.ndarray:
        """The places of its rows in a batch of `size` rows, int64, those of the context first."""
        rows, before = size // self.count, self.count_context(size)
        return np.arange(self.number * rows - before, (self.number + 1) * rows) % size

    def count_context(self, size: int) -> int:
        return min(self.context, size - size // self.count)

    def split(self, count: int) -> "list[Part]":
        """It in `count` equal parts, in order."""
        return [Part(self.number * count + place, self.count * count, self.context) for place in range(count)]

    def take(self, rows: Tensor, of: "Part", size: int) -> Tensor:
        """Its own among the rows of a larger part that holds it."""
        first = self.places(size)[0] - of.places(size)[0]
        wanted = (first + np.arange(len(self.places(size)))) % size
        return rows[torch.from_numpy(wanted)]


class PartGenerator(torch.Generator):
    """A generator for the rows of a part: `draw` draws for the whole batch and gives the part's."""

    def __new__(cls, device: torch.device, part: Part, size: int) -> "PartGenerator":
        return super().__new__(cls, device)

    def __init__(self, device: torch.device, part: Part, size: int):
        self.size, self.context = size, part.count_context(size)
        self.places = torch.from_numpy(part.places(size)).to(device)


def draw(
    function: Callable[..., Tensor], shape: Sequence[int], generator: torch.Generator, rows: int = 0, **options: Any
) -> Tensor:
    """`function(shape)`, such as torch.rand, on the generator's device; dimension `rows` of the shape are the rows."""
    options |= {"generator": generator, "device": generator.device}
    if not isinstance(generator, PartGenerator):
        return function(tuple(shape), **options)
    assert shape[rows] == len(generator.places), f"{shape[rows]} rows, {len(generator.places)} places"
    drawn = function((*shape[:rows], generator.size, *shape[rows + 1 :]), **options)
    return drawn.index_select(rows, generator.places)


def drop_context(rows: Tensor, generator: torch.Generator | None) -> Tensor:
    """The rows of a part without those before it."""
    return rows[generator.context :] if isinstance(generator, PartGenerator) else rows
