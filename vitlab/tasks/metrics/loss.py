"""The held-out loss, which every task has."""

from vitlab.tasks.metrics import Metric

METRICS = (Metric("loss", "loss", higher_is_better=False, gap_unit="nats", priority=1000, is_error=True),)
