"""Analyses of trained models: arrays in, arrays out, no plotting. One file and one YAML each.

An analysis's module has `UNIT`, `applies(model) -> bool` and `run(model, images, config) -> rows`, each row a mapping
of plain values; its YAML gives the options, among them `images`, how many held-out images it looks at.
"""

from types import ModuleType

from omegaconf import DictConfig

from vitlab.registry import implementation


def module_of(config: DictConfig) -> ModuleType:
    """The module that implements an analysis."""
    return implementation("vitlab.analysis", config.kind, "run")
