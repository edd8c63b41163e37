"""How well a state of a recurrent decoder fits each state of the encoder, by name.

Shapes: B batch, N queries, M keys, D width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DotScore(nn.Module):
    """q . k, times `scale` (Luong et al., 2015, equation 8; Vaswani et al., 2017, section 3.2.1)."""

    def __init__(self, width: int, scale: float = 1.0):
        super().__init__()
        self.scale = scale

    def keys(self, context: Tensor) -> Tensor:
        """What of the context (B, M, D) is the same for all queries."""
        return context

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """queries (B, N, D), and what `keys` gave -> scores (B, N, M)."""
        return self.scale * queries @ keys.mT


class GeneralScore(DotScore):
    """q W k (Luong et al., 2015, equation 8)."""

    def __init__(self, width: int):
        super().__init__(width)
        self.key = nn.Linear(width, width, bias=False)

    def keys(self, context: Tensor) -> Tensor:
        return self.key(context)


class AdditiveScore(nn.Module):
    """v . tanh(W q + U k) (Bahdanau et al., 2015, appendix A.1.2). It takes memory for B N M D numbers."""

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.sum = nn.Linear(width, 1, bias=False)

    def keys(self, context: Tensor) -> Tensor:
        return self.key(context)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.sum((self.query(queries)[:, :, None] + keys[:, None]).tanh())[..., 0]


class CosineScore(nn.Module):
    """b cos(q, k) with a learned sharpness b > 0 (Graves et al., 2014, equations 5 and 6), which starts at sqrt(D)."""

    def __init__(self, width: int):
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(width) / 2))

    def keys(self, context: Tensor) -> Tensor:
        return F.normalize(context, dim=-1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.log_sharpness.exp() * F.normalize(queries, dim=-1) @ keys.mT


SCORES = {
    "additive": AdditiveScore,
    "dot": DotScore,
    "general": GeneralScore,
    "scaled_dot": lambda width: DotScore(width, width**-0.5),
    "cosine": CosineScore,
}
