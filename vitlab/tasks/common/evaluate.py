"""A model's metrics on a split of a task's data."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import nn
from torchmetrics import MetricCollection

from vitlab.data.base import Split
from vitlab.data.loader import eval_loader
from vitlab.tasks import evaluation_metrics
from vitlab.tasks.base import Task
from vitlab.tasks.common.images import ImageTask
from vitlab.tasks.text_classification import TextClassification

BATCH = 256


def collect_logits(
    model: nn.Module,
    task: ImageTask | TextClassification,
    split: Split,
    autocast: AbstractContextManager,
    workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> torch.Tensor:
    """What a model says of every item of a split, float32 (N, outputs) on the CPU; `model` is in eval mode."""
    device, rows, done = next(model.parameters()).device, [], 0
    size = task.eval_batch_size or BATCH
    with torch.inference_mode():
        for batch in eval_loader(split, batch_size=size, workers=workers, device=device):
            with autocast:
                rows.append(task.logits(model, task.prepare([part.to(device) for part in batch])).cpu())
            done += len(rows[-1])
            if progress:
                progress(f"{task.item}s", done, len(split))
    return torch.cat(rows)


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    autocast: AbstractContextManager,
    workers: int,
    *,
    detailed: bool = False,
    indices: np.ndarray | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> MetricCollection:
    """The task's metrics on a split, without augmentation: scalars, and with `detailed` its tables and texts.

    Of the items at `indices` (N,), by default all. On the model's device, with its outputs in the precision of
    `autocast`. `model` is in eval mode.
    """
    device, done = next(model.parameters()).device, 0
    metrics = (task.metrics(detailed=True) if detailed else evaluation_metrics(task)).to(device)
    with torch.inference_mode():
        size = task.eval_batch_size or BATCH
        for batch in eval_loader(split, batch_size=size, workers=workers, indices=indices, device=device):
            with autocast:
                task.update(metrics, model, task.prepare([part.to(device, non_blocking=True) for part in batch]))
            done += len(batch[0])
            if progress:
                progress(f"test {task.item}s", done, len(split))
    return metrics
