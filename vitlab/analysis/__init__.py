"""Analyses of trained models: arrays in, arrays out, no plotting. One file and one YAML each.

An analysis's module has `UNIT`, `NEEDS` (what a model must have for it, in words), `applies(model) -> bool` and
`run(model, inputs, config)`. `inputs` are what the run's task shows: images (B, C, Y, X), or a
`vitlab.tasks.text.TokenInputs`. `run` returns rows, each a mapping of plain values, or, where the result is a picture,
a mapping of NumPy arrays by name, with the rows that go with them as "rows". A `run` with the parameter `labels` gets
the labels of the inputs, where they mean the model's outputs; one with `progress` may call it with (done, total).

The YAML holds the options: `examples` (how many held-out ones are looked at), `drawings` (the modules of
`vitlab.reports.figures.analyses` that draw the rows or the first array), `pictures` (keep the images beside the arrays,
for a page) and how to read the figure. An analysis that only a page shows has no `drawings`.

`capture` is how analyses look into models.
"""

from types import ModuleType

from omegaconf import DictConfig
from torch import nn

from vitlab.config import load
from vitlab.registry import implementation


def module_of(config: DictConfig) -> ModuleType:
    """The module that implements an analysis."""
    return implementation("vitlab.analysis", config.kind, "run")


def refusal(name: str, model: nn.Module) -> str | None:
    """Why an analysis cannot look at a model, in a line; None where it can."""
    module = module_of(load("analysis", name))
    if module.applies(model):
        return None
    return f"{name}: does not apply to {type(model).__name__}: it needs {module.NEEDS}"
