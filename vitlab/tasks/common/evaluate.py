"""A model's metrics on the test examples of a task."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn
from torchmetrics import MetricCollection

from vitlab.data.base import Split
from vitlab.data.loader import eval_loader
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


def evaluate_held_out(
    model: nn.Module,
    task: Task,
    autocast: AbstractContextManager,
    workers: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> MetricCollection:
    """Every metric of the task: scalars, and the tables and texts that `task.metrics(detailed=True)` adds to them.

    On the model's device, with its outputs in the precision of `autocast`. `model` is in eval mode.
    """
    device, done = next(model.parameters()).device, 0
    metrics = task.metrics(detailed=True).to(device)
    with torch.inference_mode():
        size = task.eval_batch_size or BATCH
        for batch in eval_loader(task.test, batch_size=size, workers=workers, device=device):
            with autocast:
                task.update(metrics, model, task.prepare([part.to(device, non_blocking=True) for part in batch]))
            done += len(batch[0])
            if progress:
                progress(f"test {task.item}s", done, len(task.test))
    return metrics
