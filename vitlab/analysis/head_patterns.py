"""Which known pattern each attention head follows (Vig, 2019, arXiv 1906.05714; Clark et al., 2019, arXiv 1906.04341).

A pattern names the keys that a query attends to. Its mass is the share of the attention that these keys get, over the
queries that have a choice: at least one such key, and one that is not. Its score is the mass beyond that of uniform
attention over the keys that may be looked at, (mass - uniform) / (1 - uniform), as in Cohen's kappa: 0 for uniform
attention (and below it), 1 when all attention follows the pattern. Padding is neither query nor key.

Shapes: P patterns, B batch, H heads, N tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture import Progress, attention_maps, find_attention_layers, track_progress
from vitlab.config.schema import AnalysisConfig
from vitlab.models.text import TextModel
from vitlab.tasks.base import TokenInputs

UNIT = "score"
NEEDS = "attention over the tokens of a text"
SEQUENCES = 16  # looked at together

PATTERNS = {
    "next token": "attention to the token that follows",
    "previous token": "attention to the token before",
    "same token": "attention to other places that hold the same token, special tokens aside",
    "same sentence": "attention between the words of one segment, where there are words of another to attend to",
    "null": "attention to the special tokens, in a causal model to the first token",
}
LABEL = 0.5  # a head is named after a pattern when half of its attention beyond uniform follows it
PART = 0.25  # a head without such a pattern is mixed when two of the narrow ones have a quarter each
BROAD = "same sentence"  # holds most of what the narrow patterns do: names a head only when none of them does


@dataclass(frozen=True)
class Targets:
    """What the patterns ask of one batch."""

    tokens: Tensor  # bool (B, N): those that are no padding
    keys: Tensor  # bool (P, B, N, N): for each query the keys of the pattern
    queries: Tensor  # bool (P, B, N): the queries that have a choice
    uniform: Tensor  # float64 (P, B, N): the mass under uniform attention


def pattern_targets(
    tokens: Tensor, mask: Tensor, special: Tensor, segments: Tensor | None = None, causal: bool = False
) -> Targets:
    """The keys of each of `PATTERNS` for tokens (B, N).

    mask bool (B, N) is False at padding, special bool (B, N) is True at tokens such as [CLS] and [SEP], segments
    (B, N) tell the sentences; without them none is in another sentence. In a causal model a query attends to no
    later key.
    """
    mask, words = mask.bool(), mask.bool() & ~special.bool()
    allowed = mask[:, :, None] & mask[:, None, :]
    if causal:
        allowed = allowed.tril()
    place = torch.arange(tokens.shape[1], device=tokens.device)
    ahead = place[None, :] - place[:, None]
    others = words[:, :, None] & words[:, None, :] & (ahead != 0) & allowed
    same_segment = torch.ones_like(allowed) if segments is None else segments[:, :, None] == segments[:, None, :]
    sinks = mask & (mask.cumsum(1) == 1) if causal else mask & special.bool()
    keys = torch.stack(
        [
            allowed & (ahead == 1),
            allowed & (ahead == -1),
            others & (tokens[:, :, None] == tokens[:, None, :]),
            others & same_segment & (others & ~same_segment).any(-1, keepdim=True),
            allowed & sinks[:, None, :],
        ]
    )
    wanted, possible = keys.sum(-1), allowed.sum(-1)
    return Targets(mask, keys, (wanted > 0) & (wanted < possible), wanted.double() / possible.clamp(min=1))


def pattern_mass(weights: Tensor, targets: Targets) -> Tensor:
    """Mass of each pattern summed over the queries that have a choice: float64 (P, H) for weights (B, H, N, N)."""
    # a row of padding may hold NaN: it had no key to attend to
    weights = weights.masked_fill(~targets.tokens[:, None, :, None], 0.0).float()
    sums = []
    for keys, queries in zip(targets.keys, targets.queries, strict=True):
        mass = torch.einsum("bhqk,bqk->bhq", weights, keys.to(weights)).double()
        sums.append((mass * queries[:, None]).sum((0, 2)))
    return torch.stack(sums)


class HeadPatterns:
    """Scores over many batches; only their sums are kept."""

    def __init__(self):
        self.sums: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # layer -> mass (P, H), uniform (P,), queries (P,)

    def add(self, layer: int, weights: Tensor, targets: Targets) -> None:
        """Count a batch's weights (B, H, N, N) of one layer; `targets` serve all layers of the batch."""
        uniform = (targets.uniform * targets.queries).sum((1, 2))
        counted = [pattern_mass(weights, targets), uniform, targets.queries.sum((1, 2))]
        before = self.sums.get(layer, (0, 0, 0))
        self.sums[layer] = tuple(old + new.cpu() for old, new in zip(before, counted, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """One row {"layer", "head", "label", "score", "scores", "mass"} per head, counted from 1.

        "scores" and "mass" have a value in 0..1 per pattern, None where no query could follow it: in a causal model
        "next token", without a second segment "same sentence". "score" is that of the label; of a head that is
        "mixed" or "none" the largest.
        """
        rows = []
        for layer, (masses, uniform, queries) in sorted(self.sums.items()):
            for head, mass in enumerate(masses.T):
                score = ((mass - uniform) / (queries - uniform)).clamp(0, 1).tolist()
                share = (mass / queries).clamp(0, 1).tolist()
                scores, shares = (
                    {name: round(x, 5) if n else None for name, x, n in zip(PATTERNS, values, queries, strict=True)}
                    for values in (score, share)
                )
                label, best = head_label(scores)
                row = {"layer": layer + 1, "head": head + 1, "label": label, "score": best}
                rows.append(row | {"scores": scores, "mass": shares})
        return rows


def head_label(scores: dict[str, float | None]) -> tuple[str, float]:
    """The pattern that leads and its score; "mixed" or "none" with the largest score where none reaches `LABEL`."""
    defined = {name: score for name, score in scores.items() if score is not None}
    if not defined:
        return "none", 0.0
    narrow = {name: score for name, score in defined.items() if name != BROAD}
    for some in (narrow, defined):
        leader = max(some, key=some.get, default=None)
        if leader is not None and some[leader] >= LABEL:
            return leader, some[leader]
    return "mixed" if sum(score >= PART for score in narrow.values()) >= 2 else "none", max(defined.values())


def applies(model: nn.Module) -> bool:
    """Whether the model has attention over the tokens of a text."""
    return isinstance(model, TextModel) and bool(find_attention_layers(model.text))


def run(
    model: nn.Module, inputs: TokenInputs, config: AnalysisConfig, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """The rows of `HeadPatterns` over all sequences, "value" being the score; of an encoder-decoder the encoder's."""
    patterns = HeadPatterns()
    for part in track_progress(inputs.split(SEQUENCES), progress):
        targets = pattern_targets(part.tokens, part.mask, part.special, part.segments, model.text.causal)
        for layer, weights in attention_maps(model.text, part.tokens, **part.options):
            patterns.add(layer, weights, targets)
    return [{**row, "value": row["score"]} for row in patterns.rows()]
