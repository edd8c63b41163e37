"""Attention weights, exactly, of models that run the fused kernel.

The kernel never forms the weights. So its calls are intercepted during one forward pass: the weights are computed again
from a layer's queries, keys, mask and scale, in float32 or better, a block of queries at a time.

Shapes: B batch, H heads, N queries, M keys (N where a layer attends to its own tokens), K head width, n queries of a
block.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import timm.layers
import torch
import torch.nn.functional as F
from timm.models.beit import Attention as BeitAttention
from timm.models.eva import EvaAttention
from timm.models.vision_transformer import ParallelScalingBlock
from timm.models.vision_transformer_relpos import RelPosAttention
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitlab.analysis.capture.layers import run_eagerly
from vitlab.config import UserError
from vitlab.models.base import Patches, as_model
from vitlab.models.mixers import Mixer

# of timm; each calls the kernel once, with all of its tokens
KINDS = (
    timm.layers.Attention,
    timm.layers.AttentionRope,
    BeitAttention,
    EvaAttention,
    ParallelScalingBlock,
    RelPosAttention,
)
HIDDEN = -1e4  # a mask that adds this or less to a score hides the key
BLOCK = 2**20  # weights in memory at a time, as far as whole queries allow


@dataclass(frozen=True)
class AttentionCall:
    """What one attention layer gave the kernel.

    q (B, H, N, K), k (B, H, M, K). `mask` is broadcastable to (B, H, N, M): bool, True where a query may look, or a
    number to add to the score. `causal` hides key j from query i < j.
    """

    q: Tensor
    k: Tensor
    mask: Tensor | None
    causal: bool
    scale: float

    def weights(self, queries: slice = slice(None)) -> Tensor:
        """softmax(q k^T scale + mask) (B, H, n, M) of some of the queries, by default of all.

        float32, or float64 where the layer's are. As the kernel has it, a query that may look nowhere gets zeros.
        """
        dtype = torch.promote_types(self.q.dtype, torch.float32)
        with torch.no_grad(), torch.autocast(self.q.device.type, enabled=False):
            scores = (self.q[:, :, queries].to(dtype) * self.scale) @ self.k.to(dtype).mT
            if self.causal:
                places = torch.arange(max(self.q.shape[2], self.k.shape[2]), device=scores.device)
                rows = places[: self.q.shape[2]][queries]
                scores.masked_fill_(places[: self.k.shape[2]] > rows[:, None], float("-inf"))
            if self.mask is None:
                return scores.softmax(dim=-1)
            mask = self.mask if self.mask.shape[-2] == 1 else self.mask[..., queries, :]
            scores = scores.masked_fill_(~mask, float("-inf")) if mask.dtype == torch.bool else scores.add_(mask)
            nowhere = (scores == float("-inf")).all(dim=-1, keepdim=True)
            return scores.softmax(dim=-1).masked_fill_(nowhere, 0)

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[slice, Tensor]]:
        """(which queries, their weights (B, H, n, M)) of all queries in turn, about `size` weights at a time."""
        call = self.copy(torch.promote_types(self.q.dtype, torch.float32))
        queries = self.q.shape[2]
        step = max(1, size // (self.q.shape[0] * self.q.shape[1] * self.k.shape[2]))
        for first in range(0, queries, step):
            chosen = slice(first, min(first + step, queries))
            yield chosen, call.weights(chosen)

    def uniform(self) -> "AttentionCall":
        """With one head, whose queries look at all keys alike that they may look at."""
        mask = None if self.mask is None else self.mask[:, :1] if self.mask.ndim == 4 else self.mask
        if mask is not None and mask.dtype != torch.bool:
            mask = mask > HIDDEN
        return replace(self, q=torch.zeros_like(self.q[:, :1]), k=self.k[:, :1], mask=mask)

    def copy(self, dtype: torch.dtype | None = None) -> "AttentionCall":
        """With q and k of their own, contiguous: as views they keep the values in memory too."""
        q, k = (part.to(dtype or part.dtype).clone(memory_format=torch.contiguous_format) for part in (self.q, self.k))
        return replace(self, q=q, k=k)


Reduction = Callable[[Tensor, slice], Tensor]  # weights (B, H, n, M) of these queries -> (B, any, n, ...)


def find_attention_layers(model: nn.Module) -> list[nn.Module]:
    """The attention modules of a model in the order of its definition; empty when it has none."""
    return [m for m in model.modules() if isinstance(m, KINDS) or (isinstance(m, Mixer) and m.attends)]


def find_patches(model: nn.Module) -> Patches:
    """Raises UserError for a model whose tokens are not a grid of patches."""
    patches = as_model(model).patches
    if patches is None:
        raise UserError(f"{type(model).__name__} has no patch grid: attention over pixels needs a vision transformer")
    return patches


def has_patches(model: nn.Module) -> bool:
    """Whether the model has attention over a grid of patches."""
    return bool(find_attention_layers(model)) and as_model(model).patches is not None


def attention_maps(
    model: nn.Module, inputs: Tensor, layers: Sequence[int] | None = None, **forward: Any
) -> Iterator[tuple[int, Tensor]]:
    """(layer, weights (B, H, N, M)) of the asked layers (0 is the first; all by default), one at a time.

    Own models and timm's; `forward` is what the model's forward takes beside its inputs, such as a padding mask. It
    keeps the queries and keys of the asked layers: for many images call it with a few at a time, or call
    `reduce_attention`, which keeps neither. Raises UserError for a model without attention and for a layer that does
    not exist.
    """
    calls: dict[int, AttentionCall] = {}
    visit_attention(model, inputs, lambda layer, call: calls.update({layer: call.copy()}), layers, **forward)
    return ((layer, calls[layer].weights()) for layer in (calls if layers is None else map(int, layers)))


def reduce_attention(
    model: nn.Module,
    inputs: Tensor,
    reduction: Reduction,
    layers: Sequence[int] | None = None,
    block: int = BLOCK,
    uniform: bool = False,
    **forward: Any,
) -> dict[int, Tensor]:
    """{layer: what `reduction` leaves of its weights}, without ever holding the weights of a layer.

    `reduction(weights (B, H, n, M), queries)` is called for a block of queries at a time, during the forward pass; its
    results (B, any, n, ...) are joined along the queries: (B, any, N, ...). With `uniform` they are the weights of one
    head that looks at all of its keys alike. The rest is as in `attention_maps`.
    """
    reduced: dict[int, Tensor] = {}

    def visit(layer: int, call: AttentionCall) -> None:
        blocks = (call.uniform() if uniform else call).blocks(block)
        reduced[layer] = torch.cat([reduction(weights, queries) for queries, weights in blocks], dim=2)

    visit_attention(model, inputs, visit, layers, **forward)
    return {layer: reduced[layer] for layer in sorted(reduced)}


def visit_attention(
    model: nn.Module,
    inputs: Tensor,
    visit: Callable[[int, AttentionCall], None],
    layers: Sequence[int] | None = None,
    **forward: Any,
) -> None:
    """One forward pass in which each asked layer is shown to `visit(layer, call)` as it runs, in that order.

    The model is left as it is: its mode, its hooks, its fused attention; a layer that was set not to use the kernel
    does so inside this context. Raises as `attention_maps` does, and RuntimeError where a layer did not run once.
    """
    attention_layers = find_attention_layers(model)
    if not attention_layers:
        raise UserError(
            f"{type(model).__name__} has no attention layers that vitlab knows: "
            "window, channel and talking-heads attention are not supported"
        )
    chosen = range(len(attention_layers)) if layers is None else [int(layer) for layer in layers]
    for layer in chosen:
        if not 0 <= layer < len(attention_layers):
            raise UserError(f"layer {layer}: the model has layers 0 to {len(attention_layers) - 1}")
    modules = {attention_layers[layer]: layer for layer in chosen}
    seen: list[int] = []

    def seeing(layer: int, call: AttentionCall) -> None:
        seen.append(layer)
        visit(layer, call)

    with torch.no_grad(), run_eagerly(model), enable_fused(modules), KernelCalls(modules, seeing):
        model(inputs, **forward)
    missing, twice = len(modules) - len(set(seen)), len(seen) - len(set(seen))
    if missing or twice:
        problem = (
            f"{missing} attention layers did not run" if missing else f"{twice} attention layers ran more than once"
        )
        raise RuntimeError(f"{problem} in the model's forward pass")


class KernelCalls(TorchFunctionMode):
    """While it is entered, shows `visit(layer, call)` each call of the fused kernel inside one of the modules."""

    def __init__(self, modules: dict[nn.Module, int], visit: Callable[[int, AttentionCall], None]):
        super().__init__()
        self.modules, self.visit = modules, visit
        self.layer: int | None = None  # the one that is running

    def __enter__(self) -> "KernelCalls":
        self.handles = [module.register_forward_pre_hook(self.begin) for module in self.modules]
        self.handles += [module.register_forward_hook(self.end) for module in self.modules]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self.handles:
            handle.remove()

    def begin(self, module: nn.Module, args: tuple) -> None:
        self.layer = self.modules[module]

    def end(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.layer = None

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and self.layer is not None:
            self.visit(self.layer, make_attention_call(*args, **kwargs))
        return func(*args, **kwargs)


def make_attention_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> AttentionCall:
    """From the arguments of torch's scaled_dot_product_attention."""
    return AttentionCall(query, key, attn_mask, is_causal, query.shape[-1] ** -0.5 if scale is None else scale)


@contextmanager
def enable_fused(modules: dict[nn.Module, int]) -> Iterator[None]:
    """timm's layers among the modules call the kernel; afterwards each as before."""
    off = [module for module in modules if isinstance(module, KINDS) and not module.fused_attn]
    for module in off:
        module.fused_attn = True
    try:
        yield
    finally:
        for module in off:
            module.fused_attn = False
