"""`vitlab analyze`: analyses of a finished run's model, or of any model of timm."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from torch import nn

from vitlab import analysis, models, tasks
from vitlab.commands.evaluate import refuse_misfit
from vitlab.commands.opening import open_data
from vitlab.config import UserError, load, names
from vitlab.reports import figures, static
from vitlab.training.files import RunFiles
from vitlab.training.load import load_run


def analyze(source: str, chosen: Sequence[str], config: DictConfig, *, out: str | None) -> int:
    """Write the numbers and pictures of analyses, print where; the exit code. Raises UserError.

    `chosen` are names of analyses, by default all that apply to the model. `config` is the run's, or of the model of
    timm, with the images to look at.
    """
    if source.startswith("timm:"):
        data = open_data(config.data)
        shape = {"num_classes": len(data.classes), "image_size": data.image_size, "channels": data.channels}
        model: nn.Module = models.build(config.model, **shape).eval()
        step, default = 0, Path("runs") / source.replace(":", "-").replace("/", "-") / "analysis"
    else:
        loaded = load_run(source)
        data, model, step = open_data(config.data), loaded.model, loaded.result["steps"]
        refuse_misfit(loaded.shape, data, ("image_size", "channels"))
        default = RunFiles(source).analysis_folder
    files = RunFiles((Path(out) if out else default).parent)
    files.analysis_folder = Path(out) if out else default
    task = tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data)
    for name in applicable(model, chosen):
        options = load("analysis", name)
        count = min(options.images, len(data.test))
        images = task.prepare((torch.from_numpy(data.test.read(np.arange(count))), None))[0]
        module = analysis.module_of(options)
        rows = [{"step": step, **row} for row in module.run(model, images, options)]
        before = files.analysis(name) if not out else None
        kept = [row for row in before["rows"] if row["step"] != step] if before else []
        files.write_analysis(name, module.UNIT, [*kept, *rows])
        figure = figures.attention_distance(files.analysis(name), f"{source}: {options.title}")
        for path in [files.analysis_folder / f"{name}.json", *static.save(figure, files.analysis_folder)]:
            print(path)
    return 0


def applicable(model: nn.Module, chosen: Sequence[str]) -> list[str]:
    """The chosen analyses, by default all that apply. Raises UserError for a model that one does not apply to."""
    found = {name: analysis.module_of(load("analysis", name)).applies(model) for name in chosen or names("analysis")}
    refused = [name for name, applies in found.items() if not applies]
    if chosen and refused:
        raise UserError(f"{name}: does not apply to {type(model).__name__}: it has no attention" for name in refused)
    if not any(found.values()):
        raise UserError(f"no analysis applies to {type(model).__name__}; choices: {', '.join(names('analysis'))}")
    return [name for name, applies in found.items() if applies]
