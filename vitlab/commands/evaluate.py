"""`vitlab eval`: a finished run on held-out data."""

import json

import torch
from omegaconf import DictConfig

from vitlab import tasks
from vitlab.commands.opening import open_data
from vitlab.config import UserError
from vitlab.data.base import ImageData
from vitlab.data.loader import eval_loader
from vitlab.training.load import LoadedRun, load_run


def evaluate(run: str, config: DictConfig, *, as_json: bool) -> int:
    """Print a run's metrics on the held-out data of a configuration, its own or a changed one; the exit code.

    Raises UserError for a folder without a finished run and for data that the model does not fit.
    """
    loaded = load_run(run)
    data = open_data(config.data)
    refuse_misfit(loaded, data)
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


def refuse_misfit(run: LoadedRun, data: ImageData, images_alone: bool = False) -> None:
    """Raise UserError unless a run's model takes these images and, but for `images_alone`, means the same classes."""
    there = {"image_size": list(data.image_size), "channels": data.channels}
    there |= {} if images_alone else {"num_classes": len(data.classes)}
    problems = [
        f"data={data.name}: has {key}={value}, the run's model was trained for {run.shape[key]}"
        for key, value in there.items()
        if value != run.shape[key]
    ]
    if not problems and not images_alone and run.classes != data.classes:
        pairs = zip(run.classes, data.classes, strict=True)
        mine, other = next(pair for pair in pairs if pair[0] != pair[1])
        problems = [f"data={data.name}: its classes are not the run's: '{other}' stands in the place of '{mine}'"]
    if problems:
        raise UserError(problems)
