"""Which parts of a picture speak for the class that a model chooses.

Of a model with attention over patches: each layer's attention times the gradient of the class's logit by it, what is
positive, averaged over heads and joined over layers (Chefer et al., "Generic attention-model explainability", 2021,
equations 5 and 6). Of a convolutional network: Grad-CAM of its last block (Selvaraju et al., 2017, equations 1 and 2).

Shapes: B images, H heads, N tokens, K head width, D channels, gy x gx patches or places of the last block.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.analysis.capture import (
    CHUNK,
    AttentionCall,
    KernelCalls,
    Progress,
    enable_fused,
    find_attention_layers,
    find_layers,
    find_patches,
    has_layers,
    has_patches,
    make_attention_call,
    run_eagerly,
    track_progress,
    watch_outputs,
)
from vitlab.analysis.rollout import rollout_maps
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model

UNIT = "probability of the chosen class"
NEEDS = "a head of classes, and blocks of patches or of a convolutional network"


def applies(model: nn.Module) -> bool:
    return as_model(model).classifies and (
        has_patches(model) or (has_layers(model) and not find_attention_layers(model))
    )


class GradientCalls(KernelCalls):
    """Keeps each attention layer's call with its values and its result."""

    def __init__(self, modules: dict[nn.Module, int]):
        super().__init__(modules, lambda layer, call: None)
        self.kept: dict[int, tuple[AttentionCall, Tensor, Tensor]] = {}

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention and self.layer is not None:
            self.kept[self.layer] = make_attention_call(*args, **(kwargs or {})), args[2], result
        return result


def explain_attention(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """(maps (B, gy, gx), logits (B, classes)) of a model with attention over patches."""
    places = find_patches(model)
    modules = {module: layer for layer, module in enumerate(find_attention_layers(model))}
    with torch.enable_grad(), run_eagerly(model), enable_fused(modules), GradientCalls(modules) as calls:
        logits = model(images.requires_grad_())
        kept = [calls.kept[layer] for layer in sorted(calls.kept)]
        # not `backward`, which would change the gradients of a model in training
        gradients = torch.autograd.grad(logits.amax(dim=1).sum(), [result for *_, result in kept])
    joint = torch.eye(places.tokens, device=images.device).expand(len(images), -1, -1)
    for (call, values, _), gradient in zip(kept, gradients, strict=True):
        weights = call.weights()
        by_weight = gradient.to(weights.dtype) @ values.detach().to(weights.dtype).mT  # of out = weights values
        joint = joint + (weights * by_weight).clamp(min=0).mean(dim=1) @ joint
    # what a token says of itself is no share of another one
    joint = joint - torch.eye(places.tokens, device=images.device)
    return rollout_maps(joint, places.grid_size, places.prefix, as_model(model).reads_class_token), logits.detach()


def explain_convolution(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """(maps (B, gy, gx), logits (B, classes)) of a convolutional network: Grad-CAM of its last block."""
    *_, last = find_layers(model).values()
    outputs: list[Tensor] = []
    with torch.enable_grad(), watch_outputs(model, {last: 0}, lambda layer, output: outputs.append(output)):
        logits = model(images.requires_grad_())
        (gradient,) = torch.autograd.grad(logits.amax(dim=1).sum(), outputs)
    values = outputs[0].detach()
    if values.ndim == 3:  # tokens, as of an MLP-Mixer
        places = find_patches(model)
        values, gradient = (x[:, places.prefix :].unflatten(1, places.grid_size) for x in (values, gradient))
    if outputs[0].ndim == 3 or not as_model(model).channels_first:
        values, gradient = values.movedim(-1, 1), gradient.movedim(-1, 1)
    return (gradient.mean(dim=(2, 3), keepdim=True) * values).sum(dim=1).clamp(min=0), logits.detach()


def run(model: nn.Module, images: Tensor, config: AnalysisConfig, progress: Progress | None = None) -> dict[str, Any]:
    """{"maps": float32 (B, gy, gx), each with a largest value of 1 or all 0; "rows": the chosen class of each picture}.

    Raises UserError for a model with neither.
    """
    if not applies(model):
        raise UserError(f"{type(model).__name__}: needs {NEEDS}")
    explain = explain_attention if has_patches(model) else explain_convolution
    maps, rows = [], []
    for chunk in track_progress(images.split(CHUNK), progress):
        found, logits = explain(model, chunk.detach().clone())
        maps.append(found / found.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12))
        shares, chosen = logits.float().softmax(dim=1).max(dim=1)
        rows += [
            {"picture": len(rows) + place, "class": int(number), "value": float(share)}
            for place, (number, share) in enumerate(zip(chosen, shares, strict=True))
        ]
    return {"maps": torch.cat(maps).float().cpu().numpy(), "rows": rows}
