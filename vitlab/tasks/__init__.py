"""Tasks: their batches, losses and metrics. A YAML each.

The module of a task has `build(config, recipe, data, data_config) -> Task`.
"""

from typing import Any

from vitlab.config import UserError, choices_text
from vitlab.config.schema import TaskConfig
from vitlab.registry import implementation
from vitlab.tasks.metrics import METRICS, PROBES

MODULES = {  # of kinds that share one; others have the module of their name
    **dict.fromkeys(("classification", "multilabel", "regression"), "images"),
    "span_extraction": "text_classification",
    **dict.fromkeys(("causal_lm", "masked_lm", "span_lm"), "language"),
    **dict.fromkeys(("translation", "summarization", "span_corruption", "captioning"), "seq2seq"),
}


def build(config: TaskConfig, **parts: Any) -> Any:
    """Build the task of a configuration, a `vitlab.tasks.base.Task`. Raises UserError for data that it is not for."""
    module = MODULES.get(config.kind, config.kind)
    task = implementation("vitlab.tasks", module, "build").build(config, **parts)
    found = task.metrics(detailed=config.metric is not None)
    measured = {metric.key: metric for metric in METRICS if metric.key in found}
    key = config.metric or next(iter(measured))
    if key.partition("@")[0] in PROBES:  # measured after the training, of which choices cannot be made
        key = next(iter(measured))
    if key not in measured:
        raise UserError(f"task.metric={key}: is not measured here; {choices_text(key, measured)}")
    task.metric = measured[key]
    return task


def writes_texts(task: Any) -> bool:
    """Tell whether the detailed metrics compare texts that the model writes, which takes long."""
    return "texts" in task.metrics(detailed=True)


def evaluation_metrics(task: Any) -> Any:
    """Make fresh metrics (a `MetricCollection`) for evaluations while training: the task's, and what choices go by."""
    metrics = task.metrics()
    if task.metric is not None and task.metric.key not in metrics:
        metrics.add_metrics({task.metric.key: task.metrics(detailed=True)[task.metric.key]})
    return metrics
