"""Multi-head attention (Vaswani et al., 2017, section 3.2.2), always through the fused kernel.

Shapes: B batch, N tokens, M context tokens, D model width, H heads, K head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.models.mixers import MixerSpec
from vitlab.models.positions import rotate


class KeyValueCache:
    """Keys and values (B, H, M, K) of the tokens that one attention layer has seen."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Those of all tokens, the new ones last."""
        if self.keys is not None:
            k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        self.keys, self.values = k, v
        return k, v

    def reorder(self, rows: Tensor) -> None:
        """Keep the rows of the batch at `rows` (B,), in that order."""
        if self.keys is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class Attention(nn.Module):
    """softmax(q k^T / sqrt(K)) v per head, joined by a linear layer.

    Queries come from `x`, keys and values from `context` where there is one (cross-attention), else from `x`. The
    heads are `head_width` wide, by default D / H. `qk_norm` makes the norm of queries and keys (Dehghani et al.,
    2023, section 2.1).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int | None = None,
        qkv_bias: bool = True,
        qk_norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"heads={heads} does not divide width={width}")
        head_width = head_width or width // heads
        self.heads = heads
        self.scale = head_width**-0.5
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=qkv_bias)
        self.q_norm = nn.Identity() if qk_norm is None else qk_norm(head_width)
        self.k_norm = nn.Identity() if qk_norm is None else qk_norm(head_width)
        self.proj = nn.Linear(heads * head_width, width)
        self.proj_drop = nn.Dropout(dropout)

    def queries_keys_values(
        self, x: Tensor, context: Tensor | None = None, rotary: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, N, K), k and v (B, H, M, K), of x (B, N, D), context (B, M, D) and rotary (2, N, K)."""
        if context is None:
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            weight, bias, inner = self.qkv.weight, self.qkv.bias, self.proj.in_features
            q = F.linear(x, weight[:inner], None if bias is None else bias[:inner])
            kv = F.linear(context, weight[inner:], None if bias is None else bias[inner:])
            k, v = kv.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k = self.q_norm(q), self.k_norm(k)
        return (q, k, v) if rotary is None else (rotate(q, rotary), rotate(k, rotary), v)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        context: Tensor | None = None,
        rotary: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """x (B, N, D), mask bool broadcastable to (B, H, N, M), True where a query may look -> (B, N, D).

        With a cache x are the tokens that follow those in it, and M counts all.
        """
        q, k, v = self.queries_keys_values(x, context, rotary)
        before = 0
        if cache is not None:
            before = len(cache)
            k, v = cache.extend(k, v)
        if causal and (mask is not None or before):  # the kernel takes one of them, and has no offset
            earlier = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(before)
            mask, causal = earlier if mask is None else mask & earlier, False
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=self.scale)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


def build(config: DictConfig, spec: MixerSpec) -> Attention:
    return Attention(
        spec.width,
        spec.heads,
        head_width=spec.head_width,
        qkv_bias=config.qkv_bias,
        qk_norm=spec.norm if config.qk_norm else None,
        dropout=spec.dropout,
    )
