"""Tasks: what a batch is, the loss, the metrics. One file and one YAML each.

A task's module has `build(config, recipe, data, data_config) -> Task`.
"""

from typing import Any

from vitlab.config.schema import TaskConfig
from vitlab.registry import implementation


def build(config: TaskConfig, **parts: Any) -> Any:
    """The task of a configuration: a `vitlab.tasks.base.Task`. Raises UserError for data that it is not for."""
    return implementation("vitlab.tasks", config.kind, "build").build(config, **parts)
