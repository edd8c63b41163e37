"""Effective receptive field: which pixels the middle of a layer's output depends on, and how much.

Luo et al., 2016; for a ViT of the patch in the middle of the grid. Of an even number of units the middle is the one
right of it and below, where strided convolutions have it within a pixel of the picture's middle: with a stride of s in
all, and the usual padding, unit i lies over pixel s i. So a map of one unit lies over the upper left corner, and
its field with it.

Shapes: B images, C channels, Y x X pixels, D width.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.analysis.capture import Progress, find_layers, has_layers, track_progress, watch_outputs
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model

UNIT = "pixels"
NEEDS = "images, and layers named as blocks"
applies = has_layers
WITHIN = 1 - 0.9545  # of the peak: what still belongs to the field, the paper's choice
CHUNK = 8  # images in one forward and backward pass


def receptive_fields(
    model: nn.Module, images: Tensor, chosen: list[int], seed: int = 0, progress: Progress | None = None
) -> Tensor:
    """The fields (len(chosen), Y, X) of the chosen layers (0 is the first), each with a peak of 1.

    The root of the mean over images, of the sum over channels, of (d(v . u) / d pixel)^2, where u (D,) is the layer's
    output in the middle, and v a random direction for each image, for in a plain sum of u channels could cancel.
    Raises UserError for a model without layers, for a layer that does not exist, and where u depends on no pixel.
    """
    layers = list(find_layers(model).values())
    for layer in chosen:
        if not 0 <= layer < len(layers):
            raise UserError(f"layer {layer}: the model has layers 0 to {len(layers) - 1}")
    generator = torch.Generator().manual_seed(seed)
    squares = torch.zeros(len(chosen), *images.shape[-2:], dtype=torch.float64, device=images.device)
    units: dict[int, Tensor] = {}
    modules = {layers[layer]: layer for layer in chosen}
    for chunk in track_progress(images.split(CHUNK), progress):
        pixels = chunk.detach().clone().requires_grad_()
        with torch.enable_grad():
            with watch_outputs(
                model, modules, lambda layer, output: units.update({layer: select_middle(model, output)})
            ):
                model(pixels)
            for place, layer in enumerate(chosen):
                unit = units[layer]
                direction = torch.randn(unit.shape, generator=generator).to(unit)
                (slope,) = torch.autograd.grad((unit * direction).sum(), pixels, retain_graph=True)
                squares[place] += slope.double().square().sum(dim=(0, 1))
    peaks = squares.amax(dim=(1, 2), keepdim=True)
    if not (peaks > 0).all():
        raise UserError(f"{type(model).__name__}: the middle of a layer's output depends on no pixel")
    return (squares / peaks).sqrt().cpu()


def to_map(model: nn.Module, output: Tensor) -> Tensor:
    """A layer's output as a map (B, y, x, D), of its tokens (B, N, D) or its map (B, D, y, x).

    Raises UserError for tokens that are no grid of patches.
    """
    if output.ndim == 3:
        patches = as_model(model).patches
        if patches is None or output.shape[1] != patches.tokens:
            raise UserError(f"{type(model).__name__} has no patch grid, so its layers have no middle")
        return output[:, patches.prefix :].unflatten(1, patches.grid_size)
    return output.movedim(1, -1) if as_model(model).channels_first else output


def select_middle(model: nn.Module, output: Tensor) -> Tensor:
    """What a layer gives in the middle (B, D). Raises UserError as `to_map` does."""
    output = to_map(model, output)
    # a copy, for the next layer may write over it
    return output[:, output.shape[1] // 2, output.shape[2] // 2].clone()


@torch.no_grad()
def measure_grids(model: nn.Module, images: Tensor, chosen: list[int]) -> list[list[int]]:
    """The rows and columns of units in what each of the chosen layers gives. Raises UserError as `to_map` does."""
    layers, grids = list(find_layers(model).values()), {}
    modules = {layers[layer]: layer for layer in chosen}
    with watch_outputs(
        model, modules, lambda layer, output: grids.update({layer: list(to_map(model, output).shape[1:3])})
    ):
        model(images[:1])
    return [grids[layer] for layer in chosen]


def effective_size(field: Tensor) -> float:
    """The side in pixels of a square as large as the part of a field (Y, X) above 4.55% of its peak."""
    return (field > WITHIN * field.max()).sum().sqrt().item()


def run(model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None) -> dict[str, Any]:
    """{"fields": float32 (n, Y, X), "rows": [{"layer", "grid", "value"}, ...]} of `config.layers` layers.

    They stand evenly over the model's depth, the last one always among them; "layer" counts from 1, "grid" is
    [rows, columns] of the units that it gives, "value" the field's effective size. Raises UserError as
    `receptive_fields` does.
    """
    depth = len(find_layers(model))
    count = min(config.layers, depth)
    chosen = [round((place + 1) * depth / count) - 1 for place in range(count)]
    fields = receptive_fields(model, images, chosen, config.seed, progress)
    rows = [
        {"layer": layer + 1, "grid": grid, "value": round(effective_size(field), 5)}
        for layer, grid, field in zip(chosen, measure_grids(model, images, chosen), fields, strict=True)
    ]
    return {"fields": fields.numpy().astype(np.float32), "rows": rows}
