"""Attention of queries to keys: the only place that chooses a kernel.

Analyses and the counting of operations see the call of torch's `scaled_dot_product_attention` that is made here without
gradients, as in timm's models.

Shapes: B batch, N tokens, M context tokens, H heads, K head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_KEYS = 512  # up to these the weights of attention take less memory than what else a block keeps


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, dropout: float = 0.0
) -> Tensor:
    """softmax(scale q k^T) v: q (B, H, N, K), k and v (B, H, M, K) -> (B, H, N, K).

    `dropout` is the share of the softmax's weights that are left out; the others grow by 1 / (1 - dropout).

    mask is broadcastable to (B, H, N, M): bool, True where a query may look, or added to the scores, then without
    `causal`. The last query looks at all keys: with `causal` the first M - N keys are of tokens before those in q.
    """
    causal = causal and q.shape[2] > 1  # a last token looks at all
    if causal and (mask is not None or k.shape[2] > q.shape[2]):  # the kernel takes one of them, and has no offset
        before = k.shape[2] - q.shape[2]
        earlier = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(before)
        mask, causal = earlier if mask is None else mask & earlier, False
    trains_in_bf16 = torch.is_grad_enabled() and q.is_cpu and torch.is_autocast_enabled("cpu")
    if trains_in_bf16 and k.shape[2] <= FEW_KEYS:
        return multiply(q, k, v, mask, causal, scale, dropout)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale)


def multiply(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attention as products of matrices in autocast's type: q (B, H, N, K), k and v (B, H, M, K) -> (B, H, N, K).

    A CPU trains so in 0.5 to 0.6 of the fused kernel's time in float32, which is less than the kernel's in bf16.
    """
    dtype = torch.get_autocast_dtype("cpu")
    least = torch.finfo(dtype).min  # a query that may look at nothing would have no number with -inf
    if causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    if mask is None:
        bias = q.new_empty((), dtype=dtype)
    elif mask.dtype == torch.bool:
        bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, least)
    else:
        bias = mask.to(dtype).clamp(min=least)
    if bias.dim() > 2:
        bias = bias.expand(*q.shape[:2], *bias.shape[-2:]).flatten(0, 1)
    queries, keys, values = (x.to(dtype).flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(bias, queries, keys.mT, beta=int(mask is not None), alpha=scale)
    return torch.bmm(F.dropout(scores.softmax(-1), dropout), values).unflatten(0, q.shape[:2])
