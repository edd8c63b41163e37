"""What a study says to someone who has to choose: the best model now, with twice the labels, with some more."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.formatting import plural, whole
from vitlab.reports.results.aggregate import CellAverage, aggregate
from vitlab.reports.results.comparison import Comparison, compare_sizes, correct_for_overlap, format_gap, values_of
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.laws.fit import Fit, ends
from vitlab.studies.paired import Estimate, Spread, estimate_mean, mean_over_seeds, moderated_spreads
from vitlab.tasks.metrics import Metric

MORE = 1000  # labels, for which the gain is said
DOUBLE = 2.0
NO_NETWORK = "histogram"  # the family of the baseline that sees colors alone
SURE = 0.9  # confidence from which a mistake may be a wrong label
MANY_SURE = 0.05  # of the test items: as many sure mistakes are a sign of wrong labels


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
    now: Estimate
    later: Range | None
    gain: Range | None
    seconds: float  # of a training
    params: int


@dataclass(frozen=True)
class Advice:
    """`standings` has the best model first; `chosen` is what to take."""

    metric: Metric
    size: int
    standings: Sequence[Standing]
    chosen: Standing
    comparison: Comparison | None

    @property
    def best_later(self) -> Standing | None:
        """The model with the best prediction for twice the labels."""
        known = [one for one in self.standings if one.later]
        return max(known, key=lambda one: self.metric.lead(one.later.value, 0.0), default=None)


def advise(results: StudyResults) -> Advice | None:
    """None where no run with the largest training set has finished."""
    metric, by_model = results.metric, aggregate(results.rows, results.metric)
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
                estimate_now(results, by_model[model], cell),
                predict(results, fit, DOUBLE * size) if holds else None,
                predict_gain(results, fit, size) if holds else None,
                float(np.mean([row["wall_s"] for row in cell.rows])),
                row["params"],
            )
        )
    standings.sort(key=lambda one: metric.lead(one.now.mean, 0.0), reverse=True)
    comparison = compare_sizes(by_model, metric, results.outcomes, results.margin).get(size)
    level = comparison.tied if comparison and comparison.tied else (standings[0].model,)
    # of models that cannot be told apart the one that costs least
    chosen = min((one for one in standings if one.model in level), key=lambda one: one.seconds)
    return Advice(metric, size, standings, chosen, comparison)


def estimate_now(results: StudyResults, by_size: dict[int, CellAverage], cell: CellAverage) -> Estimate:
    """The mean of a model with a 95% interval over seeds, and over test items where all seeds have the same."""
    values = [*values_of(cell, results.metric, results.outcomes).values()]
    if len({np.shape(value) for value in values}) == 1 and np.ndim(values[0]):
        return estimate_mean(np.array(values))
    spreads = moderated_spreads(
        {size: [results.metric.value(row) for row in one.rows] for size, one in by_size.items()}
    )
    size = cell.rows[0]["train_size"]
    spread = spreads.get(size) or Spread(0.0, 1)
    factor = correct_for_overlap(cell, [row for one in by_size.values() for row in one.rows])
    return mean_over_seeds(
        [results.metric.value(row) for row in cell.rows], Spread(spread.std * factor, spread.degrees)
    )


def predict(results: StudyResults, fit: Fit, size: float) -> Range:
    """The metric of a new run with a training set of a size, with its 90% interval."""
    errors = [float(fit.predict([size])[0]), *fit.prediction_interval([size])[:, 0].tolist()]
    value, *reach = (clip(results, results.fits.scale.to_metric(error)) for error in errors)
    return Range(value, min(reach), max(reach))


def predict_gain(results: StudyResults, fit: Fit, size: int) -> Range:
    """By how much the metric improves with MORE labels, with its 90% interval."""
    sizes, scale = np.log([size, size + MORE]), results.fits.scale
    before, after = (scale.to_metric(np.exp(logs)) for logs in fit.log_errors(sizes))
    drawn = scale.to_metric(np.exp(fit.draw_log_errors(sizes)))
    sign = 1 if results.metric.higher_is_better else -1
    low, high = ends(sign * (drawn[:, 1] - drawn[:, 0]), 0.9)
    return Range(sign * float(after - before), float(low), float(high))


def clip(results: StudyResults, value: float) -> float:
    return min(1.0, max(0.0, float(value))) if results.metric.percent else float(value)


def describe_advice(advice: Advice, sure_mistakes: float | None = None) -> list[str]:
    """The verdict as sentences, the most important one first; `sure_mistakes` is a share of the test items."""
    metric, chosen, best = advice.metric, advice.chosen, advice.standings[0]
    with_labels = f"with {plural(advice.size, 'training label')}"
    now = describe_now(chosen, metric)
    one = advice.comparison
    if one is None or len(advice.standings) == 1:
        sentences = [f"{chosen.model} reaches {now} {metric.name} {with_labels}."]
    elif one.chance is not None:
        sentences = [
            f"Undecided, because no model beats always choosing the largest class ({metric.text(one.chance)})."
        ]
    elif one.leader:
        gap = format_gap(one.gap, metric)
        sentences = [f"Take {best.model}: {now} {metric.name} {with_labels}, {gap} ahead of {one.ranking[1]}."]
    else:
        others = " and ".join(model for model in one.tied if model != chosen.model)
        word = "level" if one.level or one.gap.half_width is None else "undecided"
        why = (
            f"{best.model} is ahead of {one.ranking[1]} by {format_gap(one.gap, metric)}, which includes 0"
            if one.gap.half_width is not None
            else "their results are equal"
        )
        sentences = [
            f"{word.capitalize()} between {chosen.model} and {others} {with_labels}, because {why}. Take {chosen.model}, "
            f"which trains fastest: {now} {metric.name}."
        ]
    if chosen.family == NO_NETWORK and one is not None and one.chance is None:
        sentences.append("The colors alone decide: no network is needed to tell these classes apart.")
    sentences += describe_more_labels(advice)
    if sure_mistakes is not None and sure_mistakes >= MANY_SURE:
        sentences.append(
            f"{sure_mistakes:.0%} of the test pictures are wrong although the model is over {SURE:.0%} sure: look at their "
            "labels before you add more."
        )
    return sentences


def describe_now(one: Standing, metric: Metric) -> str:
    """`91.2% (88.0 to 94.4)`"""
    if one.now.half_width is None:
        return metric.text(one.now.mean)
    low, high = (max(0.0, min(1.0, end)) if metric.percent else end for end in (one.now.low, one.now.high))
    return f"{metric.text(one.now.mean)} ({metric.number(low)} to {metric.number(high)})"


def describe_more_labels(advice: Advice) -> list[str]:
    metric, later = advice.metric, advice.best_later
    if later is None:
        return ["What more labels would bring cannot be said, because no curve follows a law within a factor of 1.5."]
    value = later.later
    sentences = [
        f"With twice the labels, {whole(DOUBLE * advice.size)}, {later.model} is expected at {metric.text(value.value)} "
        f"({metric.number(value.low)} to {metric.number(value.high)})."
    ]
    gain = advice.chosen.gain
    if gain is not None:
        unit = f" {metric.gap_unit}" if metric.gap_unit else ""
        low, high, mean = (sign_number(metric, number) for number in (gain.low, gain.high, gain.value))
        sentences.append(f"{whole(MORE)} more labels: {mean}{unit} for {advice.chosen.model} ({low} to {high}).")
    return sentences


def sign_number(metric: Metric, value: float) -> str:
    text = metric.number(abs(value))
    return f"{'-' if value < 0 and float(text) else '+'}{text}"


def find_sure_mistakes(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Places of the mistakes among (N, C), the surest first."""
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    return wrong[np.argsort(-probabilities[wrong, predicted[wrong]], kind="stable")]


def soften(logits: np.ndarray) -> np.ndarray:
    """Probabilities (N, C) of logits."""
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
