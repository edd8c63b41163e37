"""Of generated translations: BLEU (Papineni et al., 2002) and chrF (Popovic, 2015), 0 to 100."""

from vitlab.tasks.metrics import Metric

METRICS = (
    Metric("bleu", "BLEU", gap_unit="BLEU", point=1.0, priority=20),
    Metric("chrf", "chrF", gap_unit="chrF", point=1.0, priority=160),
)
