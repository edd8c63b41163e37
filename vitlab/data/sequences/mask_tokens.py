"""BERT's masking on whole batches: which tokens are to be predicted, what the model sees in their place, and where they
are (Devlin et al., 2019, section 3.1 and appendix A.1). SpanBERT chooses spans instead: mask_spans.py.

Random numbers come from a generator on the tensors' device or on the CPU, or from one for each row.
Shapes: B rows, N tokens, K places.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

MASKED, REPLACED = 0.8, 0.1  # of the chosen tokens; the others stay as they are


class RowGenerators:
    """A generator for each row of a batch: what a row draws does not depend on the others."""

    def __init__(self, seeds: Sequence[int]):
        self.each = [Generator().manual_seed(seed) for seed in seeds]

    def draw(self, of: Callable[[Generator], Tensor], rows: Tensor | None) -> Tensor:
        """`of` each row's generator, stacked: zeros, and nothing drawn, for rows (B,) that are not to draw."""
        wanted = [True] * len(self.each) if rows is None else rows.tolist()
        drawn = {row: of(self.each[row]) for row, draws in enumerate(wanted) if draws}
        none = torch.zeros_like(next(iter(drawn.values())))
        return torch.stack([drawn.get(row, none) for row in range(len(wanted))])


Random = Generator | RowGenerators


def draw_uniform(shape: tuple[int, ...], generator: Random, device: torch.device, rows: Tensor | None = None) -> Tensor:
    """Doubles from [0, 1): with floats the shares of long rows would be off by their rounding.

    rows (B,), bool: which draw, where each has a generator of its own; None for all.
    """
    if isinstance(generator, RowGenerators):
        return generator.draw(lambda own: torch.rand(shape[1:], generator=own, dtype=torch.float64), rows).to(device)
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64).to(device)


def draw_integers(high: int, shape: tuple[int, ...], generator: Random, device: torch.device) -> Tensor:
    """From 0 to high - 1."""
    if isinstance(generator, RowGenerators):
        return generator.draw(lambda own: torch.randint(high, shape[1:], generator=own), None).to(device)
    return torch.randint(high, shape, generator=generator, device=generator.device).to(device)


def choose_tokens(maskable: Tensor, share: float, generator: Random) -> Tensor:
    """maskable (B, N), bool -> chosen (B, N), bool: `share` of each row's maskable tokens, without replacement.

    A number of tokens that is not whole is rounded up with the probability of its fraction, else down: the expectation
    is exact, and a short row may have none.
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
    """tokens (B, N), int64, and chosen (B, N), bool -> what the model sees, (B, N): of the chosen tokens 80% are
    `mask_token`, 10% drawn evenly from the `vocabulary` (its size) without the `special` ones, 10% as they were. A
    drawn token may happen to be the one that stood there, as in BERT.

    With groups (B, N), int64 from 0 to N - 1 where chosen, chosen tokens of a row with the same number share one of the
    three fates (SpanBERT: Joshi et al., 2020, section 3.1); those replaced are still drawn one by one.
    """
    ordinary = torch.ones(vocabulary, dtype=torch.bool)
    ordinary[list(special)] = False
    drawable = ordinary.nonzero().squeeze(1).to(tokens.device)
    fate = draw_uniform(tuple(tokens.shape), generator, tokens.device)
    if groups is not None:
        fate = fate.gather(1, groups.clamp(min=0))
    drawn = draw_integers(len(drawable), tuple(tokens.shape), generator, tokens.device)
    seen = torch.where(fate < MASKED + REPLACED, drawable[drawn], tokens)
    return torch.where(chosen, seen.masked_fill(fate < MASKED, mask_token), tokens)


def gather_chosen(chosen: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """chosen (B, N), bool -> the places of the chosen tokens from left to right, (B, K), int64, and which of them are
    filled, (B, K), bool; K = `most`. Places that are not filled are 0.

    So a head runs on K tokens a row, and no shape depends on what was chosen. What a row has beyond `most` is dropped:
    ceil(share * N) is enough for `choose_tokens`, int(share * N) + longest for `choose_spans`.
    """
    rows, length = chosen.shape
    order = chosen.cumsum(1)
    column = torch.where(chosen & (order <= most), order - 1, most)  # the last one, cut off below, takes the rest
    places = torch.arange(length, device=chosen.device).expand(rows, length)
    packed = places.new_zeros(rows, most + 1).scatter(1, column, places)[:, :most]
    filled = torch.arange(most, device=chosen.device) < chosen.sum(1, keepdim=True)
    return packed, filled
