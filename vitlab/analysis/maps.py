"""Maps over a picture: attention, its rollout, and evidence for a model's answer: the class it chooses, the number.

Shapes: B images, L layers, H heads, N tokens, K head width, D channels, gy x gx patches or places of the last block.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.analysis.capture import (
    Analysis,
    AttentionCall,
    KernelCalls,
    Patches,
    ShowCount,
    find_attention_layers,
    find_layers,
    find_patches,
    has_layers,
    has_patches,
    in_chunks,
    run_eagerly,
    visit_attention,
    watch_outputs,
)
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.models.base import as_model
from vitlab.tasks.metrics import IMAGES, LABELS


def read_maps(call: AttentionCall, places: Patches, class_token: bool) -> Tensor:
    """Read maps (B, H, gy, gx): the class token's attention to each patch (Caron et al., 2021, figure 1), or the mean
    of the patches' attention if the head reads their mean.

    Not renormalized: the rest of a sum of 1 went to the tokens before the patches.
    """
    if class_token:
        return call.weights(slice(0, 1))[:, :, 0, places.prefix :].unflatten(-1, places.grid_size)
    total = 0
    for queries, weights in call.blocks():
        total = total + weights[:, :, max(0, places.prefix - queries.start) :, places.prefix :].sum(dim=2)
    return (total / (places.tokens - places.prefix)).unflatten(-1, places.grid_size)


def run_attention_maps(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None
) -> dict[str, np.ndarray]:
    """Return {"maps": (B, L, H, gy, gx), "rollout": (B, L, gy, gx), both float16, "class_token": 1 if it is mapped}.

    `config.identity` as in `rollout`. Raises UserError for a model without attention over patches.
    """
    places, class_token = find_patches(model), as_model(model).reads_class_token
    maps, reached = [], []
    for chunk in in_chunks(images, progress):
        found: dict[int, tuple[Tensor, Tensor]] = {}
        joint = None

        def visit(layer: int, call: AttentionCall, found: dict[int, Any] = found) -> None:
            nonlocal joint
            joint = extend_rollout(average_heads(layer, call), joint, config.identity)
            rolled = rollout_maps(joint, places.grid_size, places.prefix, class_token)
            found[layer] = read_maps(call, places, class_token), rolled

        visit_attention(model, chunk, visit)
        maps.append(torch.stack([found[layer][0] for layer in sorted(found)], dim=1))
        reached.append(torch.stack([found[layer][1] for layer in sorted(found)], dim=1))
    arrays = {"maps": torch.cat(maps), "rollout": torch.cat(reached)}
    halved = {name: array.half().cpu().numpy() for name, array in arrays.items()}
    return {**halved, "class_token": np.array(class_token, dtype=np.uint8)}


def rollout(model: nn.Module, images: Tensor, identity: bool = True) -> Tensor:
    """Compute A_L ... A_2 A_1 (B, N, N) of a model's layers; hold only the mean of one layer's weights beside it.

    The entries tell how much of each input token reaches each output token. A_l is the mean over the heads, with
    `identity` (mean + I) / 2 for the residual path (Abnar and Zuidema, 2020, section 3), without it as in Dosovitskiy
    et al., 2021, appendix D.8. Each row sums to 1.

    Raises UserError for a model without attention and for one that attends to other tokens than its own.
    """
    joint = None

    def visit(layer: int, call: AttentionCall) -> None:
        nonlocal joint
        joint = extend_rollout(average_heads(layer, call), joint, identity)

    visit_attention(model, images, visit)
    return joint


def average_heads(layer: int, call: AttentionCall) -> Tensor:
    """Average a layer's weights over heads: (B, N, N). Raises UserError if it attends to other tokens than its own."""
    if call.q.shape[2] != call.k.shape[2]:
        raise UserError(f"layer {layer} attends to other tokens than its own: a rollout needs self-attention")
    return torch.cat([weights.mean(dim=1) for _, weights in call.blocks()], dim=1)


def extend_rollout(mean: Tensor, joint: Tensor | None, identity: bool) -> Tensor:
    """Extend the rollout of earlier layers by a layer's mean attention; both are (B, N, N)."""
    if identity:
        mean = (mean + torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)) / 2
    return mean if joint is None else mean @ joint


def rollout_maps(joint: Tensor, grid_size: Sequence[int], prefix_tokens: int = 1, class_token: bool = True) -> Tensor:
    """Cut from a rollout (B, N, N) how much of each patch reaches the head's input: (B, gy, gx).

    The head's input is the class token, the first; or without one the mean over the patches.
    """
    read = joint[:, 0] if class_token else joint[:, prefix_tokens:].mean(dim=1)
    return read[:, prefix_tokens:].unflatten(1, tuple(grid_size))


def run_rollout(
    model: nn.Module, images: Tensor, config: AnalysisConfig, progress: ShowCount | None = None
) -> dict[str, np.ndarray]:
    """Return {"rollout": float32 (B, gy, gx)}; `config.identity` as in `rollout`.

    Raises UserError as `rollout` does, and for a model without a grid of patches.
    """
    places, class_token = find_patches(model), as_model(model).reads_class_token
    maps = [
        rollout_maps(rollout(model, chunk, config.identity), places.grid_size, places.prefix, class_token)
        for chunk in in_chunks(images, progress)
    ]
    return {"rollout": torch.cat(maps).float().cpu().numpy()}


def explain_attention(model: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Explain a model with attention over patches: (maps (B, gy, gx), logits (B, classes)).

    Multiply each layer's attention by the gradient of the class's logit by it, keep the positive part, average over
    heads and join over layers (Chefer et al., "Generic attention-model explainability", 2021, equations 5 and 6).
    """
    places = find_patches(model)
    modules = {module: layer for layer, module in enumerate(find_attention_layers(model))}
    calls: dict[int, tuple[AttentionCall, Tensor, Tensor]] = {}  # with the values and the result of each
    keep = lambda layer, *call: calls.update({layer: call})  # noqa: E731
    with torch.enable_grad(), run_eagerly(model), KernelCalls(modules, keep):
        logits = model(images.requires_grad_())
        kept = [calls[layer] for layer in sorted(calls)]
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
    """Explain a convolutional network by Grad-CAM of its last block: (maps (B, gy, gx), logits (B, classes)).

    Selvaraju et al., 2017, equations 1 and 2.
    """
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


def run_explanation(
    model: nn.Module,
    images: Tensor,
    config: AnalysisConfig,
    progress: ShowCount | None = None,
    of: str = IMAGES,
    scale: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return {"maps": float32 (B, gy, gx), each with largest value 1 or all 0; "rows": the answer for each}.

    The answer is the class or the label with the largest logit, and its probability, or the number in its own unit.
    """
    explain = explain_attention if has_patches(model) else explain_convolution
    maps, rows = [], []
    for chunk in in_chunks(images, progress):
        found, logits = explain(model, chunk.detach().clone())
        maps.append(found / found.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12))
        shares = logits.float().sigmoid() if of == LABELS else logits.float().softmax(dim=1)
        shown = [{"class": int(row.argmax()), "value": float(row.max())} for row in shares]
        if scale is not None:
            shown = [{"value": float(number) * scale[1] + scale[0]} for number in logits[:, 0]]
        rows += shown
    rows = [{"picture": picture, **row} for picture, row in enumerate(rows)]
    found = {"maps": torch.cat(maps).float().cpu().numpy(), "rows": rows}
    return found | ({} if scale is None else {"unit": "the number"})


ANALYSES = {
    "attention_maps": Analysis("share", "attention over a grid of patches", has_patches, run_attention_maps),
    "rollout": Analysis("share", "attention over a grid of patches", has_patches, run_rollout),
    "explanation": Analysis(
        "probability of the chosen class",
        "a head of classes, and blocks of patches or of a convolutional network",
        lambda model: (
            as_model(model).classifies
            and (has_patches(model) or (has_layers(model) and not find_attention_layers(model)))
        ),
        run_explanation,
    ),
}
