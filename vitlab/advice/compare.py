"""Choose the best classifier of pictures and predict the gain from more labels: scikit-learn on arrays.

Fit every candidate on the training parts of the same repeated splits. Each repetition tests every picture with a model
that has seen neither the picture nor a copy. Features are arrays: pixels, colors, or a frozen network's.

Shapes: N pictures, D width of features, C classes, S sizes, K candidates, B bootstrap draws.
"""

import time
import timeit
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from vitlab.advice.backbones import PIXELS as PICTURES
from vitlab.advice.backbones import Backbone, count_colors, open_backbone, scale_pixels
from vitlab.config import UserError
from vitlab.data.base import Show
from vitlab.data.cache import read_kept
from vitlab.data.split import nested_order
from vitlab.formatting import duration, plural, whole
from vitlab.training.finished import Prediction, fit_temperature, read_pictures, soften

TIMED = 5  # predictions
FOR_COMPARING = 0.25  # share of --hours that networks' features must leave
FOLDS, REPEATS = 5, 4  # 20 splits: each picture is tested REPEATS times
INNER = 0.25  # share of a training part held out to choose a setting
CURVES = 2, 3  # candidates to fit at smaller sizes, too: with a network, without
SIZES, FEWEST = 5, 20  # sizes of a curve, each half of the next; training pictures of the smallest
DRAWS = 2000
WIDER = 1.45  # training sets share pictures, so draws of tested pictures alone vary too little
FLATTER, DRIFT = 0.85, 0.15  # the relative change of a curve's slope beyond the data: mean, standard deviation
LEVEL = 0.9  # of all intervals
FARTHEST = 10.0  # times the labels: follow no curve beyond
LARGEST_KERNEL = 10_000  # pictures; above, a support vector machine takes hours
PIXELS, COLORS = "pixels", "colors"


KINDS: dict[str, tuple[tuple, Callable[[Any], Any]]] = {  # by name: settings to try, how to build a classifier
    "SVM (RBF)": ((1, 10), lambda setting: make_pipeline(StandardScaler(with_std=False), SVC(C=setting))),
    "random forest": ((None,), lambda _: RandomForestClassifier(100, random_state=0)),
    "logistic regression": (
        (0.001, 0.01, 0.1, 1.0),
        lambda setting: make_pipeline(StandardScaler(), LogisticRegression(C=setting, max_iter=300, tol=1e-3)),
    ),
    "nearest neighbors": (
        (1, 5, 15),
        lambda setting: make_pipeline(Normalizer(), KNeighborsClassifier(setting, weights="distance")),
    ),
}
FLOOR, FROZEN = ("SVM (RBF)", "random forest", "logistic regression"), ("logistic regression", "nearest neighbors")


@dataclass(frozen=True)
class Range:
    """A value with a 90% interval."""

    value: float
    low: float
    high: float

    def lower(self, by: float) -> "Range":
        return Range(self.value - by, self.low - by, self.high - by)


@dataclass(frozen=True)
class Candidate:
    """A classifier on an array of features; a floor needs no network."""

    kind: str
    features: str

    @property
    def name(self) -> str:
        where = {PIXELS: "pixels", COLORS: "color histograms"}.get(self.features, f"frozen {self.features}")
        return f"{self.kind} on {where}"

    @property
    def is_floor(self) -> bool:
        return self.features in (PIXELS, COLORS)


Splits = list[tuple[np.ndarray, np.ndarray]]  # training rows, nested and stratified, copies side by side; test rows


def make_splits(labels: np.ndarray, groups: np.ndarray, held_out: np.ndarray | None) -> Splits:
    """Make FOLDS x REPEATS stratified splits with groups (N,) kept together; `held_out` (N,), if given, is the test."""
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    splits = []
    for repeat in range(REPEATS):
        if held_out is None:
            place = np.empty(len(first), dtype=int)
            place[nested_order(labels[first], repeat)] = np.arange(len(first))
            folds = [(place % FOLDS == fold)[member] for fold in range(FOLDS)]
        else:
            folds = [held_out] * FOLDS
        for fold, tested in enumerate(folds):
            within = np.unique(member[~tested])
            chosen = within[nested_order(labels[first[within]], 1000 * repeat + fold)]
            rank = np.full(len(first), len(first))
            rank[chosen] = np.arange(len(chosen))
            rows = np.flatnonzero(~tested)
            splits.append((rows[np.argsort(rank[member[rows]], kind="stable")], np.flatnonzero(tested)))
    return splits


@threadpool_limits.wrap(limits=1)  # on so little data more threads only wait for each other
def fit_classifier(kind: str, x: np.ndarray, labels: np.ndarray, train: np.ndarray) -> Any:
    """Fit a classifier on the training rows; choose its setting on a part of them."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is a choice, too
    settings, build = KINDS[kind]
    settings = [one for one in settings if kind != "nearest neighbors" or one <= (1 - INNER) * len(train)] or settings
    inner = round((1 - INNER) * len(train))
    fitted, held, chosen = train[:inner], train[inner:], settings[0]
    if len(settings) > 1 and len(held) and len(np.unique(labels[fitted])) > 1:
        right = [build(one).fit(x[fitted], labels[fitted]).score(x[held], labels[held]) for one in settings]
        chosen = settings[int(np.argmax(right))]
    return build(chosen).fit(x[train], labels[train])


def score(model: Any, x: np.ndarray, classes: int) -> np.ndarray:
    """Compute scores float32 (N, C), logs or distances; a class that the training rows lack has the lowest."""
    if hasattr(model, "decision_function"):
        found = model.decision_function(x)
        found = np.stack([-found, found], axis=1) if found.ndim == 1 else found
    else:
        found = np.log(np.maximum(model.predict_proba(x), 1e-6))
    scores = np.full((len(x), classes), found.min() - 1, dtype=np.float32)
    scores[:, model.classes_] = found
    return scores


def fit_scores(kind: str, x: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    return score(fit_classifier(kind, x, labels, train), x[test], labels.max() + 1)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A candidate's results. hits: (S, N), share of repetitions that got a picture right, NaN if untested.

    sizes: (S,), the largest first. scores: (N, C) at the largest size, the mean over `repeats` repetitions.
    """

    candidate: Candidate
    sizes: np.ndarray
    hits: np.ndarray
    scores: np.ndarray
    repeats: float = REPEATS


def compare_candidates(
    features: Mapping[str, np.ndarray],
    labels: np.ndarray,
    splits: Splits,
    progress: Show = lambda *_: None,
    deadline: float = np.inf,
) -> list[Outcome]:
    """Rank all candidates at the largest training set, the best first; measure the best CURVES of them at all sizes.

    Fit all to the first split, and to further splits only if that ends before `deadline` (of time.monotonic) at the
    pace so far. Leave a third of the time to the smaller sizes.
    """

    def evaluate(candidates: Sequence[Candidate], sizes: Sequence[int], what: str, end: float) -> list[Outcome]:
        hits = np.zeros((len(candidates), len(sizes), len(labels)), dtype=np.float32)
        scores = np.zeros((len(candidates), len(labels), labels.max() + 1), dtype=np.float32)
        tested, made, done = np.zeros(len(labels), dtype=int), 0, 0
        more = planned = len(splits) if np.isinf(end) else 1
        while more:
            begun, now = time.monotonic(), splits[made : made + more]
            cases = list(product(now, range(len(candidates)), range(len(sizes))))
            fits = []
            for (train, test), place, which in cases:
                one = candidates[place]
                fits.append(delayed(fit_scores)(one.kind, features[one.features], labels, train[: sizes[which]], test))
            for ((_, test), place, which), found in zip(cases, Parallel(-1, return_as="generator")(fits), strict=True):
                hits[place, which, test] += found.argmax(axis=1) == labels[test]
                if which == 0:
                    scores[place, test] += found
                done += 1
                progress(what, done, len(candidates) * len(sizes) * planned)
            for _, test in now:
                tested[test] += 1
            made += more
            ended = time.monotonic()
            fitting = int(min(len(splits) - made, max(0.0, (end - ended) * more / (ended - begun))))
            more, planned = (fitting + 1) // 2, made + fitting  # half of them: the pace is measured again
        with np.errstate(invalid="ignore"):
            hits /= np.where(tested, tested, np.nan)
        means = scores / np.maximum(tested, 1)[:, None]
        return [
            Outcome(one, np.array(sizes), *rest, made / FOLDS)
            for one, *rest in zip(candidates, hits, means, strict=True)
        ]

    size = min(len(train) for train, _ in splits)
    begun = time.monotonic()
    first = (begun + 2 * deadline) / 3
    kinds = {name: FLOOR if name in (PIXELS, COLORS) else FROZEN for name in features}
    left_out = ["SVM (RBF)"] if len(labels) > LARGEST_KERNEL else []
    all_of_them = [Candidate(kind, name) for name, of in kinds.items() for kind in of if kind not in left_out]
    ranked = evaluate(all_of_them, [size], "comparing classifiers", first)
    deadline -= (time.monotonic() - begun) / (ranked[0].repeats * FOLDS)  # a split's: the best is fitted again
    ranked.sort(key=lambda one: -np.nanmean(one.hits[0]))
    chosen = [one for one in ranked if not one.candidate.is_floor][: CURVES[0]]
    chosen += [one for one in ranked if one.candidate.is_floor][: CURVES[1]]
    least = max(FEWEST, 2 * len(np.unique(labels)))
    smaller = [size >> power for power in range(1, SIZES) if size >> power >= least]
    followed = evaluate([one.candidate for one in chosen], smaller, "with fewer labels", deadline) if smaller else []
    for one, more in zip(chosen, followed, strict=False):
        sizes, hits = np.append(one.sizes, more.sizes), np.concatenate([one.hits, more.hits])
        ranked[ranked.index(one)] = replace(one, sizes=sizes, hits=hits)
    return ranked


def draw_means(hits: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Bootstrap means (B, ...) of hits (..., N), NaN untested, over groups of pictures; widen their spread by WIDER."""
    tested = ~np.isnan(hits).reshape(-1, hits.shape[-1])
    some = tested.any(axis=0)
    values, tested = np.nan_to_num(hits).reshape(tested.shape)[:, some], tested[:, some]
    _, member = np.unique(groups[some], return_inverse=True)
    count = member.max() + 1
    sums, sizes = (np.stack([np.bincount(member, row, count) for row in rows]) for rows in (values, tested))
    generator, found = np.random.default_rng(0), []
    for _ in range(DRAWS // 100):
        weights = generator.poisson(1.0, (100, count)).astype(np.float32)
        found.append(weights @ sums.T / np.maximum(weights @ sizes.T, 1))
    means = values.sum(axis=1) / tested.sum(axis=1)
    drawn = means + WIDER * (np.concatenate(found) - means)
    # add mistakes that so few pictures do not show
    fewest = generator.gamma(0.5, 1.0, (DRAWS, 1)) / tested.sum(axis=1)
    return (drawn - fewest).reshape(DRAWS, *hits.shape[:-1])


def to_range(value: float, drawn: np.ndarray) -> Range:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Range(float(value), float(min(low, value)), float(max(high, value)))


@dataclass(frozen=True)
class Curve:
    """A power law of the error in the labels around the largest size: `error` there, and `slope` in logarithms.

    `errors` and `slopes` (B,) are bootstrap draws; each slope has drifted by DRIFT.
    """

    size: int
    error: float
    slope: float
    errors: np.ndarray
    slopes: np.ndarray

    def range_of(self, find: Callable[[Any, Any], Any]) -> Range:
        """Apply a function of errors and slopes to the curve and its draws; return the value with its interval."""
        return to_range(find(self.error, self.slope), find(self.errors, self.slopes))

    def at(self, size: float) -> Range:
        """Predict the accuracy with `size` labels."""
        grown = size / self.size
        return self.range_of(lambda error, slope: 1 - np.minimum(1, error * grown**-slope))

    def gain(self, start: float, more: float) -> Range:
        """Predict the rise of the accuracy with `more` labels than `start`."""
        before, after = start / self.size, (start + more) / self.size
        return self.range_of(lambda error, slope: error * (before**-slope - after**-slope))

    def labels_for(self, target: float) -> Range | None:
        """Predict the labels needed for an accuracy; None if they surely exceed FARTHEST times the largest size."""

        def find(error: Any, slope: Any) -> Any:
            powers = np.log(np.maximum(error, 1e-9) / (1 - target)) / np.maximum(slope, 1e-3)
            return self.size * np.exp(np.minimum(powers, 50))

        found = self.range_of(find)
        return None if found.low > FARTHEST * self.size else found


def fit_curve(outcome: Outcome, groups: np.ndarray) -> Curve | None:
    """Fit a weighted line through the logarithms of a candidate's errors; None with fewer than three sizes."""
    if len(outcome.sizes) < 3:
        return None
    tested = int((~np.isnan(outcome.hits[0])).sum())
    logs = np.log(outcome.sizes / outcome.sizes[0])
    weights = outcome.sizes / outcome.sizes[0]  # sizes near the largest count more: curves bend
    centered = logs - np.average(logs, weights=weights)

    def fit(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.log(np.clip(errors, 0.1 / tested, 1))
        slopes = -(y * weights * centered).sum(axis=-1) / (weights * centered**2).sum()
        heights = np.average(y, weights=weights, axis=-1) + slopes * np.average(logs, weights=weights)
        return np.exp((heights + y[..., 0]) / 2), np.maximum(slopes, 0)

    error, slope = fit(1 - np.nanmean(outcome.hits, axis=1))
    errors, slopes = fit(1 - draw_means(outcome.hits, groups))
    drift = FLATTER + DRIFT * np.random.default_rng(1).standard_normal(len(slopes))
    return Curve(int(outcome.sizes[0]), float(error), FLATTER * float(slope), errors, np.maximum(slopes * drift, 0))


@dataclass(frozen=True)
class Network:
    """A network trained on these pictures. hits (N,): share of its runs that got a picture right, NaN untested."""

    name: str
    hits: np.ndarray
    runs: int
    steps: int
    undertrained: bool
    folder: str = ""  # of the first run

    @property
    def trained(self) -> str:
        return f"{plural(self.runs, 'run')} of {whole(self.steps)} steps"


@dataclass(frozen=True)
class Standing:
    """A model in the answer's list. now, later: accuracy with all labels of the folder, with twice as many."""

    name: str
    now: Range
    later: Range | None
    lead: Range | None  # over the best classifier that needs no network
    curve: Curve | None
    is_floor: bool
    hits: np.ndarray
    network: Network | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Advice:
    """The answer. `standings` has the best first. `chosen` is the best floor, or a model that is surely better."""

    standings: list[Standing]
    chosen: Standing
    labels: int
    largest_class: float
    beats_chance: bool
    floor: Standing  # the best one that needs no network

    @property
    def hopeful(self) -> Standing | None:
        """A network ahead of the chosen floor whose lead may be chance."""
        ahead = [one for one in self.standings if one.lead is not None and one.lead.value > 0]
        return max(ahead, key=lambda one: one.lead.value) if self.chosen is self.floor and ahead else None


def judge(
    outcomes: Sequence[Outcome],
    networks: Sequence[Network],
    labels: np.ndarray,
    groups: np.ndarray,
    held_out: np.ndarray | None,
) -> Advice:
    """Judge all models and choose one; `outcomes` come from `compare_candidates`.

    Of the floors within a standard error of the best, take the first in KINDS: it gains most from labels. Name a model
    that needs a network only if its lead over that floor is not chance, given how many were tried. The best of several
    is partly the luckiest: lower its accuracy, also a trained network's, by the bootstrap's estimate of that luck.
    """
    size = len(labels) if held_out is None else int((~held_out).sum())
    every = [*(one.hits[0] for one in outcomes), *(one.hits for one in networks)]
    means = np.nanmean(every, axis=1)
    drawn = draw_means(np.stack(every), groups)
    plain = means + (drawn - drawn.mean(axis=0)) / WIDER
    floors = np.array([place for place, one in enumerate(outcomes) if one.candidate.is_floor][: CURVES[1]])
    spread = (drawn[:, floors, None] - drawn[:, None, floors]).std(axis=0)  # (F, F)
    order = np.argsort([[*KINDS].index(outcomes[place].candidate.kind) for place in floors], kind="stable")

    def name_floor(values: np.ndarray) -> np.ndarray:
        """Choose the floor to name, as a place in `floors`, from accuracies (B, F)."""
        best = values.argmax(axis=1)
        level = values.max(axis=1, keepdims=True) - values <= spread[best]
        return order[level[:, order].argmax(axis=1)]

    kept = int(floors[name_floor(means[None, floors])[0]])
    floor = outcomes[kept]
    needless = {place for place, one in enumerate(outcomes) if one.candidate.is_floor}  # of a network
    tried = len(every) - len(needless)

    def lead_of(hits: np.ndarray) -> Range:
        gaps = hits - floor.hits[0]
        draws = draw_means(gaps[None], groups)[:, 0]
        low, high = np.quantile(draws, [0.05 / tried, 1 - 0.05 / tried])
        return Range(float(np.nanmean(gaps)), float(low), float(high))

    leads = {place: lead_of(hits) for place, hits in enumerate(every) if place not in needless}
    sure = [place for place, lead in leads.items() if lead.low > 0]
    best = max(sure or range(len(every)), key=means.__getitem__)
    # luck in choosing a floor, and the best of all: how much better the choice of a draw looks in that draw
    choices = {kept: floors[name_floor(plain[:, floors])], best: plain.argmax(axis=1)}
    rows = np.arange(len(plain))
    luck = {place: float((plain[rows, taken] - means[taken]).mean()) for place, taken in choices.items()}
    standings = []
    for place, one in enumerate(outcomes):
        curve, hits = fit_curve(one, groups), one.hits[0]
        now, later = (curve.at(size), curve.at(2 * size)) if curve else (to_range(means[place], drawn[:, place]), None)
        if means[place] == 1:  # no mistake in n pictures: the rule of three
            now = later = Range(1.0, 1 - 3 / len(np.unique(groups)), 1.0)
        now, later = (some and some.lower(luck.get(place, 0.0)) for some in (now, later))
        name, is_floor = one.candidate.name, one.candidate.is_floor
        standings.append(Standing(name, now, later, leads.get(place), curve, is_floor, hits, outcome=one))
    for place, one in enumerate(networks, len(outcomes)):
        now = to_range(means[place], drawn[:, place]).lower(luck.get(place, 0.0))
        standings.append(Standing(one.name, now, None, leads[place], None, False, one.hits, network=one))
    chosen, best_floor = standings[best if sure else kept], standings[kept]
    standings.sort(key=lambda one: -one.now.value)
    largest = np.bincount(labels).argmax()
    above = draw_means((chosen.hits - np.where(np.isnan(chosen.hits), np.nan, labels == largest))[None], groups)
    share = float((labels == largest).mean())
    return Advice(standings, chosen, size, share, bool(np.quantile(above, 1 - LEVEL) > 0), best_floor)


@dataclass(frozen=True)
class Mistakes:
    """Rows of wrongly classified pictures, surest first, with predicted class and calibrated confidence.

    suspects: rows whose wrong answer has at least the median confidence of right answers. Models are less sure of hard
    pictures, but not of pictures with a wrong label. sure: a tenth of the right answers have at least this confidence.
    """

    rows: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    suspects: np.ndarray
    tested: int
    temperature: float  # of the scores
    sure: float


def find_mistakes(outcome: Outcome, labels: np.ndarray) -> Mistakes:
    tested = np.flatnonzero(~np.isnan(outcome.hits[0]))
    truth, temperature = labels[tested], fit_temperature(outcome.scores[tested], labels[tested])
    shares = soften(outcome.scores[tested], temperature)
    predicted, confidence = shares.argmax(axis=1), shares.max(axis=1)
    right, wrong = confidence[predicted == truth], np.flatnonzero(predicted != truth)
    wrong = wrong[np.argsort(-confidence[wrong])]
    suspects = wrong[confidence[wrong] >= (np.median(right) if len(right) else np.inf)]
    sure = float(np.quantile(right, 0.9)) if len(right) else 1.0
    surest = tested[wrong], predicted[wrong], confidence[wrong]
    return Mistakes(*surest, tested[suspects], len(tested), temperature, sure)


class AdvisedClassifier:
    """The classifier that `vitlab advise` named, fitted again on its pictures, used like `training.predict.Predictor`.

    `facts` is "predictor" of the folder's advice.json. Raises UserError for a network that is gone.
    """

    fills = is_number = several = False
    not_calibrated = ""

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        table = pd.read_csv(folder / "pictures.csv", dtype=str, keep_default_na=False)
        self.classes, self.temperature, self.features = facts["classes"], facts["temperature"], facts["features"]
        self.backbone = open_backbone(facts["source"], facts["side"]) if facts["source"] else PICTURES
        self.bits = facts["bits"]
        kept = read_kept(folder / facts["kept"] / f"{self.backbone.key}.safetensors")
        train = table[table["split"] != "test"] if "split" in table else table
        if lacking := len(set(train["digest"]) - kept.keys()):
            raise UserError(f"{folder}: lacks the features of {plural(lacking, 'picture')}; run vitlab advise again")
        rows = np.stack([kept[digest] for digest in train["digest"]])
        self.grey = self.backbone is PICTURES and bool((rows[:, :1] == rows).all())
        labels = train["label"].map(self.classes.index).to_numpy()
        self.model = fit_classifier(facts["kind"], self.describe(rows), labels, np.arange(len(labels)))

    def describe(self, rows: np.ndarray) -> np.ndarray:
        if self.features == COLORS:
            return count_colors(rows)
        return scale_pixels(rows, self.grey) if self.features == PIXELS else rows

    def predict(self, inputs: Sequence[str], progress: Show = lambda *_: None) -> list[Prediction]:
        """Predict for files of pictures, in their order; a file that cannot be read has an error."""
        found = []
        for path in inputs:
            picture, errors = read_pictures([path], self.backbone.size, self.backbone.channels, self.bits)
            if errors:
                found.append(Prediction(path, error=errors[0]))
            else:
                scores = score(self.model, self.describe(self.backbone.embed(picture)), len(self.classes))
                shares = soften(scores, self.temperature)[0].tolist()
                found.append(Prediction(path, dict(zip(self.classes, shares, strict=True))))
            progress("predicting", len(found), len(inputs))
        return found


# ---- time


def within(deadline: float, hours: float, progress: Show) -> Show:
    """Wrap the `progress` of a network's features: raise RuntimeError if they would leave no time to compare."""
    first: list[tuple[float, int]] = []  # after the first batch, in which the network warms up

    def show(what: str, done: int, total: int) -> None:
        progress(what, done, total)
        now = time.monotonic()
        first.append((now, done))
        if len(first) > 2 and done < total / 2:  # later, stopping saves little
            left = (total - done) * (now - first[0][0]) / (done - first[0][1])
            if now + left > deadline - FOR_COMPARING * 3600 * hours:
                more = f"its features take {duration(left)} more, too long for --hours {hours:g}"
                raise RuntimeError(f"{more}; give more hours, or a smaller --image-size")

    return show


def describe_costs(
    outcome: Outcome, features: Mapping[str, np.ndarray], networks: Mapping[str, Backbone], labels: np.ndarray
) -> str:
    """Describe the cost of a prediction: the shortest of several timings in this process."""
    one, size = outcome.candidate, ""
    x = features[one.features]
    model = fit_classifier(one.kind, x, labels, np.arange(len(labels)))
    took = min(timeit.repeat(lambda: score(model, x[:1], int(labels.max()) + 1), number=1, repeat=TIMED))
    if network := networks.get(one.features):
        picture = np.zeros((1, network.channels, *network.size), np.uint8)
        took += min(timeit.repeat(lambda: network.embed(picture), number=1, repeat=TIMED))
        size = f" and {network.megabytes:.0f} MB of weights"
    return f"{one.name} takes {1000 * took:.1f} ms a picture once it is decoded{size}."
