"""Probes: how well classes can be read off frozen features. One file and one YAML each, under configs/probe/.

A probe's module has `run(train, test, config, progress=None) -> dict`: accuracies on the test features by the name of
their column in results.csv. None stands for one that these training features are too few for.

Shapes: N training and M test images, D width of the features, C classes.
"""

from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
from torch import Tensor, nn

from vitlab.analysis.probes.features import Progress, extract
from vitlab.config import load
from vitlab.config.schema.fields import Choice
from vitlab.registry import implementation
from vitlab.tasks.base import Task


def module_of(config: Choice) -> ModuleType:
    """The module that implements a probe."""
    return implementation("vitlab.analysis.probes", config.kind, "run")


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The share of labels (M,) that were predicted."""
    return (predicted == labels).double().mean().item()


def measure(
    model: nn.Module,
    task: Task,
    chosen: Sequence[str],
    indices: np.ndarray,
    workers: int = 0,
    progress: Progress | None = None,
) -> dict[str, float | None]:
    """The numbers of the chosen probes: trained on the training images at `indices`, tested on all held-out ones."""
    if not chosen:
        return {}

    def of(what: str) -> Callable[[int, int], None] | None:
        return progress and (lambda done, total: progress(what, done, total))

    train = extract(
        model, task.train, task.prepare, indices=indices, workers=workers, progress=of("features of training images")
    )
    test = extract(model, task.test, task.prepare, workers=workers, progress=of("features of held-out images"))
    numbers: dict[str, float | None] = {}
    for name in chosen:
        config = load("probe", name)
        numbers |= module_of(config).run(train, test, config, progress)
    return numbers
