"""Analyses of trained models: arrays in, arrays out, no plotting. Each has a YAML.

An analysis is a module or, where several share a module, an `Analysis` of its `ANALYSES`. It has `UNIT`, `NEEDS` (in
words, what a model must have for it), `applies(model) -> bool` and `run(model, inputs, config)`; its YAML says what
kinds of targets it is for. `inputs` are as the run's task prepares them: images (B, C, Y, X), or `TokenInputs`
(vitlab.tasks.base). `run` returns rows, each a mapping of plain values, or, where the result is a picture, a mapping of
NumPy arrays by name, with the rows that go with them as "rows", and with a "unit" other than UNIT. "references" in that
mapping are values of known cases by name, in the unit of the rows, which figures draw; figures of heads take the first
as 100%. A `run` with the parameter `targets` gets the inputs' targets if they mean the model's outputs, with `of` and
`scale` the task's; with `progress`, it may call it with (done, total); with `token_texts`, it gets the function from
tokens to their texts.

The YAML holds the options: `examples` (the number of validation items), `drawings` (the functions below
`vitlab.reports.figures` that draw the rows or the first array), `pictures` (keep the images beside the arrays,
for a page) and how to read the figure. An analysis that only a page shows has no `drawings`.

`capture` is how analyses look into models.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from torch import nn

from vitlab.analysis.capture import Analysis, Findings
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.data.loader import Items
from vitlab.data.split import subset
from vitlab.models.encoder_decoder import Captioner
from vitlab.registry import implementation
from vitlab.tasks.base import Task

MODULES = {  # of kinds that share one; others have the module of their name
    **dict.fromkeys(("attention_distance", "attention_entropy", "head_patterns", "head_types"), "heads"),
    **dict.fromkeys(("attention_maps", "explanation", "rollout"), "maps"),
    **dict.fromkeys(("cka", "receptive_field", "token_reach"), "layers"),
    **dict.fromkeys(("embedding", "position_similarity", "rgb_filters", "robustness"), "pictures"),
}


def module_of(config: AnalysisConfig) -> Analysis | ModuleType:
    """Find the implementation of an analysis. Raises UserError for a module that implements none."""
    if config.kind in MODULES:
        return implementation("vitlab.analysis", MODULES[config.kind]).ANALYSES[config.kind]
    module = implementation("vitlab.analysis", config.kind, "run")
    if lacking := [name for name in ("UNIT", "NEEDS", "applies") if name not in vars(module)]:
        raise UserError(f"kind={config.kind}: {module.__name__} is no analysis, it lacks {', '.join(lacking)}")
    return module


def refusal(config: AnalysisConfig, model: nn.Module, task: Task) -> str | None:
    """Explain in a line why an analysis cannot examine a task's model; None if it can.

    Raises UserError for a wrong module.
    """
    module = module_of(config)
    if config.of and task.of not in config.of:
        return f"{config.name}: is for {', '.join(config.of)}, not for {task.of}"
    if module.applies(analysis_target(model)):
        return None
    return f"{config.name}: does not apply to {type(model).__name__}: it needs {module.NEEDS}"


def analysis_target(model: nn.Module) -> nn.Module:
    """Return the part of a model that analyses examine: a captioner's vision transformer, else the whole model."""
    return model.image if isinstance(model, Captioner) else model


def examine(
    model: nn.Module,
    task: Task,
    config: AnalysisConfig,
    step: int,
    *,
    labelled: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Run one analysis on a model at a step, over `config.examples` validation items drawn evenly from the classes.

    An analysis whose `run` takes `targets` gets them if the model's outputs mean the same (`labelled`); it calls a
    `progress` with the work done and the whole, and turns tokens to texts with the task's tokenizer by `token_texts`.
    With the option `pictures`, the findings keep the inputs, with sides of at most that many pixels.
    """
    items, targets = Items(task.validation).__getitems__(list(subset(task.validation.labels, config.examples, 0)))
    device = next(model.parameters()).device
    inputs = task.inputs(task.prepare((items.to(device), targets.to(device))))
    module = module_of(config)
    of_classes = bool(len(task.classes)) and targets.ndim == 1
    given = {"targets": targets if labelled else None, "of": task.of, "scale": task.scale, "progress": progress}
    given["prepared"] = getattr(task, "images", None)
    given |= {} if task.tokenizer is None else {"token_texts": task.tokenizer.token_texts}
    taken = inspect.signature(module.run).parameters.keys() & given.keys()
    results = module.run(analysis_target(model), inputs, config, **{key: given[key] for key in taken})
    findings = Findings.of(
        results,
        name=config.name,
        unit=module.UNIT,
        images=items.numpy() if items.ndim == 4 else None,
        labels=targets.numpy() if of_classes else None,
        classes=task.classes,
    )
    findings = replace(findings, rows=[{"step": step, **row} for row in findings.rows])
    return findings.with_pictures(config.pictures) if vars(config).get("pictures") else findings
