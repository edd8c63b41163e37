"""What a model continues token by token, and how: greedy, sampling, beam search.

Shapes: B sequences, n tokens at a time, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor


class Decoding(Protocol):
    """A batch of sequences that a model continues, with what it has computed of them."""

    room: int  # tokens that it can still take

    def __call__(self, tokens: Tensor) -> Tensor:
        """The tokens that come next (B, n) -> logits (B, V) of the one after them."""

    def reorder(self, rows: Tensor) -> None:
        """Go on with the sequences at `rows` (B',), in that order."""


class CachedDecoding:
    """`forward(tokens (B, n), caches) -> logits (B, n, V)`, where each of the caches has `reorder(rows)`."""

    def __init__(self, forward: Callable[[Tensor, Sequence[Any]], Tensor], caches: Sequence[Any], room: int):
        self.forward = forward
        self.caches = caches
        self.room = room

    def __call__(self, tokens: Tensor) -> Tensor:
        self.room -= tokens.shape[1]
        return self.forward(tokens, self.caches)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        for cache in self.caches:
            cache.reorder(rows)
