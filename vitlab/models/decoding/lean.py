"""Modules for reading few tokens at a time, where a layer takes as long to call as to compute.

Shapes: R rows (sequences), I inputs, O outputs.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models.decoding.pages import HugePages
from vitlab.models.layers import DropPath

ACTIVATIONS = {nn.ReLU: lambda _: F.relu, nn.SiLU: lambda _: F.silu}
ACTIVATIONS[nn.GELU] = lambda module: partial(F.gelu, approximate=module.approximate)
NOTHING = (nn.Identity, nn.Dropout, DropPath)  # in eval mode


class LeanLinear:
    """x W^T + b with the weights (O, I) in the type and the order in which a CPU reads them fastest for R rows.

    In float32 one row is multiplied by columns, if these are longer, in `pages`; all else in the blocks of oneDNN,
    which MKL would make anew at each call. The results differ from nn.Linear's by rounding. Under autocast the weights
    are cast once.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int, pages: HugePages):
        self.weight, self.bias, self.rows, self.pages = weight, bias, rows, pages
        self.kernels: dict[torch.dtype, Callable[[Tensor], Tensor]] = {}  # a layer that is never called is not copied

    def __call__(self, x: Tensor) -> Tensor:
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        if dtype not in self.kernels:
            self.kernels[dtype] = self.choose_kernel(dtype)
        return self.kernels[dtype](x)

    def choose_kernel(self, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        weight, bias = (x if x is None else x.detach().to(dtype) for x in (self.weight, self.bias))
        if weight.device.type == "cpu":
            if self.rows == 1 and dtype == torch.float32:
                by_columns = weight.shape[0] >= weight.shape[1]
                weight = self.pages.copy(weight.t()).t() if by_columns else self.pages.copy(weight)
            elif has_blocks(dtype):
                blocks = torch.ops.mkldnn._reorder_linear_weight(weight, self.rows)
                linear = torch.ops.mkldnn._linear_pointwise.default
                return lambda x: linear(x.to(dtype), blocks, bias, "none", [], "")
        return partial(F.linear, weight=weight, bias=bias)


def has_blocks(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies matrices of a type."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def lean(module: Any, rows: int) -> Any:
    """What computes the same as a module in eval mode without gradients, with less around it, for `rows` sequences.

    It runs the module's own `forward`, on layers that are functions: dropout is none, linear layers are `LeanLinear`,
    which copies their weights. Modules with hooks, in training or of kinds that have nothing to gain stay as they are.
    """
    return make_lean(module, rows, HugePages())


def make_lean(module: Any, rows: int, pages: HugePages) -> Any:
    if module is None or module.training or module._forward_hooks or module._forward_pre_hooks:
        return module
    kind = type(module)
    if kind in NOTHING:
        return unchanged
    if kind in ACTIVATIONS:
        return ACTIVATIONS[kind](module)
    if kind is nn.Linear:
        return LeanLinear(module.weight, module.bias, rows, pages)
    if kind is nn.LayerNorm:
        options = {"weight": module.weight, "bias": module.bias, "eps": module.eps}
        return partial(torch.layer_norm, normalized_shape=module.normalized_shape, **options)
    if kind is nn.ModuleList:
        return [make_lean(child, rows, pages) for child in module]
    if not module._modules or kind.__module__.startswith("torch."):
        return module
    twin = copy.copy(module)
    twin._modules = {}
    for name, child in module._modules.items():
        twin.__dict__[name] = make_lean(child, rows, pages)  # quicker to find than a submodule
    if hasattr(module, "by_tokens"):  # an output layer that is the embeddings
        twin.__dict__["by_tokens"] = LeanLinear(module.text.embed.tokens.weight, None, rows, pages)
    return twin


def unchanged(x: Tensor) -> Tensor:
    return x
