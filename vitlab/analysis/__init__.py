"""Analyses of trained models: arrays in, arrays out, no plotting. One file and one YAML each.

An analysis's module has `UNIT`, `applies(model) -> bool` and `run(model, inputs, config)`; inputs are what the run's
task shows: images (B, C, Y, X), or a `vitlab.tasks.text.TokenInputs`. It gives rows, each a mapping of plain values,
or where the result is a picture a mapping of NumPy arrays by name, with the rows that go with them as "rows". Its YAML
gives the options, among them `examples`, how many held-out ones it looks at, `drawings`, the
modules of `vitlab.reports.drawings` that draw it (the first array, or the rows), and how to read its figure. A `run`
that takes `labels` is given those of the inputs where they mean the model's outputs. With the option `pictures` the
images are kept beside the arrays, for a page to show them; an analysis that only a page shows has no `drawings`.

`attention`, `heads` and `layers` are no analyses: they are how the others look into a model. `findings` is the result.
"""

from types import ModuleType

from omegaconf import DictConfig

from vitlab.registry import implementation


def module_of(config: DictConfig) -> ModuleType:
    """The module that implements an analysis."""
    return implementation("vitlab.analysis", config.kind, "run")
