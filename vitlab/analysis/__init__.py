"""Analyses of trained models: arrays in, arrays out, no plotting. One file and one YAML each.

An analysis's module has `UNIT`, `applies(model) -> bool` and `run(model, inputs, config) -> rows`, each row a mapping
of plain values; inputs are what the run's task shows: images (B, C, Y, X), or a `vitlab.tasks.text.TokenInputs`. Its
YAML gives the options, among them `examples`, how many held-out ones it looks at, and how to read its figure.
"""

from types import ModuleType

from omegaconf import DictConfig

from vitlab.registry import implementation


def module_of(config: DictConfig) -> ModuleType:
    """The module that implements an analysis."""
    return implementation("vitlab.analysis", config.kind, "run")
