"""The layers of any model: the blocks of a transformer or of a ResNet alike, and what they give.

Shapes: B batch, C channels, Y x X pixels, N tokens, D width.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.models.base import BLOCKS, as_model, evaluating


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The residual blocks of a model by name, in the order of its definition.

    Those that the model's `group_matcher` names, as layer-wise decay takes them; timm's models and own ones have it.
    Raises UserError for a model without any.
    """
    groups = as_model(model).group_matcher()
    patterns = groups.get("blocks", "") if isinstance(groups, dict) else BLOCKS  # a few of timm's give a function
    if not isinstance(patterns, str):  # (pattern, None), or with a number for what is not a block, as the last norm
        patterns = "|".join(pattern for pattern, number in patterns if number is None)
    layers = {name: module for name, module in model.named_modules() if name and re.fullmatch(patterns, name)}
    if not layers:
        raise UserError(f"{type(model).__name__} has no layers that vitlab knows: no blocks named as such")
    return layers


def has_layers(model: nn.Module) -> bool:
    """Whether the model has layers that take images."""
    try:
        return takes_images(model) and bool(find_layers(model))
    except UserError:
        return False


def find_first_convolution(model: nn.Module) -> nn.Conv2d:
    """What reads the pixels: a ViT's patch embedding, a ResNet's first convolution. Raises UserError without one."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return module
    raise UserError(f"{type(model).__name__} has no convolution that reads pixels")


def takes_images(model: nn.Module) -> bool:
    """Whether a convolution reads the pixels: a ViT's patch embedding, a ResNet's stem."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


@contextmanager
def watch_outputs(
    model: nn.Module, modules: dict[nn.Module, int], see: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """`see(layer, output)` of each of the modules in forward passes inside this context, in eval mode, not compiled.

    Raises UserError in a forward pass where a module gives something else than one tensor.
    """

    def hook(module: nn.Module, args: tuple, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise UserError(f"{type(model).__name__}: a layer gives {type(output).__name__}, not one tensor")
        see(modules[module], output)

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        with run_eagerly(model):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def run_eagerly(model: nn.Module) -> Iterator[None]:
    """The model in eval mode and, for hooks inside a compiled graph would not run, not compiled."""
    with torch.compiler.set_stance("force_eager"), evaluating(model):
        yield
