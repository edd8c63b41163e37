"""`vitlab analyze`: analyses of a finished run's model, or of any model of timm."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig
from torch import nn

from vitlab import analysis, models, tasks
from vitlab.commands.evaluate import refuse_misfit
from vitlab.commands.opening import open_data
from vitlab.commands.training import examine
from vitlab.config import UserError, load, names
from vitlab.data.base import ImageData
from vitlab.files import write_json
from vitlab.models.timm import pretrained_cfg
from vitlab.reports import figures, static
from vitlab.training.files import RunFiles
from vitlab.training.load import load_run


@dataclass(frozen=True)
class Subject:
    """A model to look at, the images to show it, and where its analyses go."""

    model: nn.Module
    data: ImageData
    step: int
    folder: Path


def analyze(source: str, chosen: Sequence[str], config: DictConfig, changed: Set[str], folder: Path | None) -> int:
    """Write the numbers and pictures of analyses, print where; the exit code. Raises UserError.

    `chosen` are names of analyses, by default all that apply to the model; `changed` the keys that the user gave.
    """
    subject = of_timm(source, config, changed) if source.startswith("timm:") else of_run(source, config)
    folder = folder or subject.folder
    task = tasks.build(config.task, recipe=config.recipe, data=subject.data, data_config=config.data)
    for name in applicable(subject.model, chosen):
        options = load("analysis", name)
        rows = [{"step": subject.step, **row} for row in examine(subject.model, task, subject.data, options)]
        found = {"name": name, "unit": analysis.module_of(options).UNIT, "rows": rows}
        write_json(folder / f"{name}.json", found)
        figure = figures.attention_distance(found, f"{source}: {options.title}")
        for path in [folder / f"{name}.json", *static.save(figure, folder)]:
            print(path)
    return 0


def of_run(source: str, config: DictConfig) -> Subject:
    """A finished run and the data of a configuration. The numbers of training itself stay where they are."""
    loaded, data = load_run(source), open_data(config.data)
    refuse_misfit(loaded, data, images_alone=True)
    return Subject(loaded.model, data, loaded.result["steps"], RunFiles(source).analysis_folder / "trained")


def of_timm(source: str, config: DictConfig, changed: Set[str]) -> Subject:
    """A model of timm at its own image size and normalisation, unless the user changed them."""
    cfg = pretrained_cfg(source.removeprefix("timm:"))
    if cfg is not None and "data.image_size" not in changed:
        config.data.image_size = list(cfg.input_size[1:])
    data = open_data(config.data)
    if cfg is not None and data.channels == 3 and not changed & {"data.mean", "data.std"}:
        config.data.mean, config.data.std = list(cfg.mean), list(cfg.std)
    shape = {"num_classes": len(data.classes), "image_size": data.image_size, "channels": data.channels}
    model = models.build(config.model, **shape).eval()
    folder = Path("runs") / source.replace(":", "-").replace("/", "-") / "analysis"
    return Subject(model, data, 0, folder)


def applicable(model: nn.Module, chosen: Sequence[str]) -> list[str]:
    """The chosen analyses, by default all that apply. Raises UserError for a model that one does not apply to."""
    found = {name: analysis.module_of(load("analysis", name)).applies(model) for name in chosen or names("analysis")}
    refused = [name for name, applies in found.items() if not applies]
    if chosen and refused:
        raise UserError(f"{name}: does not apply to {type(model).__name__}: it has no attention" for name in refused)
    if not any(found.values()):
        raise UserError(f"no analysis applies to {type(model).__name__}; choices: {', '.join(names('analysis'))}")
    return [name for name, applies in found.items() if applies]
