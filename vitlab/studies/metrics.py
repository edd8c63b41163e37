"""The number by which a study's models are compared: accuracy, or what the task measures in its place."""

import math
from dataclasses import dataclass, replace
from typing import Any

from vitlab.formatting import DASH, finite, significant


@dataclass(frozen=True)
class Metric:
    key: str  # a column of results.csv
    name: str
    percent: bool = False  # a share in 0..1
    higher_is_better: bool = True
    gap_unit: str = ""
    sized_by: str = "example"  # what the sizes of the training sets that it is compared over count
    loss: str = "cross-entropy, nats"  # what is made small where this is measured
    point: float = 0.01  # what a margin of 1 is, in `compared`: a percentage point, or 1% of a relative metric
    relative: bool = False  # compared by ratios, since its spread grows with it

    def compared(self, value: float) -> float:
        """On the scale that differences and their intervals are taken on."""
        return math.log(value) if self.relative else value

    def width(self, value: float) -> str:
        """Half an interval in `compared`: `2.3 points`, or `2.3%` of a relative metric."""
        return f"{significant(100 * value)}%" if self.relative else self.gap(value)

    def describe_margin(self, points: float) -> str:
        """`1 point`, `1%`"""
        if self.relative:
            return f"{points:g}%"
        size = f"{100 * points * self.point if self.percent else points * self.point:g}"
        return f"{size} {self.gap_unit.removesuffix('s') if size == '1' else self.gap_unit}".rstrip()

    def value(self, row: dict[str, Any]) -> float | None:
        return finite(row.get(self.key))

    def text(self, value: float | None) -> str:
        """`84.2%`, or `1.23`."""
        return DASH if value is None else f"{self.number(value)}{'%' if self.percent else ''}"

    def number(self, value: float) -> str:
        """Without the unit: `84.2`."""
        return f"{100 * value:.1f}" if self.percent else significant(value)

    def gap(self, value: float) -> str:
        """A difference with its unit: `8.1 points`."""
        return f"{self.number(value)} {self.gap_unit}".rstrip()

    def lead(self, value: float, other: float) -> float:
        """By how much the first is better than the second; below 0 when it is worse."""
        return value - other if self.higher_is_better else other - value


SQUARED = "squared error of standardised numbers"
METRICS = (  # what comes first is what a study is about
    Metric("accuracy", "accuracy", percent=True, gap_unit="points"),
    Metric("exact_match", "exact match", percent=True, gap_unit="points"),
    Metric("bleu", "BLEU", gap_unit="BLEU", point=1.0),
    Metric("rouge_l", "ROUGE-L", gap_unit="ROUGE-L"),
    Metric("matthews", "Matthews correlation", gap_unit="in correlation"),
    Metric("pearson", "Pearson correlation", gap_unit="in correlation", loss=SQUARED),
    Metric("spearman", "Spearman correlation", gap_unit="in correlation", loss=SQUARED),
    Metric("f1", "F1", gap_unit="F1"),
    Metric("balanced_accuracy", "balanced accuracy", percent=True, gap_unit="points"),
    Metric("macro_f1", "macro F1", gap_unit="F1"),
    Metric("perplexity", "perplexity", higher_is_better=False, gap_unit="in perplexity", relative=True),
    Metric("bits_per_byte", "bits per byte", higher_is_better=False, gap_unit="bits"),
    Metric("unigram_perplexity", "unigram perplexity", higher_is_better=False, gap_unit="in perplexity", relative=True),
    Metric("masked_accuracy", "masked accuracy", percent=True, gap_unit="points"),
    Metric("next_sentence_accuracy", "next-sentence accuracy", percent=True, gap_unit="points"),
    Metric("chrf", "chrF", gap_unit="chrF", point=1.0),
    Metric("rouge1", "ROUGE-1", gap_unit="ROUGE-1"),
    Metric("rouge2", "ROUGE-2", gap_unit="ROUGE-2"),
    Metric("rouge_l_lead", "ROUGE-L of the first words", gap_unit="ROUGE-L"),
    Metric("loss", "loss", higher_is_better=False, gap_unit="nats"),
)


def main_metric(rows: list[dict[str, Any]]) -> Metric:
    """The first of METRICS that some finished run has, over the sizes of these runs."""
    found = next((metric for metric in METRICS if any(metric.value(row) is not None for row in rows)), METRICS[0])
    unit = next((str(row["unit"]) for row in rows if row.get("unit")), found.sized_by)
    return replace(found, sized_by=unit)
