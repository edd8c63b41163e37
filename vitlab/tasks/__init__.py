"""Tasks: what a batch is, the loss, the metrics. One file and one YAML each.

A task's module has `build(config, recipe, data, data_config) -> Task`.
"""

from typing import Any

from vitlab.config import UserError, choices_text
from vitlab.config.schema import TaskConfig
from vitlab.registry import implementation
from vitlab.tasks.metrics import list_metrics


def build(config: TaskConfig, **parts: Any) -> Any:
    """The task of a configuration: a `vitlab.tasks.base.Task`. Raises UserError for data that it is not for."""
    task = implementation("vitlab.tasks", config.kind, "build").build(config, **parts)
    if config.metric is not None:
        found = task.metrics(detailed=True)
        measured = [metric.key for metric in list_metrics() if metric.key in found]
        if config.metric not in measured:
            raise UserError(
                f"task.metric={config.metric}: is not measured here; {choices_text(config.metric, measured)}"
            )
    return task
