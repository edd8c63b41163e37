"""How well tokens are predicted: of a model, per byte of text, and of the frequencies of tokens alone."""

from typing import Any

from vitlab.tasks.metrics import Metric

RELATIVE: dict[str, Any] = {"higher_is_better": False, "gap_unit": "in perplexity", "relative": True}
METRICS = (
    Metric("perplexity", "perplexity", priority=110, **RELATIVE),
    Metric("bits_per_byte", "bits per byte", higher_is_better=False, gap_unit="bits", priority=120, is_error=True),
    Metric("unigram_perplexity", "unigram perplexity", priority=130, **RELATIVE),
)
