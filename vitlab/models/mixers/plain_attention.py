"""Attention without parameters: what softmax attention does before anything is learned.

Shapes: B batch, N tokens, M tokens of a context or a cache, D model width.
"""

from torch import Tensor, nn

from vitlab.config.schema.fields import Choice
from vitlab.models.kernels import attention
from vitlab.models.mixers import Mixer, MixerSpec
from vitlab.models.mixers.attention import KeyValueCache


class PlainAttention(Mixer):
    """softmax(x x^T / sqrt(D)) x: tokens are their own queries, keys and values, in one head of the whole width."""

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
        """x (B, N, D) -> (B, N, D); mask, causal and cache as of `Attention`."""
        q = x[:, None]
        k, v = (q, q) if cache is None else cache.extend(q, q)
        dropout = self.attention_dropout if self.training else 0.0
        return self.drop(attention(q, k, v, mask, causal, x.shape[2] ** -0.5, dropout)[:, 0])


def build(config: Choice, spec: MixerSpec) -> PlainAttention:
    return PlainAttention(spec.dropout, spec.attention_dropout)
