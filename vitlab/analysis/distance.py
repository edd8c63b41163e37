"""Mean attention distance (Dosovitskiy et al., 2021, appendix D.7, figures 7 and 11).

Shapes: B images, H heads, N tokens, P patches.
"""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.analysis.attention import attention_layers, attention_maps, patches

UNIT = "pixels"
WEIGHTS = 2**26  # attention weights in memory at a time, as far as whole images allow


def attention_distance(
    weights: Tensor,
    grid_size: Sequence[int],
    patch_size: Sequence[int] | int,
    prefix_tokens: int = 1,
    renormalize: bool = False,
) -> Tensor:
    """How far each head looks, in pixels: (H,) for weights (B, H, N, N).

    The distance between the query's patch and the key's, weighted by the attention, averaged over queries, then over
    images. The rows and columns of the `prefix_tokens` first tokens are dropped. The authors' code leaves the rest as
    it is (the default); `renormalize` divides each row by what is left of it. grid_size is (rows, columns),
    patch_size (height, width) or a side. Raises ValueError when the sizes do not fit the weights.
    """
    rows, columns = grid_size
    height, width = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    tokens = prefix_tokens + rows * columns
    if weights.ndim != 4 or weights.shape[-2:] != (tokens, tokens):
        raise ValueError(
            f"weights of shape {tuple(weights.shape)}: a grid of {rows} x {columns} patches and {prefix_tokens} "
            f"prefix tokens needs (B, heads, {tokens}, {tokens})"
        )
    weights = weights[..., prefix_tokens:, prefix_tokens:]
    if renormalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    distances = patch_distances((rows, columns), (height, width)).to(weights)
    return torch.einsum("bhqk,qk->h", weights, distances) / (weights.shape[0] * weights.shape[2])


def patch_distances(grid_size: tuple[int, int], patch_size: tuple[int, int]) -> Tensor:
    """Euclidean distances between the patches of a grid, in pixels: (P, P), row by row."""
    axes = [torch.arange(n, dtype=torch.float64) * side for n, side in zip(grid_size, patch_size, strict=True)]
    places = torch.cartesian_prod(*axes)
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist").float()


def applies(model: nn.Module) -> bool:
    """Whether the model has attention over patches."""
    return bool(attention_layers(model)) and hasattr(model, "patch_embed")


def run(model: nn.Module, images: Tensor, config: DictConfig) -> list[dict[str, Any]]:
    """One row {"layer", "head", "value"} per head, both counted from 1; images (B, C, Y, X) as the model takes them.

    Raises UserError for a model without attention over patches.
    """
    places = patches(model)
    totals: dict[int, Tensor] = {}
    tokens = places.prefix + places.grid_size[0] * places.grid_size[1]
    layer = attention_layers(model)[0]
    heads = layer.heads if hasattr(layer, "heads") else layer.num_heads
    for chunk in images.split(max(1, WEIGHTS // (heads * tokens**2))):
        for layer, weights in attention_maps(model, chunk):
            distance = attention_distance(
                weights, places.grid_size, places.patch_size, places.prefix, config.renormalize
            )
            totals[layer] = totals.get(layer, 0) + distance.double() * len(chunk)
    return [
        {"layer": layer + 1, "head": head + 1, "value": round(value / len(images), 5)}
        for layer, total in totals.items()
        for head, value in enumerate(total.tolist())
    ]
