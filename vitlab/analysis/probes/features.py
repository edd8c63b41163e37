"""Features of a split's images, as probes take them.

Shapes: N images, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.config import UserError
from vitlab.data.base import Split
from vitlab.data.loader import eval_loader
from vitlab.models.base import before_head, evaluating

Progress = Callable[[str, int, int], None]  # the name of the work, steps done, steps in all


@dataclass(frozen=True)
class Features:
    """x float32 (N, D) and labels int64 (N,), both on the CPU."""

    x: Tensor
    labels: Tensor


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
