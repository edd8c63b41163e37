"""The number by which a study's models are compared: accuracy, or what the task measures in its place."""

from dataclasses import replace
from typing import Any

from vitlab.tasks.metrics import Metric, find_metric, list_metrics


def main_metric(rows: list[dict[str, Any]]) -> Metric:
    """The one that the study names (`task.metric`), else the first of all that some run has; over their sizes."""
    shown = [metric for metric in list_metrics() if metric.is_compared]
    accuracy = find_metric("accuracy")
    named = next((find_metric(row["metric"]) for row in rows if row.get("metric")), None)
    measured = next((metric for metric in shown if any(metric.value(row) is not None for row in rows)), accuracy)
    metric_shown = named or measured
    unit = next((str(row["unit"]) for row in rows if row.get("unit")), metric_shown.sized_by)
    return replace(metric_shown, sized_by=unit)
