"""What runs are measured by: one module for a metric or for several that are measured together, found by listing.

A module has `METRICS`, a tuple of `Metric`: the columns of results.csv with their labels and units. Where they are of
classes or numbers it has `build(key, outputs)` too, which gives a metric of torchmetrics that is updated with logits
(B, outputs) and targets (B,); torch is imported inside, because commands that only print read the labels. `of` says
what it is built for: IMAGES of image classification, LABELS (several of an image, targets (B, outputs)), MEASURES
(numbers of images, in their own unit), TEXTS, TAGS, CHOICES and NUMBERS (standardised) of text. With `detailed` it is
measured on the test set alone, and `is_compared` shows it in the report's table of runs. Shipped priorities are up to
200 for what a study may be about; the default comes after them. A metric that keeps all pairs of classes says so by
`classes=(2, MOST_CONFUSED)`.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vitlab.formatting import DASH, finite, significant
from vitlab.registry import list_modules

if TYPE_CHECKING:
    import torchmetrics

IMAGES, TEXTS, TAGS, CHOICES, NUMBERS = "images", "texts", "tags", "choices", "numbers"
LABELS, MEASURES = "labels", "measures"
CLASSES = (IMAGES, TEXTS, TAGS)  # which mean the same in every item; those of CHOICES do not
LEAST = 1e-12  # of a relative metric, whose logarithm is taken: an error may be 0
MOST_CONFUSED = 5000  # classes for which all pairs of them are counted: 200 MB


@dataclass(frozen=True)
class Metric:
    """A number that results have: how it is called and written, and what it is of."""

    key: str  # a column of results.csv
    name: str
    percent: bool = False  # a share in 0..1
    higher_is_better: bool = True
    gap_unit: str = ""
    sized_by: str = "example"  # what the sizes of the training sets that it is compared over count
    loss: str = "cross-entropy, nats"  # what is made small where this is measured
    point: float = 0.01  # what a margin of 1 is, in `compared`: a percentage point, or 1% of a relative metric
    relative: bool = False  # compared by ratios, since its spread grows with it, and its unit with the data
    priority: int = 500  # a study is about the metric with the lowest one of those that its runs have
    is_compared: bool = True  # shown beside others in tables of runs
    is_error: bool = False  # a positive number that falls as a power of the data: laws describe it as it stands
    gives_error: bool = False  # the column `error` of results.csv follows from it
    of: tuple[str, ...] = ()  # what its `build` is for: IMAGES, LABELS, MEASURES, TEXTS, TAGS, CHOICES, NUMBERS
    classes: tuple[int, int] = (2, sys.maxsize)  # fewest and most classes for which it makes sense
    detailed: bool = True  # measured once, on the test data; False: at every evaluation too

    def fits(self, of: str, classes: int, detailed: bool) -> bool:
        """Whether it is measured of so many classes of this kind."""
        fewest, most = self.classes
        return of in self.of and fewest <= classes <= most and (detailed or not self.detailed)

    def compared(self, value: float) -> float:
        """On the scale that differences and their intervals are taken on."""
        return math.log(max(value, LEAST)) if self.relative else value

    def width(self, value: float) -> str:
        """Half an interval in `compared`: `2.3 points`, or `2.3%` of a relative metric."""
        return f"{significant(100 * value)}%" if self.relative else self.gap(value)

    def describe_margin(self, points: float) -> str:
        """`1 point`, `1%`"""
        if self.relative:
            return f"{points:g}%"
        size = f"{100 * points * self.point if self.percent else points * self.point:g}"
        return f"{size} {self.gap_unit.removesuffix('s') if size == '1' else self.gap_unit}".rstrip()

    def to_error(self, value: float) -> float:
        """1 - a share; another metric as it stands."""
        return 1 - value if self.percent else value

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


@cache
def list_metric_modules() -> tuple[ModuleType, ...]:
    return tuple(import_module(f"{__name__}.{name}") for name in list_modules(__name__))


@cache
def list_metrics() -> tuple[Metric, ...]:
    """All metrics, the one that a study is rather about first."""
    return tuple(sorted((m for module in list_metric_modules() for m in module.METRICS), key=lambda m: m.priority))


def find_metric(key: str) -> Metric:
    """The metric of a column; `fewshot_5@digits` is a probe's number on other data."""
    name, _, data = key.partition("@")
    found = next(metric for metric in list_metrics() if metric.key == name)
    return replace(found, key=key, name=f"{found.name} on {data}") if data else found


def build_metrics(of: str, outputs: int, detailed: bool) -> Iterator[tuple[str, "torchmetrics.Metric"]]:
    """(key, metric) of all that fit."""
    homes = {metric.key: module for module in list_metric_modules() for metric in module.METRICS}
    for metric in list_metrics():
        if metric.fits(of, outputs, detailed):
            yield metric.key, homes[metric.key].build(metric.key, outputs)


def main_metric(rows: list[dict[str, Any]]) -> Metric:
    """The one that the study names (`task.metric`), else the first of all that some run has; over their sizes."""
    shown = [metric for metric in list_metrics() if metric.is_compared]
    accuracy = find_metric("accuracy")
    named = next((find_metric(row["metric"]) for row in rows if row.get("metric")), None)
    measured = next((metric for metric in shown if any(metric.value(row) is not None for row in rows)), accuracy)
    metric_shown = named or measured
    unit = next((str(row["unit"]) for row in rows if row.get("unit")), metric_shown.sized_by)
    return replace(metric_shown, sized_by=unit)
