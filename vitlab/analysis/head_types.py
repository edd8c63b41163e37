"""What kind of head each is: one that looks along rows, along columns, nearby, everywhere, or at a sink.

Local and global heads are those of Raghu et al., 2021; sinks are tokens that all queries look at, whatever they are:
registers, the class token (Darcet et al., 2024), one patch. The scores are this project's own.

Shapes: B images, H heads, N tokens, P patches.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture import (
    CHUNK,
    AttentionCall,
    Progress,
    find_patches,
    has_patches,
    track_progress,
    visit_attention,
)
from vitlab.config.schema import AnalysisConfig

UNIT = "share"
NEEDS = "attention over a grid of patches"
applies = has_patches
TYPES = ("row", "column", "local", "global", "sink")


class Totals:
    """Sums over queries, for the scores of heads; `like` (B, H, ...) says how many images and heads."""

    def __init__(self, grid_size: Sequence[int], prefix_tokens: int, like: Tensor):
        rows, columns = self.grid_size = tuple(grid_size)
        places, dtype = torch.arange(rows * columns, device=like.device), torch.float64
        # from each patch to each column and to each row of the grid: (P, columns) and (P, rows)
        self.across = (places % columns).unsqueeze(1).sub(torch.arange(columns, device=like.device)).abs().float()
        self.down = (places // columns).unsqueeze(1).sub(torch.arange(rows, device=like.device)).abs().float()
        self.prefix = prefix_tokens
        self.moved = torch.zeros(2, *like.shape[:2], device=like.device, dtype=dtype)
        self.received = torch.zeros(*like.shape[:2], rows * columns, device=like.device, dtype=dtype)

    def add(self, weights: Tensor, queries: slice) -> None:
        """Weights (B, H, n, N) of these of the N queries."""
        start, stop = (max(place - self.prefix, 0) for place in (queries.start, queries.stop))
        chosen = slice(start, stop)  # of the patches
        weights = weights[:, :, weights.shape[2] - (stop - start) :, self.prefix :]
        grids = weights.unflatten(-1, self.grid_size)
        self.moved[0] += torch.einsum("bhqc,qc->bh", grids.sum(dim=-2), self.across[chosen].to(weights))
        self.moved[1] += torch.einsum("bhqr,qr->bh", grids.sum(dim=-1), self.down[chosen].to(weights))
        self.received += weights.sum(dim=2)

    def scores(self) -> Tensor:
        """The scores (B, H, 5) of each head's types, in the order of `TYPES`; they sum to 1.

        The patches' queries alone count. `sink` is the attention to the prefix tokens and to the one patch that gets
        most, beyond its even share. The rest is shared out by how far the heads look across and down: with x and y the
        mean distance in columns and in rows, over that of uniform attention and at most 1, row x (1 - y), column
        (1 - x) y, local (1 - x) (1 - y), global x y.
        """
        patches = self.received.shape[-1]
        seen = self.received.sum(dim=-1)  # of the attention of as many queries as patches

        def spread(moved: Tensor, even: Tensor) -> Tensor:
            # where nothing goes to patches, or the grid is one patch wide, nothing moves
            return (moved / (seen * even.mean()).clamp(min=1e-12)).clamp(max=1)

        x, y = spread(self.moved[0], self.across), spread(self.moved[1], self.down)
        share = self.received.amax(dim=-1) / seen.clamp(min=1e-12)
        patch_sink = ((share - 1 / patches) / max(1 - 1 / patches, 1e-12)).clamp(0, 1)
        other = seen / patches * (1 - patch_sink)
        kinds = [other * part for part in (x * (1 - y), (1 - x) * y, (1 - x) * (1 - y), x * y)]
        return torch.stack([*kinds, 1 - other], dim=-1)


def run(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """One row {"layer", "head", "type", "value", "row", "column", "local", "global", "sink"} per head.

    Both counted from 1; "type" has the highest score, "value" is that score. Raises UserError for a model without
    attention over patches.
    """
    places = find_patches(model)
    sums: dict[int, Tensor] = {}
    for chunk in track_progress(images.split(CHUNK), progress):

        def visit(layer: int, call: AttentionCall) -> None:
            totals = Totals(places.grid_size, places.prefix, call.q)
            for queries, weights in call.blocks():
                totals.add(weights, queries)
            sums[layer] = sums.get(layer, 0) + totals.scores().sum(dim=0)

        visit_attention(model, chunk, visit)
    return [
        {"layer": layer + 1, "head": head + 1, **describe_head([score / len(images) for score in scores])}
        for layer in sorted(sums)
        for head, scores in enumerate(sums[layer].tolist())
    ]


def describe_head(scores: Sequence[float]) -> dict[str, Any]:
    """A head's type and scores, from the scores in the order of `TYPES`."""
    named = {name: round(score, 5) for name, score in zip(TYPES, scores, strict=True)}
    kind = max(named, key=named.__getitem__)
    return {"type": kind, "value": named[kind], **named}
