"""Analyses of trained models: arrays in, arrays out, no plotting. One file and one YAML each.

An analysis's module has `UNIT`, `NEEDS`, which says what a model must have for it, `applies(model) -> bool` and
`run(model, inputs, config)`; inputs are what the run's task shows: images (B, C, Y, X), or a
`vitlab.tasks.text.TokenInputs`. It gives rows, each a mapping of plain values, or where the result is a picture a
mapping of NumPy arrays by name, with the rows that go with them as "rows". Its YAML gives the options, among them
`examples`, how many held-out ones it looks at, `drawings`, the modules of `vitlab.reports.drawings` that draw it (the
first array, or the rows), and how to read its figure. A `run` that takes `labels` is given those of the inputs where
they mean the model's outputs; one that takes `progress` may call it with how much is done, and of how much.

`attention`, `heads` and `layers` are no analyses: they are how the others look into a model. `findings` is the result.
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
