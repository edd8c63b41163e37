"""`vitlab eval`: a finished run on held-out data."""

import json
from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig

from vitlab import tasks
from vitlab.commands.opening import open_data
from vitlab.config import UserError
from vitlab.data.base import ImageData
from vitlab.data.loader import eval_loader
from vitlab.training.load import load_run


def evaluate(run: str, config: DictConfig, *, as_json: bool) -> int:
    """Print a run's metrics on the held-out data of a configuration, its own or a changed one; the exit code.

    Raises UserError for a folder without a finished run and for data that the model does not fit.
    """
    loaded = load_run(run)
    data = open_data(config.data)
    refuse_misfit(loaded.shape, data)
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    metrics = task.metrics()
    with torch.inference_mode():
        for batch in eval_loader(data.test, batch_size=256):
            task.update(metrics, loaded.model, task.prepare(batch))
    found = {name: float(value) for name, value in metrics.compute().items()}
    if as_json:
        print(json.dumps({"run": run, "data": data.name, "images": len(data.test), **found}, indent=1))
    else:
        print(f"{run} on {len(data.test):,} held-out images of {data.name}:")
        for name, value in found.items():
            print(f"  {name:10} {value:.4f}")
    return 0


def refuse_misfit(
    shape: dict[str, Any], data: ImageData, keys: Sequence[str] = ("num_classes", "image_size", "channels")
) -> None:
    """Raise UserError unless a model that was built for `shape` takes this data, in all that the keys name."""
    there = {"num_classes": len(data.classes), "image_size": list(data.image_size), "channels": data.channels}
    problems = [
        f"data={data.name}: has {key}={there[key]}, the run's model was trained for {shape[key]}"
        for key in keys
        if there[key] != shape[key]
    ]
    if problems:
        raise UserError(problems)
