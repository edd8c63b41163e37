"""T5's span corruption on whole batches (Raffel et al., 2020, section 3.1.4): spans of the input are each replaced by a
sentinel, and the target is what was there, each span after its sentinel, with one sentinel more at the end.

As in the paper's code `share` of a row's tokens are in spans, as many as make their mean length `mean`, and spans do
not touch. Of all ways to place such spans each is as likely. (The code's rows always begin with a token that is kept
and end with one that is not, so a row's only span would always be its end.)
Shapes: B rows, N tokens, S tokens of the input, T of the target.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.sequences.blocks import IGNORE_INDEX
from vitlab.data.sequences.mask_tokens import Random, draw_uniform


class Lengths(NamedTuple):
    """Of a whole sequence: its tokens, those of the input with its end, those of the target with its end, its spans."""

    tokens: int
    source: int
    target: int
    spans: int


def count_spans(tokens: Tensor, share: float, mean: float) -> tuple[Tensor, Tensor]:
    """How many of a row's tokens are corrupted, and in how many spans, for int64 lengths (B,): at least one of each."""
    corrupted = (tokens * share).round().long().clamp(min=1).minimum(tokens - 1)
    return corrupted, (corrupted / mean).round().long().clamp(min=1).minimum(tokens - corrupted)


def plan_lengths(source: int, share: float, mean: float) -> Lengths:
    """The longest sequence whose input has at most `source` tokens."""
    candidates = torch.arange(2, int(source / (1 - share)) + source)
    corrupted, spans = count_spans(candidates, share, mean)
    inputs = candidates - corrupted + spans + 1
    best = int((inputs <= source).nonzero().max())
    target = int(corrupted[best] + spans[best]) + 2
    return Lengths(int(candidates[best]), int(inputs[best]), target, int(spans[best]))


def choose_corrupted(lengths: Tensor, longest: int, share: float, mean: float, generator: Random) -> Tensor:
    """lengths int64 (B,) -> bool (B, longest): which tokens are corrupted; False behind a row's end."""
    corrupted, spans = count_spans(lengths, share, mean)
    # what is kept lies before, between and behind the spans, and the first and the last of these may be empty
    gaps = compose(lengths - corrupted + 2, spans + 1, longest + 1, generator)
    gaps[:, 0] -= 1
    gaps = gaps.scatter_add(1, spans[:, None], torch.full_like(spans, -1)[:, None])[:, :-1]
    lost = compose(corrupted, spans, longest, generator)
    ends = (gaps + lost).cumsum(1)
    steps = torch.zeros(len(lengths), longest + 1, dtype=torch.int64, device=lengths.device)
    steps = steps.scatter_add(1, ends - lost, torch.ones_like(ends)).scatter_add(1, ends, -torch.ones_like(ends))
    return steps.cumsum(1)[:, :-1] > 0


def compose(total: Tensor, parts: Tensor, longest: int, generator: Random) -> Tensor:
    """Positive lengths (B, longest) that add up to `total` (B,), `parts` (B,) of them, then zeros; each composition is
    as likely as any other.
    """
    rows = len(total)
    place = torch.arange(longest, device=total.device)
    # a part begins at place 0, and at parts - 1 of the other places, drawn without replacement
    scores = draw_uniform((rows, longest), generator, total.device).masked_fill(place >= total[:, None], 2.0)
    scores[:, 0] = -1.0
    begins = torch.zeros_like(scores, dtype=torch.bool)
    begins = begins.scatter(1, scores.argsort(1), place < parts[:, None])
    number = begins.cumsum(1) - 1
    return torch.zeros_like(number).scatter_add(1, number, (place < total[:, None]).long())


def corrupt_spans(
    tokens: Tensor, corrupted: Tensor, sentinels: Sequence[int], end: int, source: int, target: int
) -> tuple[Tensor, Tensor]:
    """tokens int64 (B, N), IGNORE_INDEX behind a row's end, and corrupted, bool (B, N) -> the input (B, S) and the
    target (B, T), each with its end and IGNORE_INDEX behind that.

    A row needs one sentinel more than it has spans.
    """
    names = torch.tensor(sentinels, device=tokens.device)
    real = tokens != IGNORE_INDEX
    first = corrupted & ~F.pad(corrupted, (1, 0))[:, :-1]
    span = first.cumsum(1)  # from 1
    before = names[(span - 1).clamp(min=0)]

    stays = (real & ~corrupted) | first
    inputs = gather_front(tokens.where(~first, before), stays, source)
    # two places for each corrupted token: the sentinel before a span's first, and the token
    pairs = torch.stack([before, tokens], dim=2).flatten(1)
    targets = gather_front(pairs, torch.stack([first, corrupted], dim=2).flatten(1), target)
    last = names[span[:, -1:]]
    return close(inputs, torch.full_like(last, end)), close(close(targets, last), torch.full_like(last, end))


def gather_front(values: Tensor, kept: Tensor, length: int) -> Tensor:
    """The kept ones of values (B, N), moved to the front of (B, length), and IGNORE_INDEX behind them."""
    places = (kept.cumsum(1) - 1).where(kept, length)  # the last column, cut off below, takes the rest
    into = values.new_full((len(values), length + 1), IGNORE_INDEX)
    return into.scatter(1, places, values)[:, :-1]


def close(rows: Tensor, token: Tensor) -> Tensor:
    """Rows (B, N) with a token (B, 1) behind each one's last."""
    return rows.scatter(1, (rows != IGNORE_INDEX).sum(1, keepdim=True), token)
