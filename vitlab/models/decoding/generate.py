"""Greedy decoding, sampling and beam search, by any model that gives a `Decoding`.

Shapes: B sequences, N tokens given of each, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from vitlab.models.decoding import Decoding

COLD = 1e-5  # lower temperatures would overflow; they are greedy anyway


@torch.no_grad()
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
    found = []
    ended = torch.zeros(len(given), dtype=torch.bool, device=given.device)
    for done in range(min(steps, decoding.room - given.shape[1])):
        chosen = choose(decoding(given), temperature, top_k, top_p, generator)
        found.append(chosen)
        given = chosen[:, None]
        if progress:
            progress(done + 1, steps)
        if end is not None:
            ended |= chosen == end
            if ended.all():
                break
    return [cut_after(row, end) for row in (torch.stack(found, dim=1) if found else given[:, :0])]


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


@torch.no_grad()
def beam_search(
    decoding: Decoding,
    given: Tensor,
    steps: int,
    *,
    beams: int,
    end: int | None = None,
    length_penalty: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The likeliest continuation (M,) that the search finds of the given tokens int64 (1, N), M <= steps, up to `end`.

    Continuations are compared by log probability / M^length_penalty (after Wu et al., 2016, section 7). A beam that
    ends is not replaced. One beam is greedy search.
    """
    tails, scores = given.new_zeros(1, 0), torch.zeros(1, device=given.device)
    best, best_score = given[0, :0], float("-inf")

    def keep_best(scores: Tensor, tails: Tensor) -> None:
        nonlocal best, best_score
        for score, tail in zip(scores.tolist(), tails, strict=True):
            if tail.numel() and score / len(tail) ** length_penalty > best_score:
                best, best_score = tail, score / len(tail) ** length_penalty

    for done in range(min(steps, decoding.room - given.shape[1])):
        if progress:
            progress(done + 1, steps)
        following = scores[:, None] + decoding(given).log_softmax(dim=-1)
        scores, places = following.flatten().topk(min(beams, following.numel()))
        rows, chosen = places // following.shape[1], places % following.shape[1]
        tails = torch.cat([tails[rows], chosen[:, None]], dim=1)
        going = torch.ones_like(chosen, dtype=torch.bool) if end is None else chosen != end
        keep_best(scores[~going], tails[~going])
        scores, tails, given = scores[going], tails[going], chosen[going, None]
        # without a penalty, more tokens never make a continuation likelier
        if not len(scores) or (length_penalty == 0 and best_score >= scores.max()):
            break
        decoding.reorder(rows[going])
    else:
        keep_best(scores, tails)
    return best


def cut_after(tokens: Tensor, end: int | None) -> Tensor:
    """Tokens (M,) up to and with the first `end`."""
    ends = (tokens == end).nonzero() if end is not None else []
    return tokens[: int(ends[0]) + 1] if len(ends) else tokens
