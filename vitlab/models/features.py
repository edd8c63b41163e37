"""What a model's head reads: features of images, of own models and timm's.

Shapes: B batch, C channels, Y x X pixels, N images, D width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.data.base import Split
from vitlab.data.loader import eval_loader

Progress = Callable[[str, int, int], None]  # what is done, how far, of how much


@dataclass(frozen=True)
class Features:
    """x float32 (N, D) and labels int64 (N,), both on the CPU."""

    x: Tensor
    labels: Tensor


def before_head(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The function from images (B, C, Y, X) to the features (B, D) that the model's head reads.

    `forward_features` and `forward_head` of timm's models, `features` of own ones. Raises UserError for a model
    with neither.
    """
    if hasattr(model, "forward_features") and hasattr(model, "forward_head"):
        return lambda images: model.forward_head(model.forward_features(images), pre_logits=True).flatten(1)
    # timm's VGG has a `features` too, a part of its body
    if callable(getattr(model, "features", None)) and not isinstance(model.features, nn.Module):
        return model.features
    raise UserError(
        f"{type(model).__name__} does not say what its head reads: probes need a method features(images) -> (B, D)"
    )


def extract(
    model: nn.Module,
    split: Split,
    prepare: Callable[[Any], tuple[Tensor, Tensor]],
    *,
    indices: np.ndarray | None = None,
    batch_size: int = 256,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Features:
    """Features of a split's images, of all or of those at `indices`, in order.

    `prepare` makes a loader's batch what the model takes. Images stream through the model as it is, on its own
    device, in eval mode; progress(done, total) after each batch. Raises UserError as `before_head` does.
    """
    features, device = before_head(model), next(model.parameters()).device
    total = len(split) if indices is None else len(indices)
    x, labels, done = torch.empty(0, 0), torch.empty(total, dtype=torch.int64), 0
    with evaluating(model):
        for batch in eval_loader(split, indices=indices, batch_size=batch_size, workers=workers):
            images, found = prepare([part.to(device) for part in batch])
            with torch.inference_mode():
                rows = features(images).float().cpu()
            if not done:
                x = torch.empty(total, rows.shape[1])
            x[done : done + len(rows)], labels[done : done + len(rows)] = rows, found.cpu()
            done += len(rows)
            if progress:
                progress(done, total)
    if not x.isfinite().all():
        raise UserError("the model's features of these images are not finite: is data.std what it was trained with?")
    return Features(x, labels)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards each of its parts in the mode that it had, for some may be frozen."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
