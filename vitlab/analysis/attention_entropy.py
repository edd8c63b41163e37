"""Entropy of attention: how many tokens a head spreads over (Clark et al., 2019, section 3.3; Zhai et al., 2023).

The entropy of a query's attention is 0 where it looks at one key, and log M where it looks at all M that it may look at
alike. It is not divided by that largest value: in a causal model query i has i + 1 keys, so uniform attention of N
tokens has the mean of log 1 .. log N, and a padded text has fewer keys than a full one. So heads of one model compare;
models that see other numbers of keys do not.

Shapes: B images or texts, H heads, N queries, M keys, n queries of a block.
"""

from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from vitlab.analysis.capture.attention import find_attention_layers
from vitlab.analysis.capture.heads import average_per_head
from vitlab.analysis.capture.layers import takes_images
from vitlab.analysis.capture.progress import Progress
from vitlab.tasks.text import TokenInputs

UNIT = "nats"
NEEDS = "attention that vitlab knows, over images or texts"


def query_entropies(weights: Tensor) -> Tensor:
    """-sum_k w log w (B, H, n) for weights (B, H, n, M); a weight of 0 adds nothing."""
    return torch.special.entr(weights).sum(dim=-1)


def applies(model: nn.Module) -> bool:
    """Whether the model has attention, and takes images or texts."""
    return (takes_images(model) or hasattr(model, "text")) and bool(find_attention_layers(model))


def run(
    model: nn.Module, inputs: Tensor | TokenInputs, config: DictConfig, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """One row {"layer", "head", "value"} per head, both counted from 1.

    Of images (B, C, Y, X) as the model takes them, of tokens (B, N), or of a `TokenInputs`, whose padding is neither
    query nor key. Raises UserError for a model without attention.
    """
    return average_per_head(model, inputs, lambda weights, _: query_entropies(weights), progress=progress)
