"""Scaling laws fitted to the errors of one model at several training-set sizes, with their uncertainty."""

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from vitlab.config import UserError, choices_text
from vitlab.formatting import DASH, significant, whole
from vitlab.studies.laws import FORMS, Law, minimise, minimise_from_starts
from vitlab.studies.stats import moderated_spreads

# ---- noise

DRAWS = 600


@dataclass(frozen=True)
class Runs:
    """log errors of a model's runs, by size and then by seed, in one order for all models of a study."""

    log_sizes: np.ndarray  # (N), ascending
    counts: np.ndarray  # (N) runs of each size
    log_errors: np.ndarray  # (runs)
    keys: tuple[tuple[float, int], ...]  # size and seed of each run

    @property
    def place(self) -> np.ndarray:
        """The index of each run's size."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def means(self) -> np.ndarray:
        return np.bincount(self.place, self.log_errors) / self.counts

    @property
    def mean_errors(self) -> np.ndarray:
        return np.bincount(self.place, np.exp(self.log_errors)) / self.counts

    def generator(self, purpose: int) -> np.random.Generator:
        """Random numbers that are the same for all models with runs of these sizes and seeds."""
        return np.random.default_rng([zlib.crc32(repr(self.keys).encode()), purpose])

    @property
    def repeated(self) -> bool:
        """Whether the scatter between seeds tells the noise: else only the distance from a fitted law can."""
        return int((self.counts - 1).sum()) >= max(2, len(self.counts) // 2)


@dataclass(frozen=True)
class Noise:
    """Of log errors: standard deviation by size (N), standardised residuals (runs), degrees of freedom."""

    runs: Runs
    deviations: np.ndarray
    residuals: np.ndarray
    freedom: float

    def draw_means(self) -> np.ndarray:
        """What the mean log error of each size is off by, (DRAWS, N).

        Residuals are resampled with replacement, as many as a size has runs. Each draw is scaled by the root of
        freedom / chi-squared, so that draws scatter as Student's t: the deviation was itself estimated.
        """
        generator = self.runs.generator(0)
        chosen = self.residuals[generator.integers(len(self.residuals), size=(DRAWS // 2, len(self.residuals)))]
        chosen = np.concatenate([chosen, -chosen])  # no draw without its mirror image: fewer draws do
        sums = np.add.reduceat(chosen, np.concatenate([[0], np.cumsum(self.runs.counts)[:-1]]), axis=1)
        return np.tile(self.inflate(generator, DRAWS // 2), 2)[:, None] * self.deviations * sums / self.runs.counts

    def draw_run(self, places: np.ndarray) -> np.ndarray:
        """What one new run is off by, at each place (the index of the size whose noise it has), (DRAWS, places)."""
        generator = self.runs.generator(1)
        chosen = self.residuals[generator.integers(len(self.residuals), size=(DRAWS, len(places)))]
        return self.inflate(generator, DRAWS)[:, None] * self.deviations[places] * chosen

    def inflate(self, generator: np.random.Generator, number: int) -> np.ndarray:
        return np.sqrt(self.freedom / generator.chisquare(self.freedom, number))


def unit(residuals: np.ndarray) -> np.ndarray:
    """The residuals with mean 0 and mean square 1; zeros stay zeros."""
    centred = residuals - residuals.mean()
    size = np.sqrt((centred**2).mean())
    return centred / size if size > 1e-12 else centred * 0


# ---- hold-outs


FIRST_FOLD = 4  # sizes of the first fold; 3 of a curve with 4 sizes
MOST_FOLDS = 6  # folds
PRIOR = 0.02  # miss per doubling, as of one more hold-out


def list_folds(sizes: int) -> list[int]:
    """How many sizes each fold is fitted to; of many sizes some folds, evenly spaced."""
    folds = np.arange(FIRST_FOLD if sizes > FIRST_FOLD else FIRST_FOLD - 1, sizes)
    places = np.linspace(0, len(folds) - 1, MOST_FOLDS).round().astype(int) if len(folds) else []
    return sorted({int(folds[place]) for place in places})


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


# ---- fits


FEWEST = 3  # sizes of a fit
LEVEL = 0.9  # of intervals
LARGEST_MISS = float(np.log(1.5))  # RMSE of the log error, on the data or held out, above which a law is not drawn
MEAN = "mean"  # the name of the mean of several laws
AVERAGED = ("m2", "m3", "m4")
FEWEST_AVERAGED = 4  # sizes
HALVING = 3.0  # doublings of the size over which the weight of a size halves, in a mean of laws
LARGEST_LOG = 700.0  # of the end of an interval, whose exponential is still a number
DRIFT = 0.6  # of the miss per doubling: the scale of how a curve leaves its law beyond the data
DRIFT_DEGREES = 4  # of freedom, of Student's t


@dataclass(frozen=True)
class LawFit:
    """One law on one curve. `theta` (P) is in the law's own coordinates."""

    name: str
    form: Law = field(repr=False)
    theta: np.ndarray = field(repr=False)

    @property
    def params(self) -> dict[str, float]:
        """The parameters of the law as it is written."""
        return {name: float(value[0]) for name, value in self.form.params(self.theta[None]).items()}

    @property
    def at_bound(self) -> list[str]:
        """The parameters that ended at a bound: the data only say that they are beyond it, or nearly."""
        low, high = (bound[0] for bound in self.form.bounds)
        slack = np.minimum(0.01 * (high - low), 0.1)
        ended = (low < high) & ((self.theta <= low + slack) | (self.theta >= high - slack))
        return [name for name, at_end in zip(self.form.names, ended, strict=True) if at_end]

    def log_errors(self, log_sizes: np.ndarray) -> np.ndarray:
        """(N)"""
        return self.form.evaluate(self.theta[None], log_sizes)[0][0]


@dataclass(frozen=True)
class Fit:
    """The laws of one curve: one that was asked for, or several whose logs are averaged.

    `law` is "mean" of several laws, None with too few sizes for any (then `predict` gives NaN). `rmse_holdout` is the
    RMSE of log predicted against log measured error of sizes predicted from smaller ones, None with too few to hold
    any out. `drift` is the scale of how the log error leaves the laws with each doubling beyond the data.
    """

    law: str | None
    laws: tuple[LawFit, ...] = field(repr=False)
    runs: Runs = field(repr=False)
    weights: np.ndarray = field(repr=False)  # (N) of each size in the least squares
    noise: Noise = field(repr=False)
    rmse_holdout: float | None = None
    drift: float = field(default=0.0, repr=False)
    drawn: dict[bytes, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def params(self) -> dict:
        """The parameters by name; of a mean, those of each law by the law's name."""
        if self.law == MEAN:
            return {law.name: law.params for law in self.laws}
        return self.laws[0].params if self.laws else {}

    @property
    def at_bound(self) -> list[str]:
        """The parameters that ended at a bound, such as `e_inf`; `m2.e_inf` in a mean."""
        prefix = "{}." if self.law == MEAN else ""
        return [prefix.format(law.name) + name for law in self.laws for name in law.at_bound]

    @property
    def measured_by(self) -> str:
        """What the intervals rest on."""
        return "seeds resampled" if self.runs.repeated else "residuals resampled, one seed"

    @property
    def largest(self) -> float:
        return float(np.exp(self.runs.log_sizes[-1]))

    @cached_property
    def holds(self) -> bool:
        """Whether the laws may be drawn: within a factor of 1.5 of their own data, and of sizes held out."""
        if not self.laws:
            return False
        misses = root_mean_square(self.log_errors(self.runs.log_sizes) - self.runs.means)
        return max(misses, self.rmse_holdout or 0.0) <= LARGEST_MISS

    @cached_property
    def noise_of_means(self) -> np.ndarray:
        """(draws, sizes): what the mean log error of each size is off by."""
        return self.noise.draw_means()

    @cached_property
    def theta_draws(self) -> list[np.ndarray]:
        """Of each law (draws / laws, P): fitted again to its own curve with other noise, one law in each draw."""
        x, draws = self.runs.log_sizes, []
        for k, law in enumerate(self.laws):
            noise = self.noise_of_means[k :: len(self.laws)]
            begin = np.repeat(law.theta[None], len(noise), 0)
            draws.append(minimise(law.form, x, law.log_errors(x) + noise, self.weights, begin, steps=15)[0])
        return draws

    @cached_property
    def drift_draws(self) -> np.ndarray:
        """(draws): how far the log error leaves the laws with each doubling beyond the data; its own in each model."""
        own = [zlib.crc32(repr(self.runs.keys).encode()), zlib.crc32(self.runs.log_errors.tobytes())]
        half = np.random.default_rng(own).standard_t(DRIFT_DEGREES, DRAWS // 2)
        return self.drift * np.concatenate([half, -half])

    def log_errors(self, log_sizes: np.ndarray) -> np.ndarray:
        """(N): the mean of the laws."""
        if not self.laws:
            return np.full(len(log_sizes), np.nan)
        return np.mean([law.log_errors(log_sizes) for law in self.laws], axis=0)

    def draw_log_errors(self, log_sizes: np.ndarray) -> np.ndarray:
        """(draws, N): the laws with other noise in the data and, beyond the data, a drift.

        Kept, since a model is compared with all others of a study at the same sizes.
        """
        key = log_sizes.tobytes()
        if key not in self.drawn:
            drawn = np.full((DRAWS, len(log_sizes)), np.nan)
            for k, (law, thetas) in enumerate(zip(self.laws, self.theta_draws, strict=True)):
                drawn[k :: len(self.laws)] = law.form.evaluate(thetas, log_sizes)[0]
            doublings = np.maximum(log_sizes - self.runs.log_sizes[-1], 0) / np.log(2)
            self.drawn[key] = drawn + self.drift_draws[:, None] * doublings
        return self.drawn[key]

    def read_means(self, log_sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log mean error at log sizes (N), (N), and draws of it, (draws, N).

        It is the measured one at sizes that were measured. Between two of them it follows the laws where they hold,
        moved by what these miss the two by, else a straight line in log size; outside the data it is the laws'.
        """
        x, means = self.runs.log_sizes, np.log(self.runs.mean_errors)
        shares = np.stack([np.interp(log_sizes, x, one, 0, 0) for one in np.eye(len(x))])  # (sizes, N)
        drawn = means + self.noise_of_means
        if not self.holds:
            return means @ shares, drawn @ shares
        law, laws = self.log_errors, self.draw_log_errors
        return law(log_sizes) + (means - law(x)) @ shares, laws(log_sizes) + (drawn - laws(x)) @ shares

    def predict(self, sizes: Sequence[float] | float) -> np.ndarray:
        """The error at each size, in the shape of `sizes`."""
        sizes = np.asarray(sizes, float)
        return np.exp(self.log_errors(np.log(sizes.ravel()))).reshape(sizes.shape)

    def interval(self, sizes: Sequence[float] | float, one_run: bool = False) -> np.ndarray:
        """(2, ...): the 90% confidence interval of the mean error at each size, low and high; or where a run falls."""
        sizes = np.asarray(sizes, float)
        log_sizes = np.log(sizes.ravel())
        logs = self.draw_log_errors(log_sizes)
        if one_run:
            logs = logs + self.noise.draw_run(np.abs(log_sizes[:, None] - self.runs.log_sizes).argmin(1))
        return np.exp(np.minimum(ends(logs), LARGEST_LOG)).reshape(2, *sizes.shape)

    def prediction_interval(self, sizes: Sequence[float] | float) -> np.ndarray:
        """(2, ...): where the error of one new run at each size falls with 90%, low and high."""
        return self.interval(sizes, one_run=True)


def fit_scaling_law(
    sizes: Sequence[float],
    errors: Sequence[float],
    law: str = "auto",
    chance: float | None = None,
    seeds: Sequence[int] | None = None,
) -> Fit:
    """Fit error against training-set size by least squares in the log of the error.

    Equal sizes are runs of several seeds; `seeds` name them where two models are to be compared run by run, else they
    are numbered in their order. `chance` is the error of guessing (0.9 for ten equal classes), the e_0 of M4. `auto`
    is the mean of M2, M3 and M4, without those that have more parameters than there are sizes, and no law with fewer
    than 4 sizes. Raises UserError.
    """
    runs = order_runs(sizes, errors, seeds)
    if law != "auto" and law not in FORMS:
        raise UserError(f"law={law}: is not a law; {choices_text(law, ['auto', *FORMS])}")
    if chance is not None and not chance > np.exp(runs.means.min()):
        raise UserError(
            f"chance={chance}: no error is below it; give the error of guessing, such as 0.9 for ten equal classes"
        )
    count = len(runs.log_sizes)
    if law == "auto" and count < FEWEST_AVERAGED:
        return Fit(None, (), runs, runs.counts, estimate_noise((), runs))
    names = AVERAGED if law == "auto" else (law,)
    weights = runs.counts
    if law == "auto":  # the largest sizes count most: curves leave their laws slowly
        weights = runs.counts * 0.5 ** ((runs.log_sizes[-1] - runs.log_sizes) / np.log(2) / HALVING)
    folds = list_folds(count)
    laws, *of_folds = fit_laws(names, runs, weights, chance, [count, *folds])
    if not laws:
        free = FORMS[law].of(runs.log_sizes, runs.means, chance).free
        raise UserError(f"law={law}: has {free} parameters, {count} sizes cannot tell them; give more")
    holdouts = []  # of sizes held out: log predicted less log measured error, doublings beyond the sizes of the fit
    for first, of_fold in zip(folds, of_folds, strict=True):
        if of_fold:
            rest = runs.log_sizes[first:]
            predicted = np.mean([law.log_errors(rest) for law in of_fold], axis=0)
            holdouts.append((predicted - runs.means[first:], (rest - runs.log_sizes[first - 1]) / np.log(2)))
    per_doubling = [misses @ far / (far @ far) for misses, far in holdouts]
    return Fit(
        law=MEAN if law == "auto" else law,
        laws=tuple(laws),
        runs=runs,
        weights=weights,
        noise=estimate_noise(laws, runs),
        rmse_holdout=root_mean_square(np.array([misses[0] for misses, _ in holdouts])) if holdouts else None,
        drift=DRIFT * root_mean_square(np.array([*per_doubling, PRIOR])) if law == "auto" else 0.0,
    )


def fit_laws(
    names: Sequence[str], runs: Runs, weights: np.ndarray, chance: float | None, firsts: Sequence[int]
) -> list[list[LawFit]]:
    """For each number in `firsts` the laws that so many first sizes can tell, each from the best of its starts."""
    found: list[list[LawFit]] = [[] for _ in firsts]
    for name in names:
        forms = {}
        for place, first in enumerate(firsts):
            means = runs.means[:first]
            known = chance if chance is not None and chance > np.exp(means.min()) else None
            form = FORMS[name].of(runs.log_sizes[:first], means, known)
            if form.free <= first:
                forms[place] = form
        if forms:
            used = np.stack([np.where(np.arange(len(weights)) < firsts[place], weights, 0) for place in forms])
            thetas = minimise_from_starts([*forms.values()], runs.log_sizes, runs.means, used)
            for (place, form), theta in zip(forms.items(), thetas, strict=True):
                found[place].append(LawFit(name, form, theta))
    return found


def estimate_noise(laws: Sequence[LawFit], runs: Runs) -> Noise:
    """By the scatter of seeds, else by the distance from fitted laws; where neither tells, all draws are NaN.

    The scatter is n / (n - 1) times the mean square of seeds within sizes, pooled as far as sizes agree. The
    standardised residuals of all sizes are resampled together: three seeds show too little of their distribution.
    """
    if not runs.repeated:
        deviation, residuals, freedom = np.nan, np.zeros(len(runs.log_errors)), 1.0
        if laws:
            predicted = np.mean([law.log_errors(runs.log_sizes) for law in laws], axis=0)
            residuals = runs.log_errors - predicted[runs.place]
            freedom = float(max(1, len(residuals) - min(law.form.free for law in laws)))
            deviation = np.sqrt((residuals**2).sum() / freedom)
        return Noise(runs, np.full(len(runs.counts), deviation), unit(residuals), freedom)
    sizes = np.exp(runs.log_sizes)
    spreads = moderated_spreads(dict(zip(sizes, np.split(runs.log_errors, np.cumsum(runs.counts)[:-1]), strict=True)))
    deviations = np.array([spreads[size].std if spreads else 0.0 for size in sizes])
    freedom = min((spread.degrees for spread in spreads.values()), default=1.0)
    several = (runs.counts > 1)[runs.place]
    residuals = runs.log_errors - runs.means[runs.place]
    residuals = np.divide(residuals, deviations[runs.place], out=np.zeros_like(residuals), where=spreads != {})
    scaled = residuals * np.sqrt(runs.counts / np.maximum(runs.counts - 1, 1))[runs.place]
    return Noise(runs, deviations, unit(np.resize(scaled[several], len(scaled))), freedom)


def order_runs(sizes: Sequence[float], errors: Sequence[float], seeds: Sequence[int] | None) -> Runs:
    """The runs by size and seed. Raises UserError for what no law can be fitted to."""
    x, e = np.asarray(sizes, float).ravel(), np.asarray(errors, float).ravel()
    if len(x) != len(e) or (seeds is not None and len(seeds) != len(x)):
        raise UserError(f"sizes, errors: {len(x)} and {len(e)} values; give one error, and one seed if any, per size")
    if not (np.isfinite(x).all() and np.isfinite(e).all() and (x > 0).all() and (e > 0).all()):
        raise UserError("sizes, errors: give positive numbers; a law has no error of 0")
    values, counts = np.unique(x, return_counts=True)
    if len(values) < FEWEST:
        raise UserError(f"sizes: {len(values)} different ones; a law needs {FEWEST} or more")
    order = np.lexsort((np.arange(len(x)) if seeds is None else np.asarray(seeds), x))
    numbers = np.concatenate([np.arange(n) for n in counts]) if seeds is None else np.asarray(seeds)[order]
    keys = tuple(zip(x[order].tolist(), numbers.tolist(), strict=True))
    return Runs(np.log(values), counts, np.log(e[order]), keys)


def ends(values: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """The quantiles (2, ...) that leave out as much on either side, over the first axis."""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)


# ---- groups of runs

BEYOND = (2.0, 4.0, 10.0)  # times the largest size: what is predicted where nothing is held back
ON_BUDGET = "limited by the budget: "  # before what rests on such cells


@dataclass
class Points:
    """The runs of one group. `chance` is the error of guessing, where the file has it."""

    sizes: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    chance: float | None = None

    def add(self, size: float, error: float, seed: int) -> None:
        self.sizes.append(size)
        self.errors.append(error)
        self.seeds.append(seed)

    def where(self, wanted: Callable[[float], bool]) -> "Points":
        """Those of the wanted sizes."""
        selected = Points(chance=self.chance)
        for point in zip(self.sizes, self.errors, self.seeds, strict=True):
            if wanted(point[0]):
                selected.add(*point)
        return selected


@dataclass(frozen=True)
class GroupFit:
    """A group's fit, with what was held back from it."""

    fit: Fit
    rest: Points  # of sizes above the limit

    @property
    def rmse_holdout(self) -> float | None:
        """RMSE of the log error: of what was held back, else of the rolling hold-out."""
        if not self.rest.sizes:
            return self.fit.rmse_holdout
        return root_mean_square(np.log(self.fit.predict(self.rest.sizes)) - np.log(self.rest.errors))

    @property
    def asked(self) -> list[float]:
        """The sizes to predict: those held back, else some beyond the data."""
        return sorted(set(self.rest.sizes)) or [self.fit.largest * times for times in BEYOND]

    @property
    def shown(self) -> float:
        """The size whose prediction stands in a table: the largest that was held back, else twice the data."""
        return self.asked[-1 if self.rest.sizes else 0]


def fit_group(points: Points, law: str, limit: float | None = None) -> GroupFit:
    """A fit to the sizes up to `limit`. Raises UserError."""
    fitted = points.where(lambda size: limit is None or size <= limit)
    lowest = np.exp(order_runs(fitted.sizes, fitted.errors, fitted.seeds).means.min())
    # a model that only guesses tells nothing by the error of guessing
    chance = fitted.chance if fitted.chance is not None and fitted.chance > lowest else None
    fit = fit_scaling_law(fitted.sizes, fitted.errors, law, chance, fitted.seeds)
    return GroupFit(fit, points.where(lambda size: limit is not None and size > limit))


def make_law_table(fits: Mapping[str, GroupFit], error: str, on_budget: Collection[str] = ()) -> list[list[str]]:
    """The law of each group and what more data bring, a row each below the header; `error` is what was fitted.

    `on_budget` are the groups whose laws rest on cells that the budget limits.
    """
    size = max(group.shown for group in fits.values())
    doubling = f"each doubling of the data lowers the {error} by (90%)"
    rows = [["", "law", doubling, "hold-out", f"{error} at {whole(size)} (90%, one run)"]]
    for name, group in fits.items():
        at = f" at {whole(group.shown)}" if group.shown != size else ""
        miss = DASH if group.rmse_holdout is None else significant(group.rmse_holdout)
        slopes = describe_slopes(group.fit) if group.fit.holds else DASH
        laws = [law.name.upper() for law in group.fit.laws] or [DASH]
        law = f"mean of {', '.join(laws)}" if group.fit.law == MEAN else laws[0]
        slopes = f"{ON_BUDGET if name in on_budget else ''}{slopes}"
        rows.append([name, law, slopes, miss, describe_prediction(group) + at])
    return rows


def describe_slopes(fit: Fit, unit: str = "", by: str = "") -> str:
    """`31% (24 to 38) at 1,000, 4% (0 to 9) at 32,000`: by how much twice the smallest and largest size lower it."""
    texts = []
    for log_size in fit.runs.log_sizes[[0, -1]]:
        step = np.array([log_size, log_size + np.log(2)])
        high, low = ends(np.diff(fit.draw_log_errors(step))[:, 0])
        changes = -np.expm1([np.diff(fit.log_errors(step))[0], low, high])
        value, low, high = (f"{round(100 * change):.0f}" for change in changes)
        texts.append(f"{value}% ({low} to {high}) at {whole(np.exp(log_size))}{unit if not texts else ''}")
    return f",{by} ".join(texts)


def list_params(fits: Mapping[str, GroupFit]) -> Iterator[list[Any]]:
    """A header, then a row for each parameter of each law, with its 90% interval."""
    yield ["model", "law", "parameter", "value", "low", "high"]
    for name, group in fits.items():
        for law, thetas in zip(group.fit.laws, group.fit.theta_draws, strict=True):
            for parameter, drawn in law.form.params(thetas).items():
                yield [name, law.name, parameter, law.params[parameter], *map(float, ends(drawn))]


def describe_prediction(group: GroupFit) -> str:
    """`0.12 (0.10 to 0.15)`, or why there is none."""
    fit = group.fit
    if not fit.laws:
        return f"none: {len(fit.runs.counts)} sizes; auto needs {FEWEST_AVERAGED}"
    if not fit.holds:
        return f"none: it misses measured errors by more than a factor of {np.exp(LARGEST_MISS):g}"
    low, high = map(float, fit.prediction_interval(group.shown))
    return f"{significant(float(fit.predict(group.shown)))} ({significant(low)} to {significant(high)})"
