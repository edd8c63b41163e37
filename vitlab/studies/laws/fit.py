"""Scaling laws fitted to the errors of one model at several training-set sizes, with their uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vitlab.config import UserError, choices_text
from vitlab.studies.laws.forms import FORMS, LAWS, Curve, Law
from vitlab.studies.laws.holdouts import Holdout, list_folds, miss_per_doubling, root_mean_square
from vitlab.studies.laws.least_squares import minimise, minimise_from_starts
from vitlab.studies.laws.noise import DRAWS, Noise, Runs, noise_about_law, noise_between_seeds, unknown_noise
from vitlab.studies.laws.table import FEWEST

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
        """The parameters as LAWS writes the law."""
        return {name: float(value[0]) for name, value in self.form.params(self.theta[None]).items()}

    @property
    def at_bound(self) -> list[str]:
        """The parameters that ended at a bound: the data only say that they are beyond it, or nearly."""
        low, high = self.form.bounds
        slack = np.minimum(0.01 * (high - low), 0.1)
        ended = (low < high) & ((self.theta <= low + slack) | (self.theta >= high - slack))
        return [name for name, at_end in zip(self.form.names, ended, strict=True) if at_end]

    @property
    def known(self) -> list[str]:
        """The parameters that were given, such as e_0 by chance."""
        low, high = self.form.bounds
        return [name for name, given in zip(self.form.names, low == high, strict=True) if given]

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
        x = self.runs.log_sizes
        return [
            minimise(
                law.form,
                x,
                law.log_errors(x) + noise,
                self.weights,
                np.repeat(law.theta[None], len(noise), 0),
                steps=15,
            )[0]
            for law, noise in ((law, self.noise_of_means[k :: len(self.laws)]) for k, law in enumerate(self.laws))
        ]

    @cached_property
    def drift_draws(self) -> np.ndarray:
        """(draws): how far the log error leaves the laws with each doubling beyond the data; its own in each model."""
        half = self.runs.own_generator().standard_t(DRIFT_DEGREES, DRAWS // 2)
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
            self.drawn[key] = self.evaluate_draws(log_sizes)
        return self.drawn[key]

    def evaluate_draws(self, log_sizes: np.ndarray) -> np.ndarray:
        drawn = np.full((DRAWS, len(log_sizes)), np.nan)
        for k, (law, thetas) in enumerate(zip(self.laws, self.theta_draws, strict=True)):
            drawn[k :: len(self.laws)] = law.form.evaluate(thetas, log_sizes)[0]
        doublings = np.maximum(log_sizes - self.runs.log_sizes[-1], 0) / np.log(2)
        return drawn + self.drift_draws[:, None] * doublings

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

    def interval(self, sizes: Sequence[float] | float, level: float = LEVEL) -> np.ndarray:
        """(2, ...): the confidence interval of the mean error at each size, low and high."""
        sizes = np.asarray(sizes, float)
        logs = ends(self.draw_log_errors(np.log(sizes.ravel())), level)
        return np.exp(np.minimum(logs, LARGEST_LOG)).reshape(2, *sizes.shape)

    def prediction_interval(self, sizes: Sequence[float] | float, level: float = LEVEL) -> np.ndarray:
        """(2, ...): where the error of one new run at each size falls, low and high."""
        sizes = np.asarray(sizes, float)
        log_sizes = np.log(sizes.ravel())
        nearest = np.abs(log_sizes[:, None] - self.runs.log_sizes).argmin(1)
        logs = self.draw_log_errors(log_sizes) + self.noise.draw_run(nearest)
        return np.exp(np.minimum(ends(logs, level), LARGEST_LOG)).reshape(2, *sizes.shape)

    def param_intervals(self, level: float = LEVEL) -> dict:
        """The confidence interval of each parameter, (low, high), in the shape of `params`."""
        intervals = {
            law.name: {name: tuple(map(float, ends(drawn, level))) for name, drawn in law.form.params(thetas).items()}
            for law, thetas in zip(self.laws, self.theta_draws, strict=True)
        }
        return intervals if self.law == MEAN else intervals.get(self.law, {})


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
        raise UserError(f"law={law}: is not a law; {choices_text(law, ['auto', *LAWS])}")
    if chance is not None and not chance > np.exp(runs.means.min()):
        raise UserError(
            f"chance={chance}: no error is below it; give the error of guessing, such as 0.9 for ten equal classes"
        )
    count = len(runs.log_sizes)
    if law == "auto" and count < FEWEST_AVERAGED:
        return Fit(None, (), runs, runs.counts, estimate_noise((), runs))
    names = AVERAGED if law == "auto" else (law,)
    weights = decay(runs) if law == "auto" else runs.counts
    laws = fit_laws(names, runs, weights, chance)
    if not laws:
        free = FORMS[law](Curve(runs.log_sizes, runs.means, chance)).free
        raise UserError(f"law={law}: has {free} parameters, {count} sizes cannot tell them; give more")
    holdouts = [
        holdout for fold in list_folds(count) if (holdout := hold_out(names, runs, weights, chance, fold)) is not None
    ]
    return Fit(
        law=MEAN if law == "auto" else law,
        laws=laws,
        runs=runs,
        weights=weights,
        noise=estimate_noise(laws, runs),
        rmse_holdout=root_mean_square(np.array([holdout.misses[0] for holdout in holdouts])) if holdouts else None,
        drift=DRIFT * miss_per_doubling(holdouts) if law == "auto" else 0.0,
    )


def decay(runs: Runs) -> np.ndarray:
    """(N): the runs of each size, weighted so that the largest sizes count most: curves leave their laws slowly."""
    return runs.counts * 0.5 ** ((runs.log_sizes[-1] - runs.log_sizes) / np.log(2) / HALVING)


def fit_laws(
    names: Sequence[str], runs: Runs, weights: np.ndarray, chance: float | None, first: int | None = None
) -> tuple[LawFit, ...]:
    """The laws that the `first` sizes can tell, all of them by default, each from the best of many starts."""
    part = slice(0, first)
    log_sizes, means = runs.log_sizes[part], runs.means[part]
    chance = chance if chance is not None and chance > np.exp(means.min()) else None
    forms = {name: FORMS[name](Curve(log_sizes, means, chance)) for name in names}
    return tuple(
        LawFit(name, form, minimise_from_starts(form, log_sizes, means, weights[part])[0])
        for name, form in forms.items()
        if form.free <= len(log_sizes)
    )


def hold_out(names: Sequence[str], runs: Runs, weights: np.ndarray, chance: float | None, first: int) -> Holdout | None:
    """What the laws of the `first` sizes miss the others by; None where these are too few for any law."""
    laws = fit_laws(names, runs, weights, chance, first)
    if not laws:
        return None
    rest = runs.log_sizes[first:]
    predicted = np.mean([law.log_errors(rest) for law in laws], axis=0)
    return Holdout(predicted - runs.means[first:], (rest - runs.log_sizes[first - 1]) / np.log(2))


def estimate_noise(laws: Sequence[LawFit], runs: Runs) -> Noise:
    if runs.repeated:
        return noise_between_seeds(runs)
    if not laws:
        return unknown_noise(runs)
    predicted = np.mean([law.log_errors(runs.log_sizes) for law in laws], axis=0)
    return noise_about_law(runs, predicted, min(law.form.free for law in laws))


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


def ends(values: np.ndarray, level: float) -> np.ndarray:
    """The quantiles (2, ...) that leave out as much on either side, over the first axis."""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
