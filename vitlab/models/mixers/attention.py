"""Multi-head attention (Vaswani et al., 2017, section 3.2.2), always through the fused kernel.

Shapes: B batch, N tokens, M context tokens, D model width, H heads, K head width.
"""

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn


class Attention(nn.Module):
    """softmax(q k^T / sqrt(K)) v per head, joined by a linear layer.

    Queries come from `x`, keys and values from `context` where there is one (cross-attention), else from `x`.
    """

    def __init__(self, width: int, heads: int, *, qkv_bias: bool = True, dropout: float = 0.0):
        super().__init__()
        if width % heads:
            raise ValueError(f"heads={heads} does not divide width={width}")
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width, bias=qkv_bias)
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(dropout)

    def queries_keys_values(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, N, K), k and v (B, H, M, K), of x (B, N, D) and context (B, M, D)."""
        width = x.shape[-1]
        if context is None:
            return self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        weight, bias = self.qkv.weight, self.qkv.bias
        q = F.linear(x, weight[:width], None if bias is None else bias[:width])
        kv = F.linear(context, weight[width:], None if bias is None else bias[width:])
        k, v = kv.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q.unflatten(-1, (self.heads, -1)).transpose(1, 2), k, v

    def forward(
        self, x: Tensor, mask: Tensor | None = None, causal: bool = False, context: Tensor | None = None
    ) -> Tensor:
        """x (B, N, D), mask bool broadcastable to (B, H, N, M), True where a query may look -> (B, N, D)."""
        q, k, v = self.queries_keys_values(x, context)
        if causal and mask is not None:  # the kernel takes one of them
            mask, causal = mask & torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(), False
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=self.scale)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


def build(config: DictConfig, *, width: int, heads: int, dropout: float) -> Attention:
    return Attention(width, heads, qkv_bias=config.qkv_bias, dropout=dropout)
