"""The share of generated texts that are their reference."""

from vitlab.tasks.metrics import Metric

METRICS = (Metric("exact_match", "exact match", percent=True, gap_unit="points", priority=10),)
