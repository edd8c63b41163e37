"""Attention rollout: how much of each input token reaches each output token.

Abnar and Zuidema, 2020, section 3, with the identity for the residual path; Dosovitskiy et al., 2021, appendix D.8,
without.

Shapes: B images, H heads, N tokens, gy x gx patches.
"""

from collections.abc import Sequence

import numpy as np
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
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model

UNIT = "share"
NEEDS = "attention over a grid of patches"
applies = has_patches


def rollout(model: nn.Module, images: Tensor, identity: bool = True) -> Tensor:
    """A_L ... A_2 A_1 (B, N, N) of a model's layers; no layer's weights are held beside it but their mean.

    A_l is the mean over the heads, with `identity` (mean + I) / 2. Each row sums to 1.

    Raises UserError for a model without attention and for one that attends to other tokens than its own.
    """
    joint = None

    def visit(layer: int, call: AttentionCall) -> None:
        nonlocal joint
        joint = extend_rollout(average_heads(layer, call), joint, identity)

    visit_attention(model, images, visit)
    return joint


def average_heads(layer: int, call: AttentionCall) -> Tensor:
    """A layer's weights (B, N, N). Raises UserError where it attends to other tokens than its own."""
    if call.q.shape[2] != call.k.shape[2]:
        raise UserError(f"layer {layer} attends to other tokens than its own: a rollout needs self-attention")
    return torch.cat([weights.mean(dim=1) for _, weights in call.blocks()], dim=1)


def extend_rollout(mean: Tensor, joint: Tensor | None, identity: bool) -> Tensor:
    """The rollout (B, N, N) up to a layer of this mean attention, from that of the layers before it."""
    if identity:
        mean = (mean + torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)) / 2
    return mean if joint is None else mean @ joint


def rollout_maps(joint: Tensor, grid_size: Sequence[int], prefix_tokens: int = 1, class_token: bool = True) -> Tensor:
    """What of each patch reaches what the head reads: (B, gy, gx) of a rollout (B, N, N).

    That is the class token, the first; or without one the mean over the patches.
    """
    read = joint[:, 0] if class_token else joint[:, prefix_tokens:].mean(dim=1)
    return read[:, prefix_tokens:].unflatten(1, tuple(grid_size))


def run(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """{"rollout": float32 (B, gy, gx)}; `config.identity` as in `rollout`.

    Raises UserError as `rollout` does, and for a model without a grid of patches.
    """
    places, class_token = find_patches(model), as_model(model).reads_class_token
    maps = [
        rollout_maps(rollout(model, chunk, config.identity), places.grid_size, places.prefix, class_token)
        for chunk in track_progress(images.split(CHUNK), progress)
    ]
    return {"rollout": torch.cat(maps).float().cpu().numpy()}
