"""Weights that depend on the size of the images: position and patch embeddings, resampled as in timm.

Shapes: N patches, D width, C channels, Y x X pixels of a kernel.
"""

import math
from collections.abc import Mapping

import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from timm.models import adapt_input_conv
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.models.base import as_model
from vitlab.models.vit import ViT

PREFIX = ("cls_token", "dist_token", "reg_token")  # in their order before the patches
Grid = tuple[int, int]  # rows, columns


def first_convolution(model: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """The convolution that reads the images, with its weight's name."""
    convolutions = ((f"{name}.weight", m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d))
    return next(convolutions, None)


def resample_kernels(weight: Tensor, target: nn.Conv2d) -> Tensor:
    """(D, C, Y, X) for the target's channels and, where it embeds patches, for its patch size."""
    if weight.dim() != 4:
        return weight
    if weight.shape[1] != target.in_channels and target.groups == 1:
        weight = adapt_input_conv(target.in_channels, weight, base_chans=weight.shape[1])
    if weight.shape[2:] != target.kernel_size and target.kernel_size == target.stride:
        weight = resample_patch_embed(weight, list(target.kernel_size))
    return weight


def find_grid(model: nn.Module, old: Tensor, value: Tensor) -> Grid | None:
    """The model's grid of patches where `pos_embed` (1, prefix + N, D) covers it; None for other designs."""
    patches = as_model(model).patches
    fits = patches is not None and value.dim() == old.dim() == 3 and value.shape[-1] == old.shape[-1]
    return patches.grid_size if fits and old.shape[1] >= math.prod(patches.grid_size) else None


def resample_positions(
    value: Tensor, old: Tensor, grid: Grid, source: Mapping[str, Tensor], source_grid: Grid | None
) -> Tensor:
    """A source's (1, prefix + N, D) for the model's grid.

    Without a known `source_grid` it is the model's where the number of positions is the same, else a square. Prefix
    tokens that have no position in the source get zeros, those that the source lacks keep the position in `old`.
    Raises UserError where the source's grid cannot be inferred.
    """
    if source_grid is None and value.shape == old.shape:
        return value
    prefix, source_grid = old.shape[1] - math.prod(grid), source_grid or infer_square(value, source)
    source_prefix = value.shape[1] - math.prod(source_grid)
    if source_prefix == prefix and tuple(source_grid) == grid:
        return value
    patches = value[:, source_prefix:]
    patches = resample_abs_pos_embed(patches, list(grid), old_size=list(source_grid), num_prefix_tokens=0)
    zeros = value.new_zeros(1, max(0, count_prefix(source) - source_prefix), value.shape[-1])
    first = torch.cat([value[:, :source_prefix], zeros], dim=1)[:, :prefix]
    return torch.cat([first, old[:, first.shape[1] : prefix], patches], dim=1)


def move_token_positions(model: nn.Module, source: Mapping[str, Tensor], source_grid: Grid | None) -> dict[str, Tensor]:
    """Prefix tokens plus their positions in a source, for a model that has positions for patches alone."""
    table, current = source.get("pos_embed"), model.state_dict()
    if not isinstance(model, ViT) or model.prefix_positions or table is None or "pos_embed" not in current:
        return {}
    if source_grid is None and table.shape == current["pos_embed"].shape:
        return {}
    source_prefix = table.shape[1] - math.prod(source_grid or infer_square(table, source))
    first, moved = 0, {}
    for name in PREFIX:
        if name in source and source_prefix:
            last = first + source[name].shape[1]
            if name in current:
                moved[name] = source[name] + table[:, first:last]
            first = last
    return moved


def infer_square(table: Tensor, source: Mapping[str, Tensor]) -> Grid:
    """The square grid of a (1, positions, D), with or without positions of the source's prefix tokens.

    Raises UserError.
    """
    length, tokens = table.shape[1], count_prefix(source)
    for prefix in (tokens, 0):
        side = math.isqrt(max(length - prefix, 0))
        if side and side * side == length - prefix:
            return side, side
    raise UserError(
        f"init: pos_embed has {length} positions for {tokens} prefix tokens and a grid that is not square; give a "
        "run's folder, which holds the grid's size"
    )


def count_prefix(source: Mapping[str, Tensor]) -> int:
    """How many prefix tokens a source has."""
    return sum(source[name].shape[1] for name in PREFIX if name in source)
