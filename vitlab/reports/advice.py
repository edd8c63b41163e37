"""What a study says to someone who has to choose: the best model now, with twice the labels, with some more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.formatting import plural, whole
from vitlab.reports.words import Comparison, compare_sizes, format_gap, join_names
from vitlab.studies.laws.fit import LARGEST_LOG, Fit, ends
from vitlab.studies.limits import list_limits
from vitlab.studies.results import CHANCE, Results
from vitlab.tasks.metrics import Metric
from vitlab.training.mistakes import Examined

MORE = 1000  # labels, for which the gain is said
DOUBLE = 2.0
NO_NETWORK = "histogram"  # the family of the baseline that sees colors alone
MANY_SURE, MOSTLY = 0.03, 0.3  # shares of the test items and of the mistakes: so many sure ones mean wrong labels


@dataclass(frozen=True)
class Range:
    """A value of the metric with an interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """A model with the largest training set. `now` has a 95% interval, `later` and `gain` have 90% intervals.

    later: with twice the labels; gain: of MORE labels; both None where its curve follows no law.
    """

    model: str
    family: str
    now: Range
    later: Range | None
    gain: Range | None
    seconds: float  # of a training
    params: int
    flops: float  # of a training example


@dataclass(frozen=True)
class Advice:
    """`standings` has the best model first; `chosen` is what to take."""

    metric: Metric
    size: int
    standings: Sequence[Standing]
    chosen: Standing
    comparison: Comparison | None
    margin: float  # in points, within which models are as good
    limited: bool  # whether the budget limits some model with the largest training set, or the law of one rests on it

    @property
    def best_later(self) -> Standing | None:
        """The model with the best prediction for twice the labels."""
        known = [one for one in self.standings if one.later]
        return max(known, key=lambda one: self.metric.lead(one.later.value, 0.0), default=None)


def advise(results: Results) -> Advice | None:
    """None where no run with the largest training set has finished."""
    metric, by_model = results.metric, results.by_model
    size = max((row["train_size"] for row in results.rows), default=0)
    here = {model: by_size[size] for model, by_size in by_model.items() if size in by_size}
    if not here:
        return None
    standings = []
    for model, cell in here.items():
        fit = results.fits.fits.get(model)
        holds = fit is not None and fit.holds
        row = cell.rows[0]
        standings.append(
            Standing(
                model,
                row["family"],
                Range(cell.mean, *results.reach(cell)),
                predict(results, fit, DOUBLE * size) if holds else None,
                predict_gain(results, fit, size) if holds else None,
                float(np.mean([row["wall_s"] for row in cell.rows])),
                row["params"],
                row["train_flops"] / row["examples_seen"],
            )
        )
    standings.sort(key=lambda one: metric.lead(one.now.value, 0.0), reverse=True)
    comparison = compare_sizes(results, {model: {size: model} for model in here}).get(size)
    best = metric.compared(standings[0].now.value)
    near = [one for one in standings if abs(metric.compared(one.now.value) - best) <= results.margin * metric.point]
    led = comparison is not None and comparison.leader
    chosen = standings[0] if led else min(near, key=lambda one: one.flops)
    limits = list_limits(results.rows)
    limited = any(limits.get((model, size)) == "budget" or model in results.fits.on_budget for model in here)
    return Advice(metric, size, standings, chosen, comparison, results.margin, limited)


def predict(results: Results, fit: Fit, size: float) -> Range:
    """The metric of a new run with a training set of a size, with its 90% interval."""
    errors = [float(fit.predict([size])[0]), *fit.prediction_interval([size])[:, 0].tolist()]
    value, *reach = (clip(results, results.fits.scale.to_metric(error)) for error in errors)
    return Range(value, min(reach), max(reach))


def predict_gain(results: Results, fit: Fit, size: int) -> Range:
    """By how much the metric improves with MORE labels, with its 90% interval."""
    sizes, scale = np.log([size, size + MORE]), results.fits.scale
    before, after = (scale.to_metric(np.exp(logs)) for logs in fit.log_errors(sizes))
    largest = 0.0 if results.metric.percent else LARGEST_LOG  # an error is at most 1
    drawn = scale.to_metric(np.exp(np.minimum(fit.draw_log_errors(sizes), largest)))
    sign = 1 if results.metric.higher_is_better else -1
    low, high = ends(sign * (drawn[:, 1] - drawn[:, 0]), 0.9)
    return Range(sign * float(after - before), float(low), float(high))


def clip(results: Results, value: float) -> float:
    return min(1.0, max(0.0, float(value))) if results.metric.percent else float(value)


def describe_advice(advice: Advice, examined: Examined | None = None) -> list[str]:
    """The verdict as sentences, the most important one first."""
    sentences = describe_choice(advice).splitlines()
    if advice.limited:
        first = sentences[0]
        if first.startswith(("Take", "Undecided")):
            first = f"{first[0].lower()}{first[1:]}"
        sentences[0] = f"Limited by the budget: {first}"
    guessing = advice.comparison and advice.comparison.verdict == CHANCE
    if advice.chosen.family == NO_NETWORK and not guessing and len(advice.standings) > 1:
        undecided = " so far" if advice.comparison and advice.comparison.undecided else ""
        sentences.append(f"The colors alone decide{undecided}: no network is needed to tell these classes apart.")
    sentences += describe_more_labels(advice)
    # a hard picture is decided with less confidence than an easy one, a wrong label with as much
    if examined and examined.sure >= max(MANY_SURE * examined.tested, MOSTLY * examined.wrong, 1):
        sentences.append(
            f"{examined.sure / examined.tested:.0%} of the test pictures are decided against their label with as much "
            "confidence as right ones: labels seem to be wrong. Look at them before you add more."
        )
    return sentences


def describe_choice(advice: Advice) -> str:
    """`Take A: 91.2% (88.0 to 94.4) accuracy with 648 training labels, 3.1 ± 1.2 points ahead of B.`"""
    metric, chosen, best, one = advice.metric, advice.chosen, advice.standings[0], advice.comparison
    with_labels = f"with {plural(advice.size, 'training label')}"
    reached = f"{describe_range(chosen.now, metric)} {metric.name}"
    if one is None:
        return f"{chosen.model} reaches {reached} {with_labels}."
    if one.verdict == CHANCE:
        return f"Undecided: no model beats always choosing the largest class, {metric.text(one.chance)} {with_labels}."
    gap = format_gap(one.gap.estimate, metric)
    if one.leader:
        return f"Take {best.model}: {reached} {with_labels}, {gap} ahead of {one.ranking[1]}."
    others = [model for model in one.ranking if model in one.tied and model != chosen.model]
    if not one.undecided:
        return f"Take {chosen.model}: {reached} {with_labels}; {join_names(others)} cost more and give the same."
    cheap = "" if chosen is best else f", the cheapest within {metric.describe_margin(advice.margin)} of the best"
    return (
        f"Undecided between {join_names([chosen.model, *others])} {with_labels}, because the lead of "
        f"{one.ranking[0]} over {one.ranking[1]}, {gap}, may be chance.\n"
        f"Until there are more, take {chosen.model}: {reached}{cheap}."
    )


def describe_range(some: Range, metric: Metric) -> str:
    """`91.2% (88.0 to 94.4)`, without an end that is not known."""
    ends = "" if math.isnan(some.low) else f" ({metric.number(some.low)} to {metric.number(some.high)})"
    return f"{metric.text(some.value)}{ends}"


def describe_more_labels(advice: Advice) -> list[str]:
    """What twice the labels and MORE of them would bring."""
    metric, chosen, later = advice.metric, advice.chosen, advice.best_later
    if metric.percent and chosen.now.value == 1:
        return ["It makes no mistake on the test pictures, so what more labels bring cannot be seen."]
    sentences = []
    if chosen.later is None:
        sentences.append(f"What more labels bring {chosen.model} cannot be said: its curve follows no law.")
    if later is not None:
        size, reach = whole(DOUBLE * advice.size), describe_range(later.later, metric)
        sentences.append(f"With twice the labels, {size}, {later.model} is expected at {reach}.")
    if (gain := chosen.gain) is not None:
        unit = f" {metric.gap_unit}" if metric.gap_unit else ""
        low, high, mean = (sign_number(metric, number) for number in (gain.low, gain.high, gain.value))
        sentences.append(f"{whole(MORE)} more labels: {mean}{unit} for {chosen.model} ({low} to {high}).")
    return sentences


def sign_number(metric: Metric, value: float) -> str:
    text = metric.number(abs(value))
    return f"{'-' if value < 0 and float(text) else '+'}{text}"
