"""What a model still recognises when patches change places or are hidden (Naseer et al., 2021, sections 3.1 and 3.3).

Hidden patches are drawn at random (their random PatchDrop).

Shapes: B images, C channels, Y x X pixels, a grid of rows x columns.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture import CHUNK, Progress, takes_images, track_progress
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model, evaluating

UNIT = "share"
NEEDS = "images, and classes"
LARGEST = 16  # patches along a side


def applies(model: nn.Module) -> bool:
    """Whether the model classifies images."""
    return takes_images(model) and as_model(model).classifies


def shuffle_patches(images: Tensor, grid: int, generator: torch.Generator) -> Tensor:
    """The images (B, C, Y, X) with the grid x grid patches of each in an order of its own.

    Raises ValueError where the grid does not divide the image.
    """
    cells = cut_patches(images, grid)
    order = torch.rand(len(images), grid * grid, generator=generator).argsort(dim=1).to(images.device)
    return join_patches(cells.gather(1, order[..., None, None, None].expand_as(cells)), grid)


def occlude_patches(images: Tensor, grid: int, share: float, generator: torch.Generator) -> Tensor:
    """The images (B, C, Y, X) with a share of the grid x grid patches of each, drawn at random, set to 0.

    That is the mean of pixels as models take them. Raises ValueError where the grid does not divide the image.
    """
    cells = cut_patches(images, grid)
    rank = torch.rand(len(images), grid * grid, generator=generator).argsort(dim=1).argsort(dim=1).to(images.device)
    return join_patches(cells * (rank >= round(share * grid * grid))[..., None, None, None], grid)


def cut_patches(images: Tensor, grid: int) -> Tensor:
    """(B, C, Y, X) -> (B, grid * grid, C, Y / grid, X / grid), row by row."""
    height, width = images.shape[-2:]
    if height % grid or width % grid:
        raise ValueError(f"a grid of {grid} x {grid} patches does not divide images of {height} x {width} pixels")
    cells = images.unflatten(3, (grid, -1)).unflatten(2, (grid, -1))  # (B, C, rows, y, columns, x)
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


def join_patches(cells: Tensor, grid: int) -> Tensor:
    """The inverse of `cut_patches`."""
    return cells.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


@torch.no_grad()
def run(
    model: nn.Module,
    images: Tensor,
    config: AnalysisConfig,
    labels: Tensor | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Rows {"kind", "strength", "value"}: the share of images whose class the model still gives.

    That is the label, int64 (B,), or without `labels` the model's own answer for the image as it is. "shuffle" is of
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
        targets = predict(model, images.split(CHUNK)) if labels is None else labels.to(images.device)

        def measure_accuracy(change: Callable[..., Tensor]) -> float:
            generator = torch.Generator().manual_seed(config.seed)
            predicted = predict(model, (change(chunk, generator=generator) for chunk in images.split(CHUNK)))
            return round((predicted == targets).double().mean().item(), 5)

        perturbations = [("shuffle", grid, partial(shuffle_patches, grid=grid)) for grid in [1, *chosen]]
        hide = partial(occlude_patches, grid=chosen[-1])
        perturbations += [("occlusion", share, partial(hide, share=share)) for share in [0, *config.shares]]
        return [
            {"kind": kind, "strength": strength, "value": measure_accuracy(change)}
            for kind, strength, change in track_progress(perturbations, progress)
        ]


def predict(model: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    """The class int64 (B,) that the model gives each image of some batches."""
    return torch.cat([model(batch).argmax(dim=-1) for batch in batches])
