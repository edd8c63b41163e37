"""Mean attention distance (Dosovitskiy et al., 2021, appendix D.7, figures 7 and 11).

Shapes: B images, H heads, N tokens, P patches, n queries of a block.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture import Patches, Progress, average_per_head, find_patches, has_patches
from vitlab.config.schema import AnalysisConfig

UNIT = "pixels"
NEEDS = "attention over a grid of patches"
applies = has_patches


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
    distances = patch_distances((rows, columns), (height, width)).to(weights)
    distances_of_queries = query_distances(weights[:, :, prefix_tokens:], distances, prefix_tokens, renormalize)
    return distances_of_queries.mean(dim=(0, 2))


def query_distances(weights: Tensor, distances: Tensor, prefix_tokens: int, renormalize: bool) -> Tensor:
    """How far each query looks, in pixels: (B, H, n) for weights (B, H, n, N) and the queries' distances (n, P)."""
    weights = weights[..., prefix_tokens:]
    totals = (weights * distances).sum(dim=-1)
    return totals / weights.sum(dim=-1) if renormalize else totals


def patch_distances(grid_size: tuple[int, int], patch_size: tuple[int, int]) -> Tensor:
    """Euclidean distances between the patches of a grid, in pixels: (P, P), row by row."""
    axes = [torch.arange(n, dtype=torch.float64) * side for n, side in zip(grid_size, patch_size, strict=True)]
    places = torch.cartesian_prod(*axes)
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist").float()


def reference_distances(places: Patches, renormalize: bool = False) -> dict[str, float]:
    """What known attention measures on this grid, in pixels: uniform over all tokens, uniform over 3 x 3 patches.

    The uniform one looks at the prefix tokens too, so that it loses their share where nothing is renormalised. The 3 x
    3 patches are those around the query's own, as many of them as the grid has there.
    """
    rows, columns = places.grid_size
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).float()
    near = (torch.cdist(cells, cells, p=float("inf")) < 1.5).float()
    distances = patch_distances(places.grid_size, places.patch_size)
    share = 1.0 if renormalize else len(cells) / places.tokens
    references = {
        "uniform attention": share * distances.mean(),
        "3 x 3 neighbourhood": ((near * distances).sum(dim=1) / near.sum(dim=1)).mean(),
    }
    return {name: round(value.item(), 5) for name, value in references.items()}


def run(model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None) -> dict[str, Any]:
    """One of "rows" {"layer", "head", "value"} per head, both counted from 1, and "references" {name: pixels}.

    images (B, C, Y, X) as the model takes them. Raises UserError for a model without attention over patches.
    """
    places = find_patches(model)
    # a query that is no patch is as far as 0 from all: its row is dropped
    distances = torch.zeros(places.tokens, places.tokens - places.prefix, device=images.device)
    distances[places.prefix :] = patch_distances(places.grid_size, places.patch_size)

    def reduction(weights: Tensor, queries: slice) -> Tensor:
        return query_distances(weights, distances[queries].to(weights), places.prefix, config.renormalize)

    rows = average_per_head(model, images, reduction, places.prefix, progress)
    return {"rows": rows, "references": reference_distances(places, config.renormalize)}
