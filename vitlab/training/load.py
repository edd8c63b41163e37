"""Loads models that are trained: a finished run, a run or a model of timm with data, a language model."""

from collections.abc import Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab import models
from vitlab.config import TrainConfig, UserError, change, compose
from vitlab.data.opening import open_data
from vitlab.models.counting import count
from vitlab.models.timm_adapter import pretrained_cfg
from vitlab.training import checkpoint
from vitlab.training.files import RunFiles
from vitlab.training.settings import evaluation_context


@dataclass(frozen=True)
class LoadedRun:
    """A run's configuration, its trained model in eval mode on the CPU, its result, its metrics.jsonl rows.

    `shape` is what the model was built for, as `vitlab.models.build` takes it; `classes` are the names of its classes.
    `scale` is (mean, std) of the targets that it was trained on: a number that it predicts is output * std + mean.
    """

    config: TrainConfig
    model: nn.Module
    shape: dict[str, Any]
    classes: tuple[str, ...]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    scale: tuple[float, float] | None = None


def load_run(path: str | Path) -> LoadedRun:
    """Load a finished run's folder. Raises UserError where there is none; nothing is unpickled."""
    files = RunFiles(path)
    config = compose(TrainConfig, base={**files.config(), "analyses": []})  # their files may be gone
    result = files.finished_result()
    state = checkpoint.read_checkpoint(files.weights_path)
    shape = checkpoint.restore_shape(state)
    model = models.build(config.model, **shape)
    try:
        model.load_state_dict({k.removeprefix("model."): v for k, v in state["state_dict"].items()})
    except RuntimeError as error:
        raise UserError(
            f"{files.weights_path}: does not fit this run's model ({str(error).splitlines()[0]})"
        ) from error
    return LoadedRun(config, model.eval(), shape, tuple(state["classes"]), result, files.metrics(), state["scale"])


@dataclass(frozen=True)
class Subject:
    """A model to evaluate or to analyse, in eval mode on a GPU if there is one, and its data."""

    name: str
    model: nn.Module
    autocast: AbstractContextManager  # the precision of its training
    data: Any  # as `vitlab.data.load` gives it
    step: int
    folder: Path  # of its analyses
    mismatch: str  # why the model's outputs are not the data's classes; empty where they are
    scale: tuple[float, float] | None = None  # as `LoadedRun` has it


def load_subject(source: str, config: TrainConfig, changed: Set[str]) -> Subject:
    """Load a run's folder or `timm:NAME`, and the data of a configuration in which the user gave the keys `changed`.

    Raises UserError, also for data of another shape than the model takes.
    """
    if source.startswith("timm:"):
        return load_timm_subject(source, config, changed)
    return load_run_subject(source, config)


def load_run_subject(source: str, config: TrainConfig) -> Subject:
    """A finished run, with its precision and memory format, and the data of a configuration."""
    loaded, data = load_run(source), open_data(config.data)
    refuse_misfit(loaded, data)
    model, autocast = place_run(loaded)
    folder = RunFiles(source).analysis_folder / "trained"  # those made while it trained stay
    name = RunFiles(source).folder.resolve().name
    step, mismatch = loaded.result["steps"], compare_classes(loaded, data)
    return Subject(name, model, autocast, data, step, folder, mismatch, loaded.scale)


def place_run(loaded: LoadedRun) -> tuple[nn.Module, AbstractContextManager]:
    """A run's model on a GPU if there is one, in its memory format, and the precision of its training."""
    device, autocast = evaluation_context(loaded.result["precision"], evaluation_accelerator(loaded.config))
    model = loaded.model.to(device)
    if loaded.result["settings"]["memory_format"] == "channels_last":
        model.to(memory_format=torch.channels_last)
    return model, autocast


def load_timm_subject(source: str, config: TrainConfig, changed: Set[str]) -> Subject:
    """A model of timm in float32, at its own image size and normalisation unless the user gave others."""
    cfg = pretrained_cfg(source.removeprefix("timm:"))
    if cfg is not None and "data.image_size" not in changed:
        config = change(config, {"data.image_size": list(cfg.input_size[1:])})
    data = open_data(config.data)
    if cfg is not None and data.channels == 3 and not changed & {"data.mean", "data.std"}:
        config = change(config, {"data.mean": list(cfg.mean), "data.std": list(cfg.std)})
    shape = {**data.shape, "num_classes": len(data.classes)}
    count.flops(count.meta(config.model, **shape), shape)  # raises UserError for images that do not fit
    device, autocast = evaluation_context("32-true", evaluation_accelerator(config))
    model = models.build(config.model, **shape).eval().to(device)
    folder = Path("runs") / source.replace(":", "-").replace("/", "-") / "analysis"
    mismatch = ""
    if cfg is None or not config.model.pretrained or cfg.num_classes != len(data.classes):
        mismatch = f"{source} was not trained on the classes of {data.name}"
    return Subject(source, model, autocast, data, 0, folder, mismatch)


def evaluation_accelerator(config: TrainConfig) -> str:
    """A run that was trained on a GPU can be looked at without one."""
    return "cpu" if config.trainer.accelerator == "cpu" else "auto"


def refuse_misfit(run: LoadedRun, data: Any) -> None:
    """Raise UserError unless a run's model takes these data: images of its size, or texts as long at most."""
    unfit = {key: value for key, value in data.shape.items() if value != run.shape[key]}
    if unfit.get("length", 0) < run.shape.get("length", 0):
        unfit.pop("length", None)
    if unfit:
        raise UserError(misfit(data, key, value, run.shape[key]) for key, value in unfit.items())


def compare_classes(run: LoadedRun, data: Any) -> str:
    """How the data's classes differ from the run's, in a line; empty where they do not, or the run has none."""
    if not run.classes:
        return ""
    if len(data.classes) != len(run.classes):
        return misfit(data, "num_classes", len(data.classes), len(run.classes))
    for ours, other in zip(run.classes, data.classes, strict=True):
        if ours != other:
            return f"data={data.name}: has other classes than the run's data, '{other}' instead of '{ours}'"
    return ""


def misfit(data: Any, key: str, value: object, wanted: object) -> str:
    value, wanted = (list(v) if isinstance(v, tuple) else v for v in (value, wanted))
    return f"data={data.name}: has {key}={value}, but the run's model was trained with {wanted}"
