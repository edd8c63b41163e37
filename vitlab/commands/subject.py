"""What `vitlab eval` and `vitlab analyze` look at: a finished run's model, or any model of timm, and its images."""

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import nn

from vitlab import models
from vitlab.config import UserError
from vitlab.data.opening import open_data
from vitlab.models import count
from vitlab.models.timm_adapter import pretrained_cfg
from vitlab.training.files import RunFiles
from vitlab.training.load import LoadedRun, load_run


@dataclass(frozen=True)
class Subject:
    """A model to look at, the data to show it, and where its analyses go."""

    name: str
    model: nn.Module
    data: Any  # as `vitlab.data.load` gives it
    step: int
    folder: Path
    strange: str  # why the model's outputs do not mean the data's classes; empty when they do


def subject_of(source: str, config: DictConfig, changed: Set[str]) -> Subject:
    """A run's folder, or `timm:NAME`, with the data of a configuration of which the user gave the keys `changed`.

    Raises UserError, also for images of another shape than the model takes.
    """
    return of_timm(source, config, changed) if source.startswith("timm:") else of_run(source, config)


def of_run(source: str, config: DictConfig) -> Subject:
    """A finished run and the data of a configuration. The numbers of training itself stay where they are."""
    loaded, data = load_run(source), open_data(config.data)
    refuse_misfit(loaded, data)
    folder = RunFiles(source).analysis_folder / "trained"
    strange = "; ".join(other_classes(loaded, data))
    name = RunFiles(source).folder.resolve().name
    return Subject(name, loaded.model, data, loaded.result["steps"], folder, strange)


def of_timm(source: str, config: DictConfig, changed: Set[str]) -> Subject:
    """A model of timm at its own image size and normalisation, unless the user changed them."""
    cfg = pretrained_cfg(source.removeprefix("timm:"))
    if cfg is not None and "data.image_size" not in changed:
        config.data.image_size = list(cfg.input_size[1:])
    data = open_data(config.data)
    if cfg is not None and data.channels == 3 and not changed & {"data.mean", "data.std"}:
        config.data.mean, config.data.std = list(cfg.mean), list(cfg.std)
    shape = {**data.shape, "num_classes": len(data.classes)}
    count.flops(count.meta(config.model, **shape), shape)  # refuses images that do not fit
    model = models.build(config.model, **shape).eval()
    folder = Path("runs") / source.replace(":", "-").replace("/", "-") / "analysis"
    strange = ""
    if cfg is None or not config.model.pretrained or cfg.num_classes != len(data.classes):
        strange = f"{source} was not trained on the classes of {data.name}"
    return Subject(source, model, data, 0, folder, strange)


def refuse_misfit(run: LoadedRun, data: Any) -> None:
    """Raise UserError unless a run's model takes these data: images of its size, or no longer texts in its tokens."""
    unfit = {key: value for key, value in data.shape.items() if value != run.shape[key]}
    if unfit.get("length", 0) < run.shape.get("length", 0):
        unfit.pop("length", None)
    if unfit:
        raise UserError(misfit(data, key, value, run.shape[key]) for key, value in unfit.items())


def other_classes(run: LoadedRun, data: Any) -> list[str]:
    """What is different about the data's classes, in a line; empty when they are the run's, or it has none."""
    if not run.classes:
        return []
    if len(data.classes) != len(run.classes):
        return [misfit(data, "num_classes", len(data.classes), len(run.classes))]
    pairs = [pair for pair in zip(run.classes, data.classes, strict=True) if pair[0] != pair[1]]
    if not pairs:
        return []
    mine, other = pairs[0]
    return [f"data={data.name}: its classes are not the run's: '{other}' stands in the place of '{mine}'"]


def misfit(data: Any, key: str, value: object, wanted: object) -> str:
    value, wanted = (list(v) if isinstance(v, tuple) else v for v in (value, wanted))
    return f"data={data.name}: has {key}={value}, the run's model was trained for {wanted}"
