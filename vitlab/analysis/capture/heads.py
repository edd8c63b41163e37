"""One number per attention head: the mean over images and queries of what a reduction leaves.

Shapes: B images or texts, H heads, N tokens.
"""

from typing import Any

from torch import Tensor, nn

from vitlab.analysis.capture.attention import Reduction, reduce_attention
from vitlab.analysis.capture.progress import Progress, track_progress
from vitlab.tasks.base import TokenInputs

CHUNK = 16  # images in one forward pass


def average_per_head(
    model: nn.Module,
    inputs: Tensor | TokenInputs,
    reduction: Reduction,
    first: int = 0,
    progress: Progress | None = None,
    uniform: bool = False,
) -> list[dict[str, Any]]:
    """One row {"layer", "head", "value"} per head, both counted from 1.

    `reduction` gives (B, H, n) for a block of queries; queries before the `first` do not count, nor does padding.
    With `uniform` each layer has one head, which looks at all of its keys alike. Of texts the model's body is looked
    at, which of an encoder-decoder is the encoder.
    """
    totals: dict[int, Tensor] = {}
    of_text = isinstance(inputs, TokenInputs)
    for chunk in track_progress(inputs.split(CHUNK), progress):
        looked, shown, options = (model.text, chunk.tokens, chunk.options) if of_text else (model, chunk, {})
        for layer, values in reduce_attention(looked, shown, reduction, uniform=uniform, **options).items():
            values = values[:, :, first:].double()
            if of_text:  # the mean over the tokens that are no padding
                mask = chunk.mask[:, None, first:]
                means = values.masked_fill(~mask, 0).sum(dim=2) / mask.sum(dim=2)
            else:
                means = values.mean(dim=2)
            totals[layer] = totals.get(layer, 0) + means.sum(dim=0)
    count = len(inputs.tokens if of_text else inputs)
    return [
        {"layer": layer + 1, "head": head + 1, "value": round(value / count, 5)}
        for layer, total in totals.items()
        for head, value in enumerate(total.tolist())
    ]
