"""Entropy of attention: how many tokens a head spreads over (Clark et al., 2019, section 3.3; Zhai et al., 2023).

The entropy of a query's attention is 0 where it looks at one key, and log M where it looks at all M that it may look at
alike. In a causal model query i has i + 1 keys, so uniform attention of N tokens has the mean of log 1 .. log N, and a
padded text has fewer keys than a full one. So heads of one model compare; those of models that see other numbers of
keys do as shares of what uniform attention has in each.

Shapes: B images or texts, H heads, N queries, M keys, n queries of a block.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vitlab.analysis.capture import Progress, average_per_head, find_attention_layers, takes_images
from vitlab.config.schema import AnalysisConfig
from vitlab.models.text import TextModel
from vitlab.tasks.base import TokenInputs

UNIT = "nats"
NEEDS = "attention that vitlab knows, over images or texts"


def query_entropies(weights: Tensor) -> Tensor:
    """-sum_k w log w (B, H, n) for weights (B, H, n, M); a weight of 0 adds nothing."""
    return torch.special.entr(weights).sum(dim=-1)


def applies(model: nn.Module) -> bool:
    """Whether the model has attention, and takes images or texts."""
    if isinstance(model, TextModel):
        return bool(find_attention_layers(model.text))
    return takes_images(model) and bool(find_attention_layers(model))


def run(
    model: nn.Module, inputs: Tensor | TokenInputs, config: AnalysisConfig, progress: Progress | None = None
) -> dict[str, Any]:
    """One of "rows" {"layer", "head", "value"} per head, both counted from 1, and "references" {name: nats}.

    Of images (B, C, Y, X) as the model takes them, of tokens (B, N), or of a `TokenInputs`, whose padding is neither
    query nor key; of an encoder-decoder the encoder's. Without a reference where layers differ in their number of
    keys. Raises UserError for a model without attention.
    """

    def reduction(weights: Tensor, _: slice) -> Tensor:
        return query_entropies(weights)

    shown = inputs if isinstance(inputs, TokenInputs) else inputs[:1]  # all images have the same number of tokens
    uniform = {row["value"] for row in average_per_head(model, shown, reduction, uniform=True)}
    return {
        "rows": average_per_head(model, inputs, reduction, progress=progress),
        "references": {"uniform attention": uniform.pop()} if len(uniform) == 1 else {},
    }
