"""Tasks: their batches, losses and metrics. A YAML each.

The module of a task has `build(config, recipe, data, data_config) -> Task`.
"""

from typing import Any

from vitlab.config import UserError, choices_text
from vitlab.config.schema import TaskConfig
from vitlab.registry import implementation
from vitlab.tasks.metrics import METRICS, PROBES

KINDS = {  # the module and what builds the task in it; of others the module of their name, and `build`
    **dict.fromkeys(("classification", "multilabel", "regression"), ("images", "build")),
    "span_extraction": ("text_classification", "build"),
    "causal_lm": ("language", "CausalLM"),
    "masked_lm": ("language", "MaskedLM"),
    "span_lm": ("language", "SpanLM"),
    **dict.fromkeys(("translation", "summarization"), ("seq2seq", "build")),
    "span_corruption": ("seq2seq", "SpanCorruption"),
    "captioning": ("seq2seq", "Captioning"),
}


def build(config: TaskConfig, **parts: Any) -> Any:
    """Build the task of a configuration, a `vitlab.tasks.base.Task`. Raises UserError for data that it is not for."""
    module, builder = KINDS.get(config.kind, (config.kind, "build"))
    task = vars(implementation("vitlab.tasks", module, builder))[builder](config, **parts)
    found = task.metrics(detailed=config.metric is not None)
    measured = {metric.key: metric for metric in METRICS if metric.key in found}
    key = config.metric or next(iter(measured))
    if key.partition("@")[0] in PROBES:  # measured after the training, of which choices cannot be made
        key = next(iter(measured))
    if key not in measured:
        raise UserError(f"task.metric={key}: is not measured here; {choices_text(key, measured)}")
    task.metric = measured[key]
    return task
