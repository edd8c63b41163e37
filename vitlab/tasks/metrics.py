"""The metrics of runs: `METRICS`, the columns of results.csv with their labels and units, and `TABLES` beside them.

A study is about the first metric that its runs have; an own entry goes where it belongs. A metric says what kinds of
targets it is `of`: one class of an image, a text, each token or of choices; several LABELS of an image; numbers of
texts, standardised, and MEASURES of images in their own unit; answers within texts; tokens, targets, captions, masked
tokens. The YAMLs of tasks, analyses and probes name the same kinds. Its `make(outputs, of)` gives a metric of
torchmetrics that takes what the task's `measure` returns, for classes logits (B, outputs) and labels (B,); it imports
torch inside, because commands that only print read the names. Metrics without it are of generated texts and probes.
With `detailed` it is measured on the test set alone, and `is_compared` shows it in the report's table of runs. A metric
that keeps all pairs of classes says so by `most=MOST_CONFUSED`.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import Any

from vitlab.formatting import DASH, amount, finite, plural, significant

IMAGES, TEXTS, TAGS, CHOICES, NUMBERS = "images", "texts", "tags", "choices", "numbers"
LABELS, MEASURES, ANSWERS, TOKENS, TARGETS = "labels", "measures", "answers", "tokens", "targets"
CAPTIONS, MASKED, PAIRS, SPANS = "captions", "masked", "pairs", "spans"
CLASSES = (IMAGES, TEXTS, TAGS)  # which mean the same in every item; those of CHOICES do not
EVERY, HIDDEN = (*CLASSES, CHOICES), (MASKED, PAIRS, SPANS)
SEQUENCES = (TOKENS, TARGETS, CAPTIONS, *HIDDEN)
ALL = (*EVERY, LABELS, MEASURES, NUMBERS, ANSWERS, *SEQUENCES)
LOSSES = {LABELS: "binary cross-entropy, nats"}  # what is made small, else the cross-entropy
LOSSES |= dict.fromkeys((MEASURES, NUMBERS), "squared error of standardised numbers")
LEAST = 1e-12  # of a relative metric, whose logarithm is taken: an error may be 0
MOST_CONFUSED = 5000  # classes for which all pairs of them are counted: 200 MB


@dataclass(frozen=True)
class Metric:
    """A number that results have: its name, how it is written, and what it measures."""

    key: str  # a column of results.csv
    name: str
    of: tuple[str, ...] = ()  # kinds of targets
    make: Callable[[int, str], Any] | None = None  # a fresh `torchmetrics.Metric` for so many outputs and a kind
    gap_unit: str = ""
    percent: bool = False  # a share in 0..1
    higher_is_better: bool = True
    sized_by: str = "example"  # what the sizes of the training sets that it is compared over count
    size_name: str = ""  # the column of sizes in runs of other programs
    point: float = 0.01  # what a margin of 1 is, in `compared`: a percentage point, or 1% of a relative metric
    relative: bool = False  # compared by ratios, since its spread grows with it, and its unit with the data
    is_compared: bool = True  # shown beside others in tables of runs
    is_error: bool = False  # a positive number that falls as a power of the data: laws describe it as it stands
    gives_error: bool = False  # the column `error` of results.csv follows from it
    fewest: int = 1  # classes for which it makes sense
    most: int = sys.maxsize
    detailed: bool = False  # measured once, on the test data; False: at every evaluation too

    def fits(self, of: str, outputs: int, detailed: bool) -> bool:
        """Tell whether it is for this kind of targets and number of outputs; a detailed metric needs `detailed`."""
        return of in self.of and self.fewest <= outputs <= self.most and (detailed or not self.detailed)

    @property
    def loss(self) -> str:
        """What is made small where this is measured."""
        return LOSSES.get(self.of[0] if len(self.of) == 1 else "", "cross-entropy, nats")

    def compared(self, value: float) -> float:
        """Convert a value to the scale on which differences and their intervals are taken."""
        return math.log(max(value, LEAST)) if self.relative else value

    def width(self, value: float) -> str:
        """Write half an interval in `compared`: `2.3 points`, or `2.3%` of a relative metric."""
        return f"{significant(100 * value)}%" if self.relative else self.gap(value)

    def describe_margin(self, points: float) -> str:
        """Write a margin with its unit: `1 point`, `1%`."""
        if self.relative:
            return f"{points:g}%"
        size = f"{100 * points * self.point if self.percent else points * self.point:g}"
        return f"{size} {self.gap_unit.removesuffix('s') if size == '1' else self.gap_unit}".rstrip()

    def to_error(self, value: float) -> float:
        """Convert a share to 1 - share; return the value of another metric as it is."""
        return 1 - value if self.percent else value

    @property
    def on_validation(self) -> str:
        """The column of results.csv that has it, or what it follows from, on validation items."""
        return "validation_loss" if self.key == "perplexity" else f"validation_{self.key}"

    @property
    def sizes(self) -> str:
        """Name the sizes: `training examples`, or the column of other programs' runs."""
        return self.size_name or f"training {self.sized_by}s"

    def sized(self, size: int) -> str:
        """Write a size with its unit: `500 examples`, `84M examples seen`."""
        return f"{amount(size)} {self.size_name}" if self.size_name else plural(size, self.sized_by)

    def value(self, row: dict[str, Any]) -> float | None:
        return finite(row.get(self.key))

    def text(self, value: float | None) -> str:
        """Write a value: `84.2%`, or `1.23`."""
        return DASH if value is None else f"{self.number(value)}{'%' if self.percent else ''}"

    def number(self, value: float) -> str:
        """Write a value without the unit: `84.2`."""
        return f"{100 * value:.1f}" if self.percent else significant(value)

    def gap(self, value: float) -> str:
        """Write a difference with its unit: `8.1 points`."""
        return f"{self.number(value)} {self.gap_unit}".rstrip()

    def lead(self, value: float, other: float) -> float:
        """Return by how much the first value is better than the second; below 0 if it is worse."""
        return value - other if self.higher_is_better else other - value


@dataclass(frozen=True)
class Share(Metric):
    """A share in 0..1, written in percent."""

    gap_unit: str = "points"
    percent: bool = True


@dataclass(frozen=True)
class Ratio(Metric):
    """A positive number that is better lower, compared by ratios."""

    higher_is_better: bool = False
    relative: bool = True


def lazy(name: str) -> Callable[[int, str], Any]:
    """Return a function that makes a metric of vitlab.tasks.measures by name; importing that takes 8 s."""
    return lambda outputs, of="": vars(import_module("vitlab.tasks.measures"))[name](outputs)


PROBES = {"knn": "kNN accuracy", "linear_probe": "linear probe"}
PROBES |= {f"fewshot_{shots}": f"{shots}-shot accuracy" for shots in (1, 5, 10, 25)}
PROBES |= {f"finetune_{labels}": f"fine-tuned accuracy ({labels:,} labels)" for labels in (100, 1000)}
F1 = {TEXTS: lazy("F1"), TAGS: lazy("MacroF1"), ANSWERS: lazy("Mean")}
TERMS = {"masked": (PAIRS, SPANS), "next_sentence": (PAIRS,), "boundary": (SPANS,)}  # of the loss
R, ECE, NRMSE = "in correlation", lazy("Calibration"), lazy("NormalisedError")
METRICS = (
    Share("accuracy", "accuracy", EVERY, lazy("Accuracy"), gives_error=True),
    # the mean over the labels of the area under precision against recall, as of VOC and COCO
    Share("map", "mAP", (LABELS,), lazy("AveragePrecision"), gives_error=True),
    Share("exact_match", "exact match", (ANSWERS,), lazy("Mean")),  # also of generated texts
    # over the standard deviation of the test targets: 1 is what always says their mean
    Metric("nrmse", "normalised RMSE", (MEASURES,), NRMSE, higher_is_better=False, is_error=True, gives_error=True),
    Metric("bleu", "BLEU", gap_unit="BLEU", point=1.0),  # 0 to 100 (Papineni et al., 2002)
    Ratio("mae", "mean absolute error", (MEASURES,), lazy("AbsoluteError"), is_error=True),
    Metric("rouge_l", "ROUGE-L", gap_unit="ROUGE-L"),  # Lin, 2004
    Metric("matthews", "Matthews correlation", (TEXTS, TAGS), lazy("Matthews"), R, most=MOST_CONFUSED),
    Metric("r2", "R2", (MEASURES,), lazy("R2")),
    Metric("pearson", "Pearson correlation", (NUMBERS,), lazy("Pearson"), R),
    Metric("spearman", "Spearman correlation", (NUMBERS,), lazy("Spearman"), R),
    # of the second of two classes (MRPC and QQP of GLUE: Wang et al., 2019), else the mean over the classes or tags; of
    # an answer's words
    Metric("f1", "F1", tuple(F1), lambda outputs, of: F1[of](outputs, of), "F1"),
    # the mean over the classes of the share that is right (Brodersen et al., 2010)
    Share("balanced_accuracy", "balanced accuracy", CLASSES, lazy("BalancedAccuracy"), detailed=True),
    Share("macro_f1", "macro F1", CLASSES, lazy("MacroF1"), detailed=True),
    Ratio("perplexity", "perplexity", SEQUENCES, lazy("Perplexity")),
    Ratio("bits_per_byte", "bits per byte", (TOKENS,), lazy("Mean"), is_error=True),
    Ratio("unigram_perplexity", "unigram perplexity", (TOKENS,), lazy("Perplexity")),  # of the frequencies of tokens
    Share("masked_accuracy", "masked accuracy", HIDDEN, lazy("Mean")),
    Share("next_sentence_accuracy", "next-sentence accuracy", (PAIRS,), lazy("Mean")),
    Metric("chrf", "chrF", gap_unit="chrF", point=1.0),  # 0 to 100 (Popovic, 2015)
    Metric("rouge1", "ROUGE-1", gap_unit="ROUGE-1"),
    Metric("rouge2", "ROUGE-2", gap_unit="ROUGE-2"),
    Metric("rouge_l_lead", "ROUGE-L of the first words", gap_unit="ROUGE-L"),  # of the source
    Share("chance", "chance", EVERY, lazy("LargestShare"), is_compared=False, detailed=True),  # of the largest class
    Share("top5_accuracy", "top-5 accuracy", EVERY, lazy("Top5"), is_compared=False, fewest=6, detailed=True),
    # how far confidence is from accuracy, over bins (Guo et al., 2017)
    Metric("calibration_error", "calibration error", EVERY, ECE, "", False, False, is_compared=False, detailed=True),
    *(Share(key, name, is_compared=False) for key, name in PROBES.items()),
    Metric("score", "score"),  # of runs of other programs
    Metric("cost", "cost", higher_is_better=False),
    Ratio("loss", "loss", ALL, lazy("Mean"), is_error=True),
)
TABLES = (  # no columns of results.csv, or no ones that are compared
    *(Metric(f"{term}_loss", f"{term} loss", of, lazy("Mean")) for term, of in TERMS.items()),
    Metric("outcomes", "what each item gives", ALL, lazy("ItemOutcomes"), detailed=True),
    Metric("reliability", "accuracy by confidence", EVERY, lazy("Reliability"), detailed=True),
    # of classes that mean the same in every item, a row for each true class
    Metric("confusion_matrix", "confusions", CLASSES, lazy("Confusion"), most=MOST_CONFUSED, detailed=True),
)


def find_metric(key: str) -> Metric:
    """Find the metric of a column; `fewshot_5@digits` is a probe's number on other data."""
    name, _, data = key.partition("@")
    found = next(metric for metric in METRICS if metric.key == name)
    return replace(found, key=key, name=f"{found.name} on {data}") if data else found


def main_metric(rows: list[dict[str, Any]]) -> Metric:
    """Choose the study's `task.metric`, else the first metric that some run has; give it the unit of the sizes.

    Runs of other programs have a name for it.
    """
    named = (find_metric(row["metric"]) for row in rows if row.get("metric"))
    measured = (m for m in METRICS if m.is_compared and any(m.value(row) is not None for row in rows))
    metric = next(chain(named, measured, [find_metric("accuracy")]))
    unit = next((str(row["unit"]) for row in rows if row.get("unit")), metric.sized_by)
    name = next((str(row["metric_name"]) for row in rows if row.get("metric_name")), metric.name)
    column = next((str(row["size_name"]) for row in rows if row.get("size_name")), "")
    return replace(metric, name=name, sized_by=unit, size_name=column)
