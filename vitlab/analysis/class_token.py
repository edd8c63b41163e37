"""What the class token looks at, head by head, as maps over the picture (Caron et al., 2021, figure 1).

Shapes: B images, L layers, H heads, N tokens, gy x gx patches, Y x X pixels.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.analysis.capture.attention import AttentionCall, attention_layers, has_patches, patches, visit_attention
from vitlab.analysis.capture.heads import CHUNK
from vitlab.analysis.capture.progress import Progress, counted
from vitlab.config import UserError

UNIT = "share"
NEEDS = "attention over a grid of patches, and a class token"


def class_token_maps(weights: Tensor, grid_size: Sequence[int], prefix_tokens: int = 1) -> Tensor:
    """(B, H, gy, gx) for weights (B, H, n, N) whose first query is the class token, as in a layer's (B, H, N, N).

    As they are: what is missing from a sum of 1 went to the tokens before the patches.
    """
    return weights[:, :, 0, prefix_tokens:].unflatten(-1, tuple(grid_size))


def over_picture(maps: Tensor, image_size: Sequence[int]) -> Tensor:
    """Maps (..., gy, gx) drawn to the image's size (..., Y, X), bilinear between the patches' centres."""
    drawn = F.interpolate(maps.flatten(0, -3).unsqueeze(1), size=tuple(image_size), mode="bilinear")
    return drawn.squeeze(1).unflatten(0, maps.shape[:-2])


def applies(model: nn.Module) -> bool:
    """Whether the model has attention over patches, and a class token."""
    return has_patches(model) and getattr(model, "cls_token", None) is not None


def run(
    model: nn.Module, images: Tensor, config: DictConfig, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """{"maps": float32 (B, L, H, gy, gx)} of every head of every layer.

    Raises UserError for a model without attention over patches or without a class token.
    """
    places, depth = patches(model), len(attention_layers(model))
    if not applies(model):
        raise UserError(f"{type(model).__name__} has no class token: its head reads the mean over the patches")
    chunks = []
    for chunk in counted(images.split(CHUNK), progress):
        found: list[Tensor] = [torch.empty(0)] * depth

        def visit(layer: int, call: AttentionCall, found: list[Tensor] = found) -> None:
            found[layer] = class_token_maps(call.weights(slice(0, 1)), places.grid_size, places.prefix)

        visit_attention(model, chunk, visit)
        chunks.append(torch.stack(found, dim=1))
    return {"maps": torch.cat(chunks).float().cpu().numpy()}
