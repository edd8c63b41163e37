"""Weights that depend on the size of the images: positions and patch embeddings, resampled as timm does it.

Shapes: N patches, D width, C channels, Y x X pixels of a kernel.
"""

import math
from collections.abc import Mapping

import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from timm.models import adapt_input_conv
from torch import Tensor, nn

from vitlab.config import UserError

PREFIX = ("cls_token", "dist_token", "reg_token")  # in the order in which they stand before the patches
Grid = tuple[int, int]  # rows, columns


def first_convolution(model: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """The convolution that reads the images, with its weight's name."""
    convolutions = ((f"{name}.weight", m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d))
    return next(convolutions, None)


def kernels(weight: Tensor, target: nn.Conv2d) -> Tensor:
    """(D, C, Y, X) for the target's channels and, where it embeds patches, for its patch size."""
    if weight.dim() != 4:
        return weight
    if weight.shape[1] != target.in_channels and target.groups == 1:
        weight = adapt_input_conv(target.in_channels, weight, base_chans=weight.shape[1])
    if weight.shape[2:] != target.kernel_size and target.kernel_size == target.stride:
        weight = resample_patch_embed(weight, list(target.kernel_size))
    return weight


def grid_of(model: nn.Module, old: Tensor, value: Tensor) -> Grid | None:
    """The model's grid of patches where `pos_embed` (1, prefix + N, D) is a table of it; None for other designs."""
    grid = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    fits = grid is not None and value.dim() == old.dim() == 3 and value.shape[-1] == old.shape[-1]
    return tuple(grid) if fits and old.shape[1] >= math.prod(grid) else None


def positions(value: Tensor, old: Tensor, grid: Grid, source: Mapping[str, Tensor], known: Grid | None) -> Tensor:
    """(1, prefix + N, D) of a source for the model's grid; `known` is the source's grid, as far as it is.

    A source that does not say its grid is taken to have the model's when it has as many places, else a square one.
    Prefix tokens that the source has without a place get zeros, which is what they had; those that it has not keep what
    `old` has. Raises UserError for a grid that cannot be told.
    """
    if known is None and value.shape == old.shape:
        return value
    prefix, source_grid = old.shape[1] - math.prod(grid), known or square_grid(value, source)
    had = value.shape[1] - math.prod(source_grid)
    if had == prefix and tuple(source_grid) == grid:
        return value
    patches = resample_abs_pos_embed(value[:, had:], list(grid), old_size=list(source_grid), num_prefix_tokens=0)
    zeros = value.new_zeros(1, max(0, prefix_tokens(source) - had), value.shape[-1])
    places = torch.cat([value[:, :had], zeros], dim=1)[:, :prefix]
    return torch.cat([places, old[:, places.shape[1] :][:, : prefix - places.shape[1]], patches], dim=1)


def tokens_with_positions(model: nn.Module, source: Mapping[str, Tensor], known: Grid | None) -> dict[str, Tensor]:
    """The tokens before the patches with the places that they have in a source's table and not in the model's."""
    table, mine = source.get("pos_embed"), model.state_dict()
    if getattr(model, "prefix_positions", None) != 0 or table is None or "pos_embed" not in mine:
        return {}
    if any(source[name].dim() != 3 for name in ("pos_embed", *PREFIX) if name in source):
        return {}
    if known is None and table.shape == mine["pos_embed"].shape:
        return {}
    had, first, moved = table.shape[1] - math.prod(known or square_grid(table, source)), 0, {}
    for name in PREFIX:
        if name in source and had:
            last = first + source[name].shape[1]
            if name in mine:
                moved[name] = source[name] + table[:, first:last]
            first = last
    return moved


def square_grid(table: Tensor, source: Mapping[str, Tensor]) -> Grid:
    """The grid of a table (1, places, D), some of them for the prefix tokens that the source has, or none.

    Raises UserError.
    """
    places, tokens = table.shape[1], prefix_tokens(source)
    for prefix in (tokens, 0):
        side = math.isqrt(max(places - prefix, 0))
        if side and side * side == places - prefix:
            return side, side
    raise UserError(
        f"init: pos_embed has {places} places, {tokens} for prefix tokens and the rest no square: give a run's folder, "
        "which says its grid"
    )


def prefix_tokens(source: Mapping[str, Tensor]) -> int:
    """How many tokens a source has before its patches."""
    return sum(source[name].shape[1] for name in PREFIX if name in source)
