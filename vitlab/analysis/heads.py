"""One number per attention head: the mean over images and queries of what a reduction leaves.

Shapes: B images, H heads, N tokens.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.attention import Reduction, reduce_attention

CHUNK = 16  # images in one forward pass


def per_head(model: nn.Module, images: Tensor, reduction: Reduction, first: int = 0) -> list[dict[str, Any]]:
    """One row {"layer", "head", "value"} per head, both counted from 1.

    `reduction` gives (B, H, n) for a block of queries; queries before the `first` do not count.
    """
    totals: dict[int, Tensor] = {}
    for chunk in images.split(CHUNK):
        for layer, values in reduce_attention(model, chunk, reduction).items():
            sums = values[:, :, first:].double().mean(dim=2).sum(dim=0)
            totals[layer] = totals.get(layer, torch.zeros_like(sums)) + sums
    return [
        {"layer": layer + 1, "head": head + 1, "value": round(value / len(images), 5)}
        for layer, total in totals.items()
        for head, value in enumerate(total.tolist())
    ]
