"""Mask batches of tokens as BERT, SpanBERT and T5 do: choose tokens, replace them, and find their places.

One generator, on the tensors' device or on the CPU, draws the random numbers of a batch, or each row has its own.
Shapes: B rows, N tokens, K places; S tokens of T5's input, T of its target.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from vitlab.data.sequences import IGNORE_INDEX

MASKED, REPLACED = 0.8, 0.1  # shares of the tokens that BERT chooses; the others stay


Random = Generator | list[Generator]  # a list has one for each row of a batch, whose draws depend on its seed alone
UNIFORM = partial(torch.rand, dtype=torch.float64)


def draw_uniform(
    shape: tuple[int, ...],
    generator: Random,
    device: torch.device,
    rows: Tensor | None = None,
    draw: Callable[..., Tensor] = UNIFORM,
) -> Tensor:
    """Draw float64 from [0, 1): float32 would round the shares of long rows.

    rows: bool (B,), the rows that draw if each has its own generator; other rows get zeros. None: all rows draw.
    """
    if isinstance(generator, Generator):
        return draw(shape, generator=generator, device=generator.device).to(device)
    wanted = [True] * len(generator) if rows is None else rows.tolist()
    drawn = {row: draw(shape[1:], generator=generator[row]) for row, draws in enumerate(wanted) if draws}
    none = torch.zeros_like(next(iter(drawn.values())))
    return torch.stack([drawn.get(row, none) for row in range(len(wanted))]).to(device)


def choose_tokens(maskable: Tensor, share: float, generator: Random) -> Tensor:
    """Choose a `share` of each row's maskable tokens without replacement: bool (B, N) -> bool (B, N).

    As in BERT (Devlin et al., 2019, section 3.1 and appendix A.1). Fractional counts are rounded up with the fraction's
    probability, else down: the expected count is exact, and a short row may have no chosen token.
    """
    rows, length = maskable.shape
    wanted = maskable.sum(1, keepdim=True) * share + draw_uniform((rows, 1), generator, maskable.device)
    scores = draw_uniform((rows, length), generator, maskable.device).masked_fill(~maskable, 2.0)
    first = torch.arange(length, device=maskable.device) < wanted.floor()
    chosen = torch.zeros_like(maskable).scatter(1, scores.argsort(1), first)
    return chosen & maskable  # at share 1 `wanted` may have been rounded up to one token too many


def corrupt(
    tokens: Tensor,
    chosen: Tensor,
    *,
    mask_token: int,
    vocabulary: int,
    special: Sequence[int],
    generator: Random,
    groups: Tensor | None = None,
) -> Tensor:
    """Corrupt chosen tokens: tokens int64 (B, N), chosen bool (B, N) -> the model's input (B, N).

    80% of the chosen tokens become `mask_token`, 10% a random token of the `vocabulary` (its size) except the `special`
    ones, 10% stay. As in BERT, a random token may equal the old one. groups: int64 (B, N), 0 to N - 1 where chosen;
    chosen tokens of a row with equal numbers share one of the three fates (SpanBERT: Joshi et al., 2020, section 3.1),
    but each draws its own replacement.
    """
    ordinary = torch.ones(vocabulary, dtype=torch.bool)
    ordinary[list(special)] = False
    drawable = ordinary.nonzero().squeeze(1).to(tokens.device)
    fate = draw_uniform(tuple(tokens.shape), generator, tokens.device)
    if groups is not None:
        fate = fate.gather(1, groups.clamp(min=0))
    drawn = draw_uniform(tuple(tokens.shape), generator, tokens.device, draw=partial(torch.randint, len(drawable)))
    seen = torch.where(fate < MASKED + REPLACED, drawable[drawn], tokens)
    return torch.where(chosen, seen.masked_fill(fate < MASKED, mask_token), tokens)


def gather_chosen(chosen: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Find the places of chosen tokens, bool (B, N), from the left: (places int64 (B, K), filled bool (B, K)).

    K = `most`; unfilled places are 0. A head then runs on K tokens a row, and no shape depends on the choice. Chosen
    tokens beyond `most` are dropped: ceil(share * N) is enough for `choose_tokens`, int(share * N) + longest for
    `choose_spans`.
    """
    rows, length = chosen.shape
    order = chosen.cumsum(1)
    column = torch.where(chosen & (order <= most), order - 1, most)  # the last one, cut off below, takes the rest
    places = torch.arange(length, device=chosen.device).expand(rows, length)
    packed = places.new_zeros(rows, most + 1).scatter(1, column, places)[:, :most]
    filled = torch.arange(most, device=chosen.device) < chosen.sum(1, keepdim=True)
    return packed, filled


# -- SpanBERT


class Spans(NamedTuple):
    """The chosen tokens, bool (B, N), and the span of each chosen token, int64 (B, N).

    groups: the span's number in its row, from 0 and from the left; -1 for tokens not chosen. left, right: the places
    beside the span, not chosen themselves. index: the token's index in its span, from 1 to the span's length. These
    three are 0 for tokens not chosen.
    """

    chosen: Tensor
    groups: Tensor
    left: Tensor
    right: Tensor
    index: Tensor


@lru_cache(maxsize=256)
def compute_tables(p: float, longest: int, budget: int) -> tuple[Tensor, Tensor]:
    """Compute (cumulative, expected), a row for lengths cut at each of c = 0 ... longest.

    cumulative (longest + 1, longest): the distribution of lengths. expected (longest + 1, budget + 2): tokens of
    spans drawn until they reach t = 0 ... budget + 1. By Wald's identity this is the mean length times the expected
    number of spans, the sum over s < t of the probability that some spans have s tokens together. The row c = 0 is
    infinite: no span fits.
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
    """Describe chosen (B, N), bool, as Spans; spans must not touch, nor hold the first or the last token of a row."""
    place = torch.arange(chosen.shape[1], device=chosen.device)
    left = place.masked_fill(chosen, 0).cummax(1).values
    right = place.masked_fill(chosen, chosen.shape[1]).flip(1).cummin(1).values.flip(1)
    index = place - left
    groups = (index == 1).logical_and(chosen).cumsum(1) - 1
    left, right, index = (tensor.masked_fill(~chosen, 0) for tensor in (left, right, index))
    return Spans(chosen, groups.masked_fill(~chosen, -1), left, right, index)


def choose_spans(maskable: Tensor, share: float, generator: Random, p: float = 0.2, longest: int = 10) -> Spans:
    """Choose spans that hold a `share` of each row's maskable tokens, bool (B, N), in expectation.

    As in SpanBERT (Joshi et al., 2020, sections 3.1 and 3.2), lengths follow a geometric distribution cut at `longest`
    and renormalised (3.8 tokens on average for p = 0.2 and longest = 10). Spans are drawn one after the other. Each
    begins at one of the places where it fits, all equally likely: drawing another length would favour short spans.

    A row stops when its spans reach a threshold below its budget, set so that the expected number of tokens is the
    budget. Stopping at the budget would choose too many tokens, because the last span overshoots; cutting the last span
    would make spans too short. Stopping depends on earlier spans only, so by Wald's identity the spans of many rows
    follow the distribution of lengths exactly.

    Different from the paper: lengths count tokens, not whole words, and two spans never touch, since the model has to
    see the tokens on either side of a span.

    A row has at most share * (its maskable tokens) + longest chosen tokens, and never its first or last token, because
    a span has a token on either side. Lengths are cut at the row's longest stretch of maskable tokens if it is shorter
    than `longest`, and renormalised. A span without enough room is shortened, and without any room there are fewer
    spans: at shares far above 15% fewer tokens than `share` are chosen, since spans do not touch.
    """
    rows, length = maskable.shape
    device = maskable.device
    place = torch.arange(length, device=device)
    inside = maskable & (place > 0) & (place < length - 1)
    room = (describe_spans(inside).right - place).clamp_(min=0)  # free tokens from here on
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
        beyond = 2 * length  # the start of a row that is done or has no room
        start = torch.searchsorted(fits, nth).masked_fill_(~unfilled | (size == 0), beyond)
        after = start + size
        chosen |= (place >= start) & (place < after)
        room = torch.where(place > after, room, room.minimum((start - 1 - place).clamp_(min=0)))
        tokens = torch.where(size == 0, threshold, tokens + size)
    return describe_spans(chosen)


# -- T5


class Lengths(NamedTuple):
    """Counts of a whole sequence: its tokens, its input's and target's tokens (each with an end), and its spans."""

    tokens: int
    source: int
    target: int
    spans: int


def count_spans(tokens: Tensor, share: float, mean: float) -> tuple[Tensor, Tensor]:
    """Count the corrupted tokens and the spans of rows from their lengths, int64 (B,): at least one of each.

    As in T5's code (Raffel et al., 2020, section 3.1.4), spans hold a `share` of a row's tokens; mean length: `mean`.
    """
    corrupted = (tokens * share).round().long().clamp(min=1).minimum(tokens - 1)
    return corrupted, (corrupted / mean).round().long().clamp(min=1).minimum(tokens - corrupted)


def plan_lengths(source: int, share: float, mean: float) -> Lengths:
    """Find the longest sequence whose input has at most `source` tokens, and its other counts."""
    candidates = torch.arange(2, int(source / (1 - share)) + source)
    corrupted, spans = count_spans(candidates, share, mean)
    inputs = candidates - corrupted + spans + 1
    best = int((inputs <= source).nonzero().max())
    target = int(corrupted[best] + spans[best]) + 2
    return Lengths(int(candidates[best]), int(inputs[best]), target, int(spans[best]))


def choose_corrupted(lengths: Tensor, longest: int, share: float, mean: float, generator: Random) -> Tensor:
    """Choose corrupted tokens of rows from their lengths: int64 (B,) -> bool (B, longest), False behind a row's end.

    Spans do not touch, and all placements are equally likely. (T5's code always keeps a row's first token and corrupts
    its last, so a row's only span would always be its end.)
    """
    corrupted, spans = count_spans(lengths, share, mean)
    # kept tokens lie before, between and behind the spans; the first and the last gap may be empty
    gaps = draw_lengths(lengths - corrupted + 2, spans + 1, longest + 1, generator)
    gaps[:, 0] -= 1
    gaps = gaps.scatter_add(1, spans[:, None], torch.full_like(spans, -1)[:, None])[:, :-1]
    lost = draw_lengths(corrupted, spans, longest, generator)
    ends = (gaps + lost).cumsum(1)
    steps = torch.zeros(len(lengths), longest + 1, dtype=torch.int64, device=lengths.device)
    steps = steps.scatter_add(1, ends - lost, torch.ones_like(ends)).scatter_add(1, ends, -torch.ones_like(ends))
    return steps.cumsum(1)[:, :-1] > 0


def draw_lengths(total: Tensor, parts: Tensor, longest: int, generator: Random) -> Tensor:
    """Draw `parts` (B,) positive lengths that sum to `total` (B,), then zeros: (B, longest), all equally likely."""
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
    """Replace corrupted spans by sentinels; return the input (B, S) and the target (B, T).

    tokens: int64 (B, N), IGNORE_INDEX behind a row's end. corrupted: bool (B, N). The input has a sentinel in place of
    each span. The target has each span's sentinel and tokens, then one sentinel more: a row needs more sentinels than
    spans by one. Both close with `end`, then IGNORE_INDEX.
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
    """Move the values (B, N) that are kept to the front of (B, length), with IGNORE_INDEX behind them."""
    places = (kept.cumsum(1) - 1).where(kept, length)  # the last column, cut off below, takes the rest
    into = values.new_full((len(values), length + 1), IGNORE_INDEX)
    return into.scatter(1, places, values)[:, :-1]


def close(rows: Tensor, token: Tensor) -> Tensor:
    """Append a token (B, 1) to each row (B, N), behind its last one."""
    return rows.scatter(1, (rows != IGNORE_INDEX).sum(1, keepdim=True), token)
