"""Probes: how well classes can be read off frozen features. One file and one YAML each, under configs/probe/.

A probe's module has `run(train, test, config, progress=None) -> dict`: accuracies on the test features by the name of
their column in results.csv. None stands for one that these training features are too few for. `NAME@DATA` reads the
classes of other data off the features, at the image size and channels of the model's: `fewshot_5@digits`.

Shapes: N training and M test images, D width of the features, C classes.
"""

from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
from torch import Tensor, nn

from vitlab.analysis.probes.features import Progress, extract
from vitlab.config import UserError, load
from vitlab.config.schema import RecipeConfig
from vitlab.config.schema.fields import Choice
from vitlab.data.opening import open_data
from vitlab.registry import implementation
from vitlab.tasks import build_unmeasured
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
    """The numbers of the chosen probes, tested on all held-out images.

    They are trained on the training images at `indices`, those of other data on all of its training images. Raises
    UserError for other data whose images the model does not take.
    """
    numbers: dict[str, float | None] = {}

    def of(what: str) -> Callable[[int, int], None] | None:
        return progress and (lambda done, total: progress(what, done, total))

    for other in dict.fromkeys(name.partition("@")[2] for name in chosen):
        seen, rows = (open_task(other, task), None) if other else (task, indices)
        of_train, of_test = (of(f"features of {part} images") for part in ("training", "held-out"))
        train = extract(model, seen.train, seen.prepare, indices=rows, workers=workers, progress=of_train)
        test = extract(model, seen.test, seen.prepare, workers=workers, progress=of_test)
        for name, _, data in (name.partition("@") for name in chosen):
            if data == other:
                config = load("probe", name)
                found = module_of(config).run(train, test, config, progress)
                numbers |= {f"{key}@{other}" if other else key: value for key, value in found.items()}
    return numbers


def open_task(name: str, like: Task) -> Task:
    """The classification of other data, at the image size of a task's."""
    config = load("data", {"name": name, "image_size": list(like.shape["image_size"])})
    data = open_data(config)
    if data.shape["channels"] != like.shape["channels"]:
        wanted = like.shape["channels"]
        raise UserError(f"probes=[...@{name}]: has {data.shape['channels']} channels, but the model takes {wanted}")
    parts = {"recipe": RecipeConfig(), "data": data, "data_config": config}
    return build_unmeasured(load("task", "classification"), **parts)
