"""SpanBERT's spans on whole batches (Joshi et al., 2020, sections 3.1 and 3.2).

Lengths follow a geometric distribution cut at `longest` and renormalised (3.8 tokens in the mean for p = 0.2 and 10).
They are drawn one after the other until a row's budget is spent, and each span begins at one of the places where it
fits, all equally likely. So no length is ever drawn again because it did not fit, which would favour short ones.

A row's last span goes beyond what it was drawn to reach. Stopping at the budget would thus choose too many tokens;
cutting the last span, or leaving it out by its length, would make spans too short. Here spans are drawn until their
tokens reach a threshold below the budget, set such that their expected number is the budget. When to stop depends on
the spans so far only, so by Wald's identity the spans of many rows have the lengths' distribution, exactly.

Different from the paper: lengths count tokens, not whole words, and two spans never touch, since the tokens on either
side of a span have to be ones that the model sees.
Shapes: B rows, N tokens.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitlab.data.sequences.mask_tokens import Random, draw_uniform


class Spans(NamedTuple):
    """The chosen tokens (B, N), bool, and for each of them, int64 (B, N): the number of its span in the row, from 0 and
    from left to right (-1 for tokens not chosen); the place left of its span and the place right of it, neither of them
    chosen; and its own index in the span, from 1 to the span's length (these three are 0 for tokens not chosen).
    """

    chosen: Tensor
    groups: Tensor
    left: Tensor
    right: Tensor
    index: Tensor


@lru_cache(maxsize=256)
def compute_tables(p: float, longest: int, budget: int) -> tuple[Tensor, Tensor]:
    """For lengths cut at c = 0 ... longest: their cumulative distribution (longest + 1, longest), and the expected
    number of tokens of spans drawn until they have at least t, t = 0 ... budget + 1 (longest + 1, budget + 2).

    The latter is Wald's: the mean length times the expected number of spans, and that is the sum over s < t of the
    probability that some spans have s tokens together. For c = 0, where no span fits, it is infinite.
    """
    cumulative = np.ones((longest + 1, longest))
    expected = np.full((longest + 1, budget + 2), np.inf)
    expected[:, 0] = 0
    for cut in range(1, longest + 1):
        lengths = np.arange(1, cut + 1)
        weights = (1 - p) ** (lengths - 1)
        probabilities = weights / weights.sum()
        cumulative[cut, : cut - 1] = probabilities.cumsum()[:-1]
        reached = np.zeros(longest + budget + 1)  # padded on the left by zeros
        reached[longest] = 1
        for tokens in range(longest + 1, len(reached)):
            reached[tokens] = probabilities @ reached[tokens - lengths]
        expected[cut, 1:] = (probabilities @ lengths) * reached[longest:].cumsum()
    return torch.from_numpy(cumulative), torch.from_numpy(expected)


def describe_spans(chosen: Tensor) -> Spans:
    """chosen (B, N), bool, with spans that do not touch and neither the first nor the last token of a row."""
    place = torch.arange(chosen.shape[1], device=chosen.device)
    left = place.masked_fill(chosen, 0).cummax(1).values
    right = place.masked_fill(chosen, chosen.shape[1]).flip(1).cummin(1).values.flip(1)
    index = place - left
    groups = (index == 1).logical_and(chosen).cumsum(1) - 1
    left, right, index = (tensor.masked_fill(~chosen, 0) for tensor in (left, right, index))
    return Spans(chosen, groups.masked_fill(~chosen, -1), left, right, index)


def drop_edges(maskable: Tensor) -> Tensor:
    """All but a row's first and last token."""
    inside = torch.ones_like(maskable)
    inside[:, :1] = inside[:, -1:] = False
    return maskable & inside


def choose_spans(maskable: Tensor, share: float, generator: Random, p: float = 0.2, longest: int = 10) -> Spans:
    """maskable (B, N), bool -> spans of maskable tokens with `share` of a row's maskable tokens, in expectation.

    A row has at most share * (its maskable tokens) + longest tokens chosen. Its first and its last token never are: a
    span has a token on either side. Where a row's longest stretch of maskable tokens is shorter than `longest`, lengths
    are cut at that and renormalised. Where spans leave no room for the next, it is shortened, and where they leave none
    at all there are fewer: so at shares far above 15% less than `share` is chosen, since spans do not touch.
    """
    rows, length = maskable.shape
    device = maskable.device
    place = torch.arange(length, device=device)
    room = (describe_spans(drop_edges(maskable)).right - place).clamp_(min=0)  # free tokens from here on
    cut = room.amax(1).clamp_(max=longest)
    cumulative, expected = (table.to(device)[cut] for table in compute_tables(p, longest, int(share * length)))

    budget = maskable.sum(1, keepdim=True) * share
    below = torch.searchsorted(expected, budget, right=True) - 1
    low, high = expected.gather(1, below), expected.gather(1, below + 1)
    threshold = below + (draw_uniform((rows, 1), generator, device) < (budget - low) / (high - low))

    tokens = torch.zeros_like(threshold)
    chosen = torch.zeros_like(maskable)
    while (unfilled := tokens < threshold).any():
        drawing = unfilled[:, 0]
        size = torch.searchsorted(cumulative, draw_uniform((rows, 1), generator, device, drawing), right=True) + 1
        size = size.minimum(room.amax(1, keepdim=True))
        fits = (room >= size).cumsum(1)
        nth = (draw_uniform((rows, 1), generator, device, drawing) * fits[:, -1:]).long() + 1
        beyond = 2 * length  # where a row that is done, or has no room, would begin its span
        start = torch.searchsorted(fits, nth).masked_fill_(~unfilled | (size == 0), beyond)
        after = start + size
        chosen |= (place >= start) & (place < after)
        room = torch.where(place > after, room, room.minimum((start - 1 - place).clamp_(min=0)))
        tokens = torch.where(size == 0, threshold, tokens + size)
    return describe_spans(chosen)
