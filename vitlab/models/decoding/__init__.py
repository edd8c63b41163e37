"""What a model continues token by token, and how: greedy, sampling, beam search.

Shapes: B sequences, n tokens at a time, K beams, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Decoding(Protocol):
    """A batch of sequences that a model continues, with what it has computed of them."""

    room: int  # tokens that it can still take

    def __call__(self, tokens: Tensor) -> Tensor:
        """The tokens that come next (B, n) -> logits (B, V) of the one after them."""

    def reorder(self, rows: Tensor) -> None:
        """Go on with the sequences at `rows` (B', K), which become B' x K sequences in that order.

        The K of a line have the same source. Sources keep their order; one that is not in any line is left out.
        """


class CachedDecoding:
    """A model in eval mode with `next_logits(tokens (B, n), caches, *context) -> logits (B, V)`, without gradients.

    Each cache has `reorder(rows (B,))`. `context` are tensors, or None, with a row for each source. A source with K
    beams keeps its one row, and caches with `keep_context` theirs: attention reads one context for all of its beams.
    """

    def __init__(
        self,
        model: Any,
        caches: Sequence[Any],
        room: int,
        context: Sequence[Tensor | None] = (),
    ):
        self.model = model
        self.caches = caches
        self.room = room
        self.context = context
        self.beams = 1

    def __call__(self, tokens: Tensor) -> Tensor:
        self.room -= tokens.shape[1]
        return self.model.next_logits(tokens, self.caches, *self.context)

    def reorder(self, rows: Tensor) -> None:
        for cache in self.caches:
            cache.reorder(rows.flatten())
        if self.context and len(rows) < len(self.context[0]):
            sources = rows[:, 0] // self.beams
            self.context = [None if part is None else part[sources] for part in self.context]
            for cache in self.caches:
                cache.keep_context(sources)
        self.beams = rows.shape[1]
