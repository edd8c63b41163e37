"""Metrics of tokens and generated texts, which their tasks compute; and the loss, which every task has."""

from typing import Any

from vitlab.tasks.metrics import Metric

POINTS: dict[str, Any] = {"percent": True, "gap_unit": "points"}
RELATIVE: dict[str, Any] = {"higher_is_better": False, "gap_unit": "in perplexity", "relative": True}
METRICS = (
    Metric("exact_match", "exact match", priority=10, **POINTS),  # generated texts that are their reference
    Metric("bleu", "BLEU", gap_unit="BLEU", point=1.0, priority=20),  # 0 to 100 (Papineni et al., 2002)
    Metric("rouge_l", "ROUGE-L", gap_unit="ROUGE-L", priority=30),  # Lin, 2004
    Metric("perplexity", "perplexity", priority=110, **RELATIVE),
    Metric("bits_per_byte", "bits per byte", higher_is_better=False, gap_unit="bits", priority=120, is_error=True),
    Metric("unigram_perplexity", "unigram perplexity", priority=130, **RELATIVE),  # of the frequencies of tokens
    Metric("masked_accuracy", "masked accuracy", priority=140, **POINTS),
    Metric("next_sentence_accuracy", "next-sentence accuracy", priority=150, **POINTS),
    Metric("chrf", "chrF", gap_unit="chrF", point=1.0, priority=160),  # 0 to 100 (Popovic, 2015)
    Metric("rouge1", "ROUGE-1", gap_unit="ROUGE-1", priority=170),
    Metric("rouge2", "ROUGE-2", gap_unit="ROUGE-2", priority=180),
    Metric("rouge_l_lead", "ROUGE-L of the first words", gap_unit="ROUGE-L", priority=190),  # of the source
    Metric("loss", "loss", higher_is_better=False, gap_unit="nats", priority=1000, is_error=True),
)
