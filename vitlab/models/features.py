"""Features, the input of a model's head: of this project's models and timm's.

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

Progress = Callable[[str, int, int], None]  # the name of the work, steps done, steps in all


@dataclass(frozen=True)
class Features:
    """x float32 (N, D) and labels int64 (N,), both on the CPU."""

    x: Tensor
    labels: Tensor


def extract_features(model: nn.Module, inputs: Tensor) -> Tensor:
    """The input of the model's head, for a batch that is on the model's device.

    Images (B, C, Y, X) -> (B, D), also of a model with `num_classes=0`; tokens (B, N) -> (B, D) for a classifier of
    whole texts, else the hidden states (B, N, D). The model's mode (train or eval) stays. Raises UserError for a model
    that has neither timm's `forward_features` and `forward_head` nor a method `features`.
    """
    return before_head(model)(inputs)


def before_head(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The function that `extract_features` calls. Raises UserError for a model without one."""
    if hasattr(model, "forward_features") and hasattr(model, "forward_head"):
        return lambda images: model.forward_head(model.forward_features(images), pre_logits=True).flatten(1)
    # in timm's VGG `features` is a module
    if callable(getattr(model, "features", None)) and not isinstance(model.features, nn.Module):
        return model.features
    raise UserError(
        f"{type(model).__name__} has no method features(inputs) -> (B, D), which probes and extract_features need"
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

    `prepare` turns a loader's batch into the model's inputs and labels. The model runs in eval mode on its device;
    progress(done, total) is called after each batch. Raises UserError as `extract_features` does, and for features
    that are not finite.
    """
    features, device = before_head(model), next(model.parameters()).device
    total = len(split) if indices is None else len(indices)
    x, labels, done = torch.empty(0, 0), torch.empty(total, dtype=torch.int64), 0
    with evaluating(model):
        for batch in eval_loader(split, indices=indices, batch_size=batch_size, workers=workers):
            images, batch_labels = prepare([part.to(device) for part in batch])
            with torch.inference_mode():
                rows = features(images).float().cpu()
            if not done:
                x = torch.empty(total, rows.shape[1])
            x[done : done + len(rows)], labels[done : done + len(rows)] = rows, batch_labels.cpu()
            done += len(rows)
            if progress:
                progress(done, total)
    if not x.isfinite().all():
        raise UserError("the model's features of these images are not finite; check data.mean and data.std")
    return Features(x, labels)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards each module has its mode back, as some may be frozen in eval mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
