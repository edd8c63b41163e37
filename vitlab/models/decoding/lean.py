"""Modules for reading few tokens at a time, where a layer takes as long to call as to compute.

Shapes: R rows (sequences), I inputs, O outputs.
"""

import copy
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.layers import DropPath

ACTIVATIONS = {nn.ReLU: lambda _: F.relu, nn.SiLU: lambda _: F.silu}
ACTIVATIONS[nn.GELU] = lambda module: partial(F.gelu, approximate=module.approximate)
NOTHING = (nn.Identity, nn.Dropout, DropPath)  # in eval mode


class LeanLinear:
    """x W^T + b with the weights (O, I) in the order in which a CPU reads them fastest for R rows.

    Of one row they are multiplied as columns, if these are longer; of more in the blocks of oneDNN, which MKL would
    make anew at each call. The results differ from nn.Linear's by rounding.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int):
        self.weight, self.bias, self.rows = weight, bias, rows

    def __call__(self, x: Tensor) -> Tensor:
        return self.run(x)

    @cached_property
    def run(self) -> Callable[[Tensor], Tensor]:
        """What the first call chooses: a layer that is never called is not copied."""
        weight = self.weight.detach()
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu"):
            if self.rows > 1 and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
                blocks = torch.ops.mkldnn._reorder_linear_weight(weight, self.rows)
                linear = torch.ops.mkldnn._linear_pointwise.default
                return lambda x: linear(x, blocks, self.bias, "none", [], "")
            if self.rows == 1 and weight.shape[0] >= weight.shape[1]:
                weight = weight.t().contiguous().t()
        return partial(F.linear, weight=weight, bias=self.bias)


def lean(module: Any, rows: int) -> Any:
    """What computes the same as a module in eval mode without gradients, with less around it, for `rows` sequences.

    It runs the module's own `forward`, on layers that are functions: dropout is none, linear layers are `LeanLinear`,
    which copies their weights. Modules with hooks, in training or of kinds that have nothing to gain stay as they are.
    """
    if module is None or module.training or module._forward_hooks or module._forward_pre_hooks:
        return module
    kind = type(module)
    if kind in NOTHING:
        return unchanged
    if kind in ACTIVATIONS:
        return ACTIVATIONS[kind](module)
    if kind is nn.Linear:
        return LeanLinear(module.weight, module.bias, rows)
    if kind is nn.LayerNorm:
        options = {"weight": module.weight, "bias": module.bias, "eps": module.eps}
        return partial(torch.layer_norm, normalized_shape=module.normalized_shape, **options)
    if kind is nn.ModuleList:
        return [lean(child, rows) for child in module]
    if not module._modules or kind.__module__.startswith("torch."):
        return module
    twin = copy.copy(module)
    twin._modules = {}
    for name, child in module._modules.items():
        twin.__dict__[name] = lean(child, rows)  # quicker to find than a submodule
    if hasattr(module, "by_tokens"):  # an output layer that is the embeddings
        twin.__dict__["by_tokens"] = LeanLinear(module.text.embed.tokens.weight, None, rows)
    return twin


def unchanged(x: Tensor) -> Tensor:
    return x
