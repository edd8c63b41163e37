"""Of generated summaries: ROUGE (Lin, 2004), also of the source's first words."""

from vitlab.tasks.metrics import Metric

METRICS = (
    Metric("rouge_l", "ROUGE-L", gap_unit="ROUGE-L", priority=30),
    Metric("rouge1", "ROUGE-1", gap_unit="ROUGE-1", priority=170),
    Metric("rouge2", "ROUGE-2", gap_unit="ROUGE-2", priority=180),
    Metric("rouge_l_lead", "ROUGE-L of the first words", gap_unit="ROUGE-L", priority=190),
)
