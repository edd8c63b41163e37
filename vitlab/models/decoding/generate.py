"""Greedy decoding and sampling, by any model that gives a `Decoding`.

Shapes: B sequences, N tokens given of each, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from vitlab.models.decoding import Decoding

COLD = 1e-5  # lower temperatures would overflow; they are greedy anyway


@torch.inference_mode()
def generate(
    decoding: Decoding,
    given: Tensor,
    steps: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end: int | None = None,
    generator: Generator | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:
    """Continuations (M,) of the given tokens int64 (B, N), M <= steps, each up to and with its first `end` token.

    Tokens are sampled from softmax(logits / temperature); temperature 0 is greedy. `top_k` keeps the k likeliest tokens
    (Fan et al., 2018), `top_p` the fewest whose probabilities sum to it (Holtzman et al., 2020). Stops at the model's
    length. The model must be in eval mode; progress(done, steps) is called after each token.
    """
    steps = max(0, min(steps, decoding.room - given.shape[1] + 1))  # the last is not read
    written = given.new_full((len(given), steps), 0 if end is None else end)
    going = torch.arange(len(given), device=given.device)  # the sequences that are still read
    ended = torch.zeros_like(going, dtype=torch.bool)
    for done in range(steps):
        chosen = choose(decoding(given), temperature, top_k, top_p, generator)
        written[:, done].index_copy_(0, going, chosen)  # found[going, done] = chosen takes ten times as long
        given = chosen[:, None]
        if progress:
            progress(done + 1, steps)
        if end is None:
            continue
        ended |= chosen == end
        left = len(ended) - int(ended.sum())
        if not left:
            break
        if 2 * left <= len(ended):  # leaving some out copies the caches
            rows = (~ended).nonzero()
            decoding.reorder(rows)
            given, going, ended = given[rows[:, 0]], going[rows[:, 0]], ended[rows[:, 0]]
    return [cut_after(row, end) for row in written]


def choose(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: Generator | None
) -> Tensor:
    """One token (B,) of each row of logits (B, V)."""
    if temperature < COLD:
        return logits.argmax(dim=-1)
    probabilities = filter_logits(logits / temperature, top_k, top_p).softmax(dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits (B, V) with minus infinity for tokens outside `top_k` or `top_p`; the likeliest token always stays."""
    ordered, order = logits.sort(dim=-1, descending=True)
    removed = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k is not None:
        removed[:, max(1, top_k) :] = True
    if top_p is not None:
        shares = ordered.masked_fill(removed, float("-inf")).softmax(dim=-1)
        removed |= shares.cumsum(dim=-1) - shares >= top_p
    removed[:, 0] = False
    return logits.masked_fill(removed.scatter(1, order, removed), float("-inf"))


def cut_after(tokens: Tensor, end: int | None) -> Tensor:
    """Tokens (M,) up to and with the first `end`."""
    ends = (tokens == end).nonzero() if end is not None else []
    return tokens[: int(ends[0]) + 1] if len(ends) else tokens
