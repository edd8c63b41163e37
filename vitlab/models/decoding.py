"""Continuing sequences token by token with a model: greedy, sampling, beam search.

Shapes: B sequences, N tokens given of each, n at a time, K beams, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor


class Decoding:
    """Continues a batch of sequences with a model in eval mode.

    The model has `next_logits(tokens (B, n), caches, *context) -> logits (B, V)`. `caches` hold the model's results for
    earlier tokens and have `reorder(rows (B,))`. `room` counts the tokens that still fit. `context` are tensors, or
    None, with one row for each source, also if the source has K beams: attention reads one context for all beams, and
    caches with `keep_context` hold one row for each source, too.
    """

    def __init__(self, model: Any, caches: Sequence[Any], room: int, context: Sequence[Tensor | None] = ()):
        self.model = model
        self.caches = caches
        self.room = room
        self.context = context
        self.beams = 1

    def __call__(self, tokens: Tensor) -> Tensor:
        """Read the next tokens (B, n) and return logits (B, V) of the token after them."""
        self.room -= tokens.shape[1]
        return self.model.next_logits(tokens, self.caches, *self.context)

    def reorder(self, rows: Tensor) -> None:
        """Keep the sequences at `rows` (B', K), as B' x K sequences in that order.

        The K sequences of a row have the same source. Sources keep their order; a source without a row is dropped.
        """
        for cache in self.caches:
            cache.reorder(rows.flatten())
        if self.context and len(rows) < len(self.context[0]):
            sources = rows[:, 0] // self.beams
            self.context = [None if part is None else part[sources] for part in self.context]
            for cache in self.caches:
                cache.keep_context(sources)
        self.beams = rows.shape[1]


def write(
    decoding: Decoding, given: Tensor, steps: int, *, beams: int = 1, length_penalty: float = 0.0, **options: Any
) -> list[Tensor]:
    """Continue tokens by `beam_search` if `beams` > 1, else by `generate`; pass on the options."""
    if beams > 1:
        return beam_search(decoding, given, steps, beams=beams, length_penalty=length_penalty, **options)
    return generate(decoding, given, steps, **options)


NEVER = float("-inf")
NO_TOKEN = -1  # after a continuation's last


@torch.inference_mode()
def beam_search(
    decoding: Decoding,
    given: Tensor,
    steps: int,
    *,
    beams: int,
    end: int | None = None,
    length_penalty: float = 0.0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Tensor]:
    """Find the best continuations (M,) of given tokens int64 (B, N), M <= steps, up to `end`.

    They are compared by log probability / ((5 + M) / 6)^length_penalty (Wu et al., 2016, equation 14), where M counts
    the end token. A beam that ends among the K likeliest is put aside, and K others go on; a sequence is done when none
    of these can become better than its best. Without a penalty one beam is greedy search.
    """
    steps = max(0, min(steps, decoding.room - given.shape[1] + 1))  # the last is not read
    device = given.device
    penalties = ((5 + torch.arange(steps + 1, device=device)) / 6) ** length_penalty
    best = torch.full((len(given), steps), NO_TOKEN, device=device)
    best_scores = torch.full((len(given),), NEVER, device=device)
    searched = torch.arange(len(given), device=device)  # the sequences that are not done
    tails = best[:, None].repeat(1, beams, 1)
    scores = torch.full((len(given), beams), NEVER, device=device)
    scores[:, 0] = 0  # at first all beams are the same one

    for done in range(steps):
        following = decoding(given).float().log_softmax(dim=-1).unflatten(0, (len(searched), -1))
        width, vocabulary = following.shape[1:]  # one beam is read at first, then K
        # of 2 K candidates at least K go on, as each beam ends in one way
        likeliest, places = (scores[:, :, None] + following).flatten(1).topk(2 * beams)
        rows, chosen = places // vocabulary % width, places % vocabulary
        ended = chosen == (NO_TOKEN if end is None else end)

        best_ended, which = (likeliest[:, :beams] / penalties[done + 1]).where(ended[:, :beams], NEVER).max(dim=1)
        better = best_ended > best_scores[searched]
        sequences = better.nonzero()[:, 0]
        improved = searched[better]
        best_scores[improved] = best_ended[better]
        best[improved] = tails[sequences, rows[sequences, which[better]]]
        best[improved, done] = chosen[sequences, which[better]]

        scores, going = likeliest.masked_fill(ended, NEVER).topk(beams)
        rows, chosen = rows.gather(1, going), chosen.gather(1, going)
        tails = tails.gather(1, rows[:, :, None].expand_as(tails))
        tails[:, :, done] = chosen
        # at best they go on with certainty, to the greatest length
        unsure = scores[:, 0] / penalties[steps] > best_scores[searched]
        rows = rows + width * torch.arange(len(rows), device=device)[:, None]
        searched, scores, tails = searched[unsure], scores[unsure], tails[unsure]
        progress(done + 1, steps)
        if not len(searched):
            break
        given = chosen[unsure].view(-1, 1)
        if done + 1 < steps:
            decoding.reorder(rows[unsure])
    better = scores[:, 0] / penalties[steps] > best_scores[searched]
    best[searched[better]] = tails[better, 0]
    return [row[row != NO_TOKEN] for row in best]


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
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Tensor]:
    """Continue given tokens int64 (B, N): continuations (M,), M <= steps, each up to and with its first `end` token.

    Tokens are sampled from softmax(logits / temperature); temperature 0 is greedy. `top_k` keeps the k likeliest tokens
    (Fan et al., 2018), `top_p` the fewest whose probabilities sum to it (Holtzman et al., 2020). Stops at the model's
    length. The model must be in eval mode; progress(done, steps) is called after each token.
    """
    steps = max(0, min(steps, decoding.room - given.shape[1] + 1))  # the last is not read
    written = given.new_full((len(given), steps), NO_TOKEN)
    going = torch.arange(len(given), device=given.device)  # the sequences that are still read
    ended = torch.zeros_like(going, dtype=torch.bool)
    for done in range(steps):
        chosen = choose(decoding(given), temperature, top_k, top_p, generator)
        # found[going, done] = ... takes ten times as long
        written[:, done].index_copy_(0, going, chosen.where(~ended, NO_TOKEN))
        given = chosen[:, None]
        progress(done + 1, steps)
        if end is None:
            continue
        ended |= chosen == end
        left = len(ended) - int(ended.sum())
        if not left:
            break
        if 8 * left <= 7 * len(ended):  # leaving some out copies the caches; 1.2 times as fast as at half
            rows = (~ended).nonzero()
            decoding.reorder(rows)
            given, going, ended = given[rows[:, 0]], going[rows[:, 0]], ended[rows[:, 0]]
    return [row[row != NO_TOKEN] for row in written]


def choose(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: Generator | None
) -> Tensor:
    """Choose one token (B,) for each row of logits (B, V)."""
    if temperature < COLD:
        return logits.argmax(dim=-1)
    probabilities = filter_logits(logits / temperature, top_k, top_p).softmax(dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Set logits (B, V) to minus infinity for tokens outside `top_k` or `top_p`; the likeliest token always stays."""
    ordered, order = logits.sort(dim=-1, descending=True)
    removed = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k is not None:
        removed[:, max(1, top_k) :] = True
    if top_p is not None:
        shares = ordered.masked_fill(removed, float("-inf")).softmax(dim=-1)
        removed |= shares.cumsum(dim=-1) - shares >= top_p
    removed[:, 0] = False
    return logits.masked_fill(removed.scatter(1, order, removed), float("-inf"))
