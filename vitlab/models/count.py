"""What a model costs: parameters by part, tokens, floating-point operations."""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from vitlab.models import build


def meta(config: DictConfig, *, num_classes: int, image_size: tuple[int, int], channels: int) -> nn.Module:
    """The model without memory for its weights: enough to count it."""
    with torch.device("meta"):
        return build(config, num_classes=num_classes, image_size=image_size, channels=channels)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def parts(model: nn.Module) -> dict[str, int]:
    """Parameters by part: as the model's `part_of(name)` says, else by its top-level modules."""
    part_of = getattr(model, "part_of", lambda name: name.partition(".")[0])
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        counts[part_of(name)] = counts.get(part_of(name), 0) + parameter.numel()
    return counts


def tokens(model: nn.Module) -> int | None:
    """Tokens per image, prefix tokens included; None for a model without patches, or with fewer at each stage."""
    grid_size = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    prefix = getattr(model, "num_prefix_tokens", None)
    return None if grid_size is None or prefix is None else grid_size[0] * grid_size[1] + prefix


def flops(model: nn.Module, *, image_size: tuple[int, int], channels: int) -> tuple[int, int]:
    """Operations for one image, forward and for a training step (forward and backward): 2 per multiply-add.

    `model` is on the meta device (see `meta`). Counted on the operations that would run: matrix products,
    convolutions, fused attention.
    """
    images = torch.zeros(1, channels, *image_size, device="meta")
    formulas = {torch.ops.aten.convolution_backward: convolution_backward_flops}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        out = model.eval()(images)  # in training mode a norm over a batch of one raises
        forward = counter.get_total_flops()
        out.sum().backward()
    return forward, counter.get_total_flops()


def convolution_backward_flops(
    grad_shape: Sequence[int], x_shape: Sequence[int], weight_shape: Sequence[int], *args: Any, **_: Any
) -> int:
    """As many operations for each asked gradient as forward; torch's own takes grouped convolutions for full ones."""
    transposed, asked = args[4], args[7]
    return conv_flop_count(x_shape, weight_shape, grad_shape, transposed) * sum(asked[:2])
