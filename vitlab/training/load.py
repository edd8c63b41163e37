"""A finished run, loaded back from its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import nn

from vitlab import models
from vitlab.config import TrainConfig, UserError, compose
from vitlab.training import checkpoint
from vitlab.training.files import RunFiles


@dataclass(frozen=True)
class LoadedRun:
    """A run's configuration, its trained model in eval mode on the CPU, its result, its metrics.jsonl rows.

    `shape` is what the model was built for, as `vitlab.models.build` takes it; `classes` are the names of its classes.
    """

    config: DictConfig
    model: nn.Module
    shape: dict[str, Any]
    classes: tuple[str, ...]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]


def load_run(path: str | Path) -> LoadedRun:
    """Load a finished run's folder. Raises UserError where there is none; nothing is unpickled."""
    files = RunFiles(path)
    config = compose(TrainConfig, base=files.config())
    result = files.finished_result()
    state = checkpoint.read(files.checkpoint_path)
    shape = checkpoint.shape_of(state)
    model = models.build(config.model, **shape)
    try:
        model.load_state_dict({k.removeprefix("model."): v for k, v in state["state_dict"].items()})
    except RuntimeError as error:
        raise UserError(
            f"{files.checkpoint_path}: is not of this run's model ({str(error).splitlines()[0]})"
        ) from error
    return LoadedRun(config, model.eval(), shape, tuple(state["classes"]), result, files.metrics())
