"""Entropy of attention: how many tokens a head spreads over (Clark et al., 2019, section 3.3; Zhai et al., 2023).

Shapes: B images, H heads, N queries, M keys, n queries of a block.
"""

from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.analysis.attention import attention_layers
from vitlab.analysis.heads import per_head
from vitlab.analysis.layers import takes_images

UNIT = "nats"
NEEDS = "attention that vitlab knows, over images or texts"


def attention_entropy(weights: Tensor) -> Tensor:
    """-sum_k w log w, averaged over queries, then over images: (H,) for weights (B, H, N, M).

    All tokens count, those before the patches too. 0 where each query looks at one key, log M where at all alike.
    """
    return query_entropies(weights).mean(dim=(0, 2))


def query_entropies(weights: Tensor) -> Tensor:
    """(B, H, n) for weights (B, H, n, M); a weight of 0 adds nothing."""
    return torch.special.entr(weights).sum(dim=-1)


def applies(model: nn.Module) -> bool:
    """Whether the model takes images and has attention; of padded texts the padding would count."""
    return takes_images(model) and bool(attention_layers(model))


def run(model: nn.Module, images: Tensor, config: DictConfig) -> list[dict[str, Any]]:
    """One row {"layer", "head", "value"} per head, both counted from 1; images (B, C, Y, X) as the model takes them.

    Tokens (B, N) of a text model do too. Raises UserError for a model without attention.
    """
    return per_head(model, images, lambda weights, _: query_entropies(weights))
