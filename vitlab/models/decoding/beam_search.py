"""Beam search over a batch, by any model that gives a `Decoding`.

Shapes: B sequences, N tokens given of each, K beams, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vitlab.models.decoding import Decoding

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
    progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:
    """The best continuations (M,) that the search finds of given tokens int64 (B, N), M <= steps, up to `end`.

    They are compared by log probability / ((5 + M) / 6)^length_penalty (Wu et al., 2016, equation 14), where M counts
    the end token. One that ends among the K likeliest is put aside, and K others go on; a sequence is done when none
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
        if progress:
            progress(done + 1, steps)
        if not len(searched):
            break
        given = chosen[unsure].view(-1, 1)
        if done + 1 < steps:
            decoding.reorder(rows[unsure])
    better = scores[:, 0] / penalties[steps] > best_scores[searched]
    best[searched[better]] = tails[better, 0]
    return [row[row != NO_TOKEN] for row in best]
