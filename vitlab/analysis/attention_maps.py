"""Attention of every head of every layer over the picture, and the rollout up to each layer.

The attention is that of the class token (Caron et al., 2021, figure 1); if the model's head reads no class token, it is
the mean over the patches' attention. The rollout is that of Abnar and Zuidema, 2020.

Shapes: B images, L layers, H heads, N tokens, gy x gx patches.
"""

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.analysis.capture import (
    CHUNK,
    AttentionCall,
    Patches,
    Progress,
    find_attention_layers,
    find_patches,
    has_patches,
    track_progress,
    visit_attention,
)
from vitlab.analysis.rollout import average_heads, extend_rollout, rollout_maps
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model

UNIT = "share"
NEEDS = "attention over a grid of patches"
applies = has_patches


def read_maps(call: AttentionCall, places: Patches, class_token: bool) -> Tensor:
    """(B, H, gy, gx): the attention of the class token, or the mean of the patches', to each patch.

    Not renormalised: what is missing from a sum of 1 went to the tokens before the patches.
    """
    if class_token:
        return call.weights(slice(0, 1))[:, :, 0, places.prefix :].unflatten(-1, places.grid_size)
    total = 0
    for queries, weights in call.blocks():
        total = total + weights[:, :, max(0, places.prefix - queries.start) :, places.prefix :].sum(dim=2)
    return (total / (places.tokens - places.prefix)).unflatten(-1, places.grid_size)


def run(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """{"maps": (B, L, H, gy, gx), "rollout": (B, L, gy, gx), both float16; "class_token": 1 if the maps are its}.

    `config.identity` as in `rollout`. Raises UserError for a model without attention over patches.
    """
    places, depth, class_token = (
        find_patches(model),
        len(find_attention_layers(model)),
        as_model(model).reads_class_token,
    )
    maps, reached = [], []
    for chunk in track_progress(images.split(CHUNK), progress):
        found: list[Tensor] = [torch.empty(0)] * depth
        rolled: list[Tensor] = [torch.empty(0)] * depth
        joint = None

        def visit(layer: int, call: AttentionCall, found: list[Tensor] = found, rolled: list[Tensor] = rolled) -> None:
            nonlocal joint
            found[layer] = read_maps(call, places, class_token)
            joint = extend_rollout(average_heads(layer, call), joint, config.identity)
            rolled[layer] = rollout_maps(joint, places.grid_size, places.prefix, class_token)

        visit_attention(model, chunk, visit)
        maps.append(torch.stack(found, dim=1))
        reached.append(torch.stack(rolled, dim=1))
    arrays = {"maps": torch.cat(maps), "rollout": torch.cat(reached)}
    halved = {name: array.half().cpu().numpy() for name, array in arrays.items()}
    return {**halved, "class_token": np.array(class_token, dtype=np.uint8)}
