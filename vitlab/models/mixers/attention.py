"""Multi-head attention (Vaswani et al., 2017, section 3.2.2), attention without parameters, and the kernel of both.

Shapes: B batch, N tokens, M tokens of a context or a cache, D model width, H heads, K head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.config.schema.fields import Choice
from vitlab.models.layers import rotate
from vitlab.models.mixers import Mixer, MixerSpec


class KeyValueCache:
    """Keys and values (B, H, M, K) of one block's attention layers, kept so that each is computed once.

    `extend` is for self-attention: it has room for `capacity` tokens, allocated with the first. `context` holds a
    context's keys and values, for cross-attention.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.context: tuple[Tensor, Tensor] | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v; return the whole cache, new tokens last."""
        first, self.seen = self.seen, self.seen + k.shape[2]
        if self.keys is None:
            self.keys, self.values = (x.new_empty(*x.shape[:2], self.capacity, x.shape[3]) for x in (k, v))
        self.keys.narrow(2, first, k.shape[2]).copy_(k)  # indexing would take longer, at every token
        self.values.narrow(2, first, k.shape[2]).copy_(v)
        return self.keys.narrow(2, 0, self.seen), self.values.narrow(2, 0, self.seen)

    def reorder(self, rows: Tensor) -> None:
        """Keep the rows of the batch at `rows` (B,), in that order. The context's rows stay as they are."""
        if self.keys is None:
            return
        keys, values = (x[:, :, : self.seen].index_select(0, rows) for x in (self.keys, self.values))
        if len(rows) != len(self.keys):
            shape = (len(rows), *self.keys.shape[1:])
            self.keys, self.values = self.keys.new_empty(shape), self.values.new_empty(shape)
        self.keys[:, :, : self.seen], self.values[:, :, : self.seen] = keys, values

    def keep_context(self, rows: Tensor) -> None:
        """Keep the rows of the context at `rows`, in that order."""
        if self.context is not None:
            self.context = tuple(x.index_select(0, rows) for x in self.context)


class Attention(Mixer):
    """softmax(q k^T / sqrt(K)) v per head, joined by a linear layer.

    Queries come from `x`, keys and values from `context` if there is one (cross-attention), else from `x`. The
    heads are `head_width` wide, by default D / H. `qk_norm` makes the norm of queries and keys (Dehghani et al.,
    2023, section 2.1). `dropout` is applied to the output, `attention_dropout` to the softmax's weights.
    """

    attends = True
    takes_rotary = True
    hides_later = True

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int | None = None,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        qk_norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ):
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"heads={heads} does not divide width={width}")
        head_width = head_width or width // heads
        self.heads = heads
        self.attention_dropout = attention_dropout
        self.scale = head_width**-0.5
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=qkv_bias)
        self.q_norm = nn.Identity() if qk_norm is None else qk_norm(head_width)
        self.k_norm = nn.Identity() if qk_norm is None else qk_norm(head_width)
        self.proj = nn.Linear(heads * head_width, width, bias=proj_bias)
        self.proj_drop = nn.Dropout(dropout)

    def queries_keys_values(
        self, x: Tensor, context: Tensor | None = None, rotary: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute q (B, H, N, K), k and v (B, H, M, K) from x (B, N, D), context (B, M, D) and rotary (2, N, K)."""
        if context is None:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = self.q_norm(q), self.k_norm(k)
            if rotary is not None:
                q, k = rotate(q, rotary), rotate(k, rotary)
            return (q, k, v) if cache is None else (q, *cache.extend(k, v))
        inner = self.qkv.weight.shape[0] // 3
        q_weight, kv_weight = self.qkv.weight.split((inner, 2 * inner))  # two slices would be slower to go back through
        q_bias, kv_bias = (None, None) if self.qkv.bias is None else self.qkv.bias.split((inner, 2 * inner))
        q = F.linear(x, q_weight, q_bias)
        q = self.q_norm(q.unflatten(-1, (self.heads, -1)).transpose(1, 2))
        if cache is not None and cache.context is not None:
            return q, *cache.context
        kv = F.linear(context, kv_weight, kv_bias)
        k, v = kv.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        k = self.k_norm(k)
        if cache is not None:
            cache.context = k, v
        return q, k, v

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        context: Tensor | None = None,
        rotary: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Attend, x (B, N, D) -> (B, N, D); mask broadcastable to (B, H, N, M), bool, True where a query may look, or
        added to the scores, then without `causal`.

        With a cache, x holds the tokens after the cached ones, and M counts all. A context may have fewer rows than x:
        one for each R / B rows of x (R, N, D), such as the beams of one source; then the mask has a row for each of B.
        """
        if context is not None and len(context) != len(x):  # queries do not see each other: a row of them, no copies
            together = x.reshape(len(context), -1, x.shape[2])
            return self(together, mask, context=context, cache=cache).reshape(x.shape)
        q, k, v = self.queries_keys_values(x, context, rotary, cache)
        out = attention(q, k, v, mask, causal, self.scale, self.attention_dropout if self.training else 0.0)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


FEW_KEYS = 512  # up to these the weights of attention take less memory than what else a block keeps


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, dropout: float = 0.0
) -> Tensor:
    """Compute softmax(scale q k^T) v by the fastest kernel: q (B, H, N, K), k and v (B, H, M, K) -> (B, H, N, K).

    Analyses and the counting of operations run without gradients; they catch the call of torch's
    `scaled_dot_product_attention`, here as in timm's models.

    `dropout` drops this share of the softmax's weights and scales the rest by 1 / (1 - dropout).

    mask is broadcastable to (B, H, N, M): bool, True where a query may look, or numbers to add to the scores, then
    without `causal`. The last query looks at all keys: with `causal` the first M - N keys belong to earlier tokens.
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
    """Attend by products of matrices in autocast's type: q (B, H, N, K), k and v (B, H, M, K) -> (B, H, N, K).

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


class PlainAttention(Mixer):
    """softmax(x x^T / sqrt(D)) x: tokens are their own queries, keys and values, in one head of the whole width.

    It has no parameters, and shows the effect of softmax attention before anything is learned.
    """

    attends = True
    hides_later = True
    heads = 1

    def __init__(self, dropout: float = 0.0, attention_dropout: float = 0.0):
        super().__init__()
        self.attention_dropout = attention_dropout
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, causal: bool = False, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Attend, x (B, N, D) -> (B, N, D); mask, causal and cache as in `Attention`."""
        q = x[:, None]
        k, v = (q, q) if cache is None else cache.extend(q, q)
        dropout = self.attention_dropout if self.training else 0.0
        return self.drop(attention(q, k, v, mask, causal, x.shape[2] ** -0.5, dropout)[:, 0])


def build(config: Choice, spec: MixerSpec) -> Attention | PlainAttention:
    if config.kind == "plain_attention":
        return PlainAttention(spec.dropout, spec.attention_dropout)
    return Attention(
        spec.width,
        spec.heads,
        head_width=spec.head_width,
        qkv_bias=config.qkv_bias and spec.bias,
        proj_bias=spec.bias,
        qk_norm=spec.norm if config.qk_norm else None,
        dropout=spec.dropout,
        attention_dropout=spec.attention_dropout,
    )
