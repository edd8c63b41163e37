"""Attention weights, exactly, of models that run the fused kernel.

The kernel never forms the weights. So the inputs of the attention layers are recorded in one forward pass, and the
weights of one layer at a time are computed again from its queries and keys.

Shapes: B batch, H heads, N tokens, K head width, D model width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import timm.layers
import torch
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.models.features import evaluating
from vitlab.models.mixers.attention import Attention

KINDS = (Attention, timm.layers.Attention)


@dataclass(frozen=True)
class Patches:
    """Where a model's tokens are: `prefix` tokens, then a grid of patches row by row."""

    grid_size: tuple[int, int]  # rows, columns
    patch_size: tuple[int, int]  # height, width, pixels
    prefix: int


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The attention modules of a model in the order of its definition; empty when it has none."""
    return [module for module in model.modules() if isinstance(module, KINDS)]


def patches(model: nn.Module) -> Patches:
    """Raises UserError for a model whose tokens are not a grid of patches."""
    embed = getattr(model, "patch_embed", None)
    if embed is None or not hasattr(model, "num_prefix_tokens") or getattr(embed, "grid_size", None) is None:
        raise UserError(f"{type(model).__name__} has no patch grid: attention over pixels needs a vision transformer")
    image_size = embed.img_size if hasattr(embed, "img_size") else embed.image_size
    # not embed.patch_size: behind a convolutional stem a patch is larger than that
    sides = tuple(pixels // cells for pixels, cells in zip(image_size, embed.grid_size, strict=True))
    return Patches(tuple(embed.grid_size), sides, model.num_prefix_tokens)


def attention_maps(
    model: nn.Module, inputs: Tensor, layers: Sequence[int] | None = None, **options: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """(layer, weights (B, H, N, N)) of the asked layers (0 is the first; all by default), one at a time.

    Own models and timm's; `options` are what the model takes beside its inputs, such as a mask or segments. The model
    is left as it is: its mode, its hooks, its fused attention. Raises UserError for a model without attention and for
    a layer that does not exist.
    """
    found = attention_layers(model)
    if not found:
        raise UserError(f"{type(model).__name__} has no attention layers that vitlab knows")
    chosen = list(range(len(found))) if layers is None else [int(layer) for layer in layers]
    for layer in chosen:
        if not 0 <= layer < len(found):
            raise UserError(f"layer {layer}: the model has layers 0 to {len(found) - 1}")
    calls = record_calls(model, inputs, [found[layer] for layer in chosen], **options)
    return (
        (layer, attention_weights(found[layer], calls[found[layer]][0], **calls[found[layer]][1])) for layer in chosen
    )


def record_calls(
    model: nn.Module, inputs: Tensor, modules: Sequence[nn.Module], **options: Tensor
) -> dict[nn.Module, tuple]:
    """The input (B, N, D) and the keyword arguments that each module was called with in one forward pass."""
    calls: dict[nn.Module, tuple] = {}

    def record(module: nn.Module, args: tuple, kwargs: dict) -> None:
        calls[module] = (args[0], kwargs)

    handles = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    try:
        # hooks inside a compiled graph would not run
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), evaluating(model):
            model(inputs, **options)
    finally:
        for handle in handles:
            handle.remove()
    missing = [type(m).__name__ for m in modules if m not in calls]
    if missing:
        raise RuntimeError(f"{len(missing)} attention layers did not run in the model's forward pass")
    return calls


@torch.no_grad()
def attention_weights(
    module: nn.Module,
    x: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    context: Tensor | None = None,
    rotary: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """softmax(q k^T scale) (B, H, N, N) of one attention module for its input (B, N, D).

    (B, H, N, M) with a context (B, M, D). The other arguments are those of the modules' own forward.
    """
    q, k = queries_keys(module, x, context, rotary)
    scores = (q * module.scale) @ k.transpose(-2, -1)
    if causal or is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores[0, 0], dtype=torch.bool).tril(), float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(dim=-1)


def queries_keys(
    module: nn.Module, x: Tensor, context: Tensor | None = None, rotary: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """q (B, H, N, K) and k (B, H, M, K) as the module itself makes them."""
    if isinstance(module, Attention):
        q, k, _ = module.queries_keys_values(x, context, rotary)
        return q, k
    q, k, _ = module.qkv(x).unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return module.q_norm(q), module.k_norm(k)
