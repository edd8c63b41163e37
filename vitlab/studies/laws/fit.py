"""A scaling law fitted to the errors of one model at several training-set sizes, with its uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vitlab.config import UserError, choices_text
from vitlab.studies.laws.forms import FORMS, LAWS, Curve, Law
from vitlab.studies.laws.least_squares import minimise, minimise_from_starts
from vitlab.studies.laws.noise import Noise, Runs, noise_about_law, noise_between_seeds
from vitlab.studies.laws.table import FEWEST

LEVEL = 0.9  # of intervals
LARGEST_MISS = float(np.log(1.5))  # RMSE of the log error over held-out sizes above which a law is not drawn


@dataclass(frozen=True)
class Fit:
    """One law on one curve. `rmse_holdout` is the RMSE of log predicted against log measured error on larger sizes.

    `theta` is the fit in the law's own coordinates; `draws` are fits to data redrawn with the noise of the runs.
    """

    law: str
    form: Law = field(repr=False)
    runs: Runs = field(repr=False)
    theta: np.ndarray = field(repr=False)
    noise: Noise = field(repr=False)
    rmse_holdout: float | None = None  # None: too few sizes to hold any out

    @property
    def params(self) -> dict[str, float]:
        """The parameters of the law as LAWS writes it."""
        return {name: float(value[0]) for name, value in self.form.params(self.theta[None]).items()}

    @cached_property
    def draws(self) -> np.ndarray:
        """(draws, P): the law fitted again to its own curve with other noise."""
        fitted = self.form.evaluate(self.theta[None], self.runs.log_sizes)[0]
        start = np.repeat(self.theta[None], len(self.noise_of_means), axis=0)
        return minimise(
            self.form, self.runs.log_sizes, fitted + self.noise_of_means, self.runs.counts, start, steps=15
        )[0]

    @cached_property
    def noise_of_means(self) -> np.ndarray:
        """(draws, sizes): what the mean log error of each size is off by."""
        return self.noise.draw_means()

    @property
    def measured_by(self) -> str:
        """What the intervals rest on."""
        return "seeds resampled" if self.runs.repeated else "residuals resampled, one seed"

    @property
    def largest(self) -> float:
        return float(np.exp(self.runs.log_sizes[-1]))

    @property
    def holds(self) -> bool:
        """Whether the law predicts larger sizes well enough to be drawn: within a factor of 1.5."""
        return self.rmse_holdout is None or self.rmse_holdout <= LARGEST_MISS

    def predict(self, sizes: Sequence[float] | float) -> np.ndarray:
        """The law's error at each size, in the shape of `sizes`."""
        sizes = np.asarray(sizes, float)
        return np.exp(self.form.evaluate(self.theta[None], np.log(sizes.ravel()))[0]).reshape(sizes.shape)

    def interval(self, sizes: Sequence[float] | float, level: float = LEVEL) -> np.ndarray:
        """(2, ...): the confidence interval of the law's error at each size, low and high."""
        sizes = np.asarray(sizes, float)
        logs = self.form.evaluate(self.draws, np.log(sizes.ravel()))[0]
        return np.exp(ends(logs, level)).reshape(2, *sizes.shape)

    def prediction_interval(self, sizes: Sequence[float] | float, level: float = LEVEL) -> np.ndarray:
        """(2, ...): where the error of one new run at each size falls, low and high."""
        sizes = np.asarray(sizes, float)
        log_sizes = np.log(sizes.ravel())
        logs = self.form.evaluate(self.draws, log_sizes)[0]
        nearest = np.abs(log_sizes[:, None] - self.runs.log_sizes).argmin(1)
        return np.exp(ends(logs + self.noise.draw_run(nearest), level)).reshape(2, *sizes.shape)

    def param_intervals(self, level: float = LEVEL) -> dict[str, tuple[float, float]]:
        """The confidence interval of each parameter."""
        drawn = self.form.params(self.draws)
        return {name: tuple(map(float, ends(values, level))) for name, values in drawn.items()}


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
    takes the law that predicts the largest sizes best from the smaller ones. Raises UserError.
    """
    runs = order_runs(sizes, errors, seeds)
    if law != "auto" and law not in FORMS:
        raise UserError(f"law={law}: is not a law; {choices_text(law, ['auto', *LAWS])}")
    if chance is not None and not chance > np.exp(runs.means.min()):
        raise UserError(
            f"chance={chance}: no error is below it; give the error of guessing, such as 0.9 for ten equal classes"
        )
    misses = {name: measure_holdout(name, runs, chance) for name in (FORMS if law == "auto" else [law])}
    if law == "auto":
        law = choose(misses, sum(len(runs.counts) - kept for kept in list_folds(len(runs.counts))))
    form, theta = fit_runs(law, runs, chance)
    if form.free > len(runs.counts):
        raise UserError(f"law={law}: has {form.free} parameters, {len(runs.counts)} sizes cannot tell them; give more")
    return Fit(law, form, runs, theta, estimate_noise(form, theta, runs), misses[law])


def estimate_noise(form: Law, theta: np.ndarray, runs: Runs) -> Noise:
    if runs.repeated:
        return noise_between_seeds(runs)
    return noise_about_law(runs, form.evaluate(theta[None], runs.log_sizes)[0][0], form.free)


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


def fit_runs(law: str, runs: Runs, chance: float | None, first: int | None = None) -> tuple[Law, np.ndarray]:
    """The law and its theta on the first sizes, all of them by default, from the best of many starts."""
    kept = slice(0, first)
    log_sizes, means, counts = runs.log_sizes[kept], runs.means[kept], runs.counts[kept]
    form = FORMS[law](Curve(log_sizes, means, chance))
    return form, minimise_from_starts(form, log_sizes, means, counts)[0]


def measure_holdout(law: str, runs: Runs, chance: float | None) -> float | None:
    """RMSE of the log error at the largest sizes, each fold fitted to those below them; None with too few sizes."""
    squares: list[np.ndarray] = []
    for kept in list_folds(len(runs.counts)):
        form, theta = fit_runs(law, runs, chance, kept)
        if form.free > kept:
            return None
        squares.append((form.evaluate(theta[None], runs.log_sizes[kept:])[0][0] - runs.means[kept:]) ** 2)
    return float(np.sqrt(np.concatenate(squares).mean())) if squares else None


def list_folds(sizes: int) -> list[int]:
    """How many sizes each fold is fitted to: all but the last tenth, fifth and third of them."""
    held = sorted({max(1, round(sizes * share)) for share in (0.1, 0.2, 0.33)})
    return [sizes - n for n in held if sizes - n >= min(sizes - 1, 4)]


def choose(misses: dict[str, float | None], held: int) -> str:
    """The simplest law within one standard error of the smallest miss (Breiman et al., 1984, section 3.4.3).

    That of a root mean square over `held` values is its share 1 / sqrt(2 held). M1 where none could be held out.
    """
    known = {name: miss for name, miss in misses.items() if miss is not None}
    if not known:
        return "m1"
    best = min(known.values())
    return next(name for name, miss in known.items() if miss <= best * (1 + (2 * held) ** -0.5))


def ends(values: np.ndarray, level: float) -> np.ndarray:
    """The quantiles (2, ...) that leave out as much on either side, over the first axis."""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
