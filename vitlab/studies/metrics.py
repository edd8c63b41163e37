"""The number by which a study's models are compared: accuracy, or what the task measures in its place."""

from dataclasses import replace
from typing import Any

from vitlab.tasks.metrics import Metric, find_metric, list_metrics


def main_metric(rows: list[dict[str, Any]]) -> Metric:
    """The first of all metrics that some finished run has, over the sizes of these runs."""
    shown = [metric for metric in list_metrics() if metric.is_compared]
    accuracy = find_metric("accuracy")
    metric_shown = next((metric for metric in shown if any(metric.value(row) is not None for row in rows)), accuracy)
    unit = next((str(row["unit"]) for row in rows if row.get("unit")), metric_shown.sized_by)
    return replace(metric_shown, sized_by=unit)
