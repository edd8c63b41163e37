"""BERT's pre-training: masked tokens, and whether a second segment follows the first."""

from vitlab.tasks.metrics import Metric

METRICS = (
    Metric("masked_accuracy", "masked accuracy", percent=True, gap_unit="points", priority=140),
    Metric("next_sentence_accuracy", "next-sentence accuracy", percent=True, gap_unit="points", priority=150),
)
