"""Analyses of whole pictures and of positions in them: points, robustness, filters, position embeddings.

Shapes: B images, C channels, Y x X pixels, D width (of filters: their number), N positions, P patches on a grid of
gy x gx.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import gcd
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.analysis.capture import (
    Analysis,
    ShowCount,
    find_patches,
    finds,
    in_chunks,
    takes_images,
    track_progress,
)
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model, before_head, evaluating
from vitlab.models.weights import first_convolution
from vitlab.tasks.metrics import IMAGES, LABELS, MEASURES, find_metric


def embedding(features: np.ndarray, perplexity: float = 30.0, seed: int = 0) -> np.ndarray:
    """Place features (B, D) as points float32 (B, 2), starting from their first two principal components: t-SNE.

    Van der Maaten and Hinton, 2008. Neither the axes nor the distances between clusters mean anything.
    `perplexity` is about how many neighbours each has; of few images at most a third of the others.
    """
    from sklearn.manifold import TSNE

    tsne = TSNE(2, perplexity=min(perplexity, (len(features) - 1) / 3), init="pca", random_state=seed)
    return tsne.fit_transform(features).astype(np.float32)


@torch.no_grad()
def run_embedding(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None
) -> dict[str, np.ndarray]:
    """Return {"points": float32 (B, 2)} in the order of the images; `config.perplexity`, `config.seed`.

    Raises UserError for a model that does not say what its head reads.
    """
    features = before_head(model)
    with evaluating(model):
        # t-SNE is a part more
        chunks = in_chunks(images, progress and (lambda done, parts: progress(done, parts + 1)))
        hidden = torch.cat([features(chunk).flatten(1).float().cpu() for chunk in chunks])
    return {"points": embedding(hidden.numpy(), config.perplexity, config.seed)}


LARGEST = 16  # patches along a side


def shuffle_patches(images: Tensor, grid: int, generator: torch.Generator) -> Tensor:
    """Shuffle the grid x grid patches of each image (B, C, Y, X), each image in its own order."""
    cells = cut_patches(images, grid)
    order = torch.rand(len(images), grid * grid, generator=generator).argsort(dim=1).to(images.device)
    return join_patches(cells.gather(1, order[..., None, None, None].expand_as(cells)), grid)


def occlude_patches(images: Tensor, grid: int, share: float, generator: torch.Generator) -> Tensor:
    """Set a random share of the grid x grid patches of each image (B, C, Y, X) to 0.

    0 is the mean of pixels as models take them.
    """
    cells = cut_patches(images, grid)
    rank = torch.rand(len(images), grid * grid, generator=generator).argsort(dim=1).argsort(dim=1).to(images.device)
    return join_patches(cells * (rank >= round(share * grid * grid))[..., None, None, None], grid)


def cut_patches(images: Tensor, grid: int) -> Tensor:
    """Cut (B, C, Y, X) into patches (B, grid * grid, C, Y / grid, X / grid), row by row."""
    cells = images.unflatten(3, (grid, -1)).unflatten(2, (grid, -1))  # (B, C, rows, y, columns, x)
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


def join_patches(cells: Tensor, grid: int) -> Tensor:
    """Invert `cut_patches`."""
    return cells.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


@torch.no_grad()
def run_robustness(
    model: nn.Module,
    images: Tensor,
    config: AnalysisConfig,
    targets: Tensor | None = None,
    progress: ShowCount | None = None,
    of: str = IMAGES,
    scale: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return "rows" {"kind", "strength", "value"}: accuracy, of LABELS mAP, of numbers R2, for changed images.

    Patches change places, or some drawn at random are hidden (Naseer et al., 2021, sections 3.1 and 3.3). Without
    `targets` (B, ...) the model's own answers for the images as they are count as right. "shuffle" is of
    `config.grids` patches along a side (null: all of 2 to 16 that divide the image), "occlusion" of the shares
    `config.shares` of the finest of these grids; each begins with the image as it is, strength 1 and 0. `config.seed`
    draws them. Raises UserError where no grid or not every grid divides the images.
    """
    height, width = images.shape[-2:]
    possible = [count for count in range(2, LARGEST + 1) if gcd(height, width) % count == 0]
    chosen = possible if config.grids is None else sorted(config.grids)
    if not chosen or not set(chosen) <= set(possible):
        raise UserError(
            f"grids={config.grids}: {height} x {width} pixels can be cut into {possible or 'no'} patches along a side"
        )
    with evaluating(model):
        given = predict(model, in_chunks(images), scale)
        answers = given if scale else (given > 0).float() if of == LABELS else given.argmax(dim=1)
        targets = answers if targets is None else targets.to(images.device)
        metric = find_metric({LABELS: "map", MEASURES: "r2"}.get(of, "accuracy"))

        def measure(change: Callable[..., Tensor]) -> float:
            generator = torch.Generator().manual_seed(config.seed)
            changed = (change(chunk, generator=generator) for chunk in in_chunks(images))
            measured = metric.make(given.shape[-1], of).to(images.device)
            measured.update(predict(model, changed, scale), targets)
            return round(measured.compute().item(), 5)

        perturbations = [("shuffle", grid, partial(shuffle_patches, grid=grid)) for grid in [1, *chosen]]
        hide = partial(occlude_patches, grid=chosen[-1])
        perturbations += [("occlusion", share, partial(hide, share=share)) for share in [0, *config.shares]]
        rows = [
            {"kind": kind, "strength": strength, "value": measure(change)}
            for kind, strength, change in track_progress(perturbations, progress)
        ]
    return {"rows": rows, "unit": "share" if metric.percent else metric.name}


def predict(model: nn.Module, batches: Iterable[Tensor], scale: tuple[float, float] | None) -> Tensor:
    """Compute the logits (B, outputs) of the images of some batches, or with a `scale` their numbers (B,)."""
    outputs = torch.cat([model(batch).float() for batch in batches])
    return outputs if scale is None else outputs[:, 0].double() * scale[1] + scale[0]


def rgb_filters(weight: Tensor, components: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Compute the first principal components float32 (n, C, p, q) of filters (D, C, p, q), of length 1, largest first.

    Dosovitskiy et al., 2021, figure 7, left; `position_similarities` is the same figure's center.
    Also return the share of the filters' variance that each component explains (n,). n is at most the number of filters
    and of their weights; components of no variance are left out. A component's sign means nothing; it is fixed so that
    equal filters give equal components.
    """
    from sklearn.decomposition import PCA

    rows = weight.detach().double().flatten(1).cpu().numpy()
    pca = PCA(min(components, *rows.shape), svd_solver="full").fit(rows)
    explained = pca.explained_variance_ratio_
    count = max(1, (explained > 1e-6).sum())  # dead filters leave arbitrary directions
    return pca.components_[:count].reshape(-1, *weight.shape[1:]).astype(np.float32), explained[:count]


def run_rgb_filters(model: nn.Module, images: Tensor, config: AnalysisConfig) -> dict[str, np.ndarray]:
    """Return {"filters": float32 (n, C, p, q), "explained": (n,)}, at most `config.components` of them.

    It looks at no image.
    """
    filters, explained = rgb_filters(first_convolution(model)[1].weight, config.components)
    return {"filters": filters, "explained": explained}


def position_similarities(table: Tensor) -> Tensor:
    """Compute cosine similarities between position embeddings (N, D): float64 (N, N) in -1..1, 0 for a row of zeros."""
    rows = F.normalize(table.detach().double(), dim=1)
    return (rows @ rows.T).clamp(-1, 1)


def position_distances(table: Tensor) -> Tensor:
    """Compute Euclidean distances between position embeddings (N, D): float64 (N, N)."""
    rows = table.detach().double()
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def patch_positions(model: nn.Module) -> Tensor:
    """Find the position embeddings (P, D) of a model's patches, row by row, learned or fixed.

    Raises UserError for a model that adds none, such as one with rotary positions.
    """
    rows, columns = find_patches(model).grid_size
    table = as_model(model).position_table
    if table is None or table.ndim != 3 or table.shape[1] < rows * columns:
        raise UserError(f"{type(model).__name__} does not add position embeddings to its patches")
    return table[0, -rows * columns :]  # those of the prefix tokens come first


def run_position_similarity(model: nn.Module, images: Tensor, config: AnalysisConfig) -> dict[str, np.ndarray]:
    """Return {"similarity": float32 (gy, gx, gy, gx)}: [r, c] is the picture of the patch in row r, column c.

    Does not use the images. Raises UserError as `patch_positions` does.
    """
    grid_size = find_patches(model).grid_size
    similarity = position_similarities(patch_positions(model)).float()
    return {"similarity": similarity.reshape(*grid_size, *grid_size).cpu().numpy()}


ANALYSES = {
    "embedding": Analysis(
        "",
        "images, and features before its head",
        lambda model: takes_images(model) and finds(before_head, model),
        run_embedding,
    ),
    "robustness": Analysis(
        "share",
        "images, and a head",
        lambda model: takes_images(model) and as_model(model).classifies,
        run_robustness,
    ),
    "rgb_filters": Analysis("weight", "a convolution that reads the pixels", takes_images, run_rgb_filters),
    "position_similarity": Analysis(
        "cosine similarity",
        "position embeddings that are added to a grid of patches",
        partial(finds, patch_positions),
        run_position_similarity,
    ),
}
