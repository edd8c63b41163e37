"""Tasks: their batches, losses and metrics. Each task has a YAML.

A task's module has `build(config, recipe, data, data_config) -> Task`.
"""

from typing import Any

import numpy as np

from vitlab.config import UserError, choices_text
from vitlab.config.schema import TaskConfig
from vitlab.data.base import take_items
from vitlab.data.split import long_tail, subset
from vitlab.registry import implementation
from vitlab.tasks.metrics import IMAGES, METRICS, PROBES, TEXTS

KINDS = {  # kind: module, builder in it; another kind has the module of its name, and `build`
    **dict.fromkeys(("classification", "multilabel", "regression"), ("images", "build")),
    "span_extraction": ("text_classification", "build"),
    "causal_lm": ("language", "CausalLM"),
    "masked_lm": ("language", "MaskedLM"),
    "span_lm": ("language", "SpanLM"),
    **dict.fromkeys(("translation", "summarization"), ("seq2seq", "SequenceToSequence")),
    "span_corruption": ("seq2seq", "SpanCorruption"),
    "captioning": ("seq2seq", "Captioning"),
}


def build(config: TaskConfig, **parts: Any) -> Any:
    """Build the `vitlab.tasks.base.Task` of a configuration. Raises UserError if the task is not for the data."""
    module, builder = KINDS.get(config.kind, (config.kind, "build"))
    task = vars(implementation("vitlab.tasks", module, builder))[builder](config, **parts)
    data = parts["data_config"]
    for key, off in (("label_noise", 0), ("imbalance", 1)):
        if (value := vars(data)[key]) != off and (task.of not in (IMAGES, TEXTS) or len(task.classes) < 2):
            raise UserError(
                f"data.{key}={value:g}: is for items of one class each, not for task={config.name}; give {off}"
            )
    if data.imbalance > 1:
        task.train = long_tail(task.train, data.imbalance)
        task.train_on(np.arange(len(task.train)))
    if count := vars(config).get("test_items"):
        task.test_items, count = count, min(count, len(task.test))
        task.test = take_items(task.test, subset(task.test.labels, count, seed=0))
    found = task.metrics(detailed=config.metric is not None)
    measured = {metric.key: metric for metric in METRICS if metric.key in found}
    key = config.metric or next(iter(measured))
    name, at, _ = key.partition("@")
    if name in PROBES or (at and name in measured):  # measured after training, too late for choices
        key = next(iter(measured))
    if key not in measured:
        raise UserError(f"task.metric={key}: is not measured here; {choices_text(key, measured)}")
    task.metric = measured[key]
    return task
