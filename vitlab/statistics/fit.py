"""Fit scaling laws to one model's errors by training-set size, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from vitlab.config import UserError, choices_text
from vitlab.statistics.forms import FORMS, LARGEST_LOG, Law, minimise, minimise_from_starts
from vitlab.statistics.stats import DRAWS, draw, moderated_spreads

MOST_DRAWN = 8  # sets of sizes whose draws a fit keeps
POOL = 100  # draw from at most so many residuals
FIRST_FOLD = 4  # sizes of the first fold; 3 for a curve of 4 sizes
MOST_FOLDS = 6
FEWEST = 3  # sizes of a fit
ENOUGH = 10  # sizes from which curves of one seed have sure crossovers
FEWEST_SCATTERED = 8  # sizes whose scatter round a smooth curve tells the noise of one seed
SCATTER = "judged by the scatter round the curve, not by seeds"
WIDER = 1.4  # times the scatter: points of one seed share subsets and test items
SMOOTH, TREND = 0.2, 0.05  # probabilities of so long a fall, of so few changes of sign, if scatter is noise
COVERAGE = 0.9  # of intervals
LARGEST_MISS = float(np.log(1.5))  # draw no law with a larger RMSE of the log error, on the data or held out
STRIDE = np.uint64(0x9E3779B97F4A7C15)  # from draw to draw, as in SplitMix64
MEAN = "mean"  # the name of the mean of several laws
AVERAGED = ("m2", "m3", "m4")
FEWEST_AVERAGED = 4  # sizes
HALVING = 3.0  # in a mean of laws, a size's weight halves with so many doublings down
CLEARLY = 20.0  # a curve rises if the best falling line misses by so many times its squares, and vice versa
NO_NOISE = 1e-12  # squared log errors that rounding explains
DRIFT = 0.6  # times the miss per doubling: how fast a curve leaves its law beyond the data
DRIFT_DEGREES = 4  # of freedom, of Student's t
PRIOR = 0.02  # miss per doubling of one imagined further hold-out
BEYOND = (2.0, 4.0, 10.0)  # times the largest size: sizes to predict if none is held back


@dataclass(frozen=True)
class LogErrors:
    """Log errors of a model's runs, sorted by size, then seed: the same order for all models of a study."""

    log_sizes: np.ndarray  # (N), ascending
    counts: np.ndarray  # (N) runs of each size
    log_errors: np.ndarray  # (runs)
    keys: tuple[tuple[float, int], ...]  # size and seed of each run

    @cached_property
    def size_index(self) -> np.ndarray:
        """The index of each run's size."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def means(self) -> np.ndarray:
        return np.bincount(self.size_index, self.log_errors) / self.counts

    @cached_property
    def log_means(self) -> np.ndarray:
        """Logs of the mean errors."""
        return np.log(np.bincount(self.size_index, np.exp(self.log_errors)) / self.counts)

    @cached_property
    def trend(self) -> int:
        """1 if the error rises with the size, -1 if it falls, 0 if neither is clear.

        The error rises if the means are CLEARLY nearer to the best rising line than to the best falling one, beyond
        noise.
        """
        from scipy.optimize import isotonic_regression  # takes 0.5 s

        misses = self.log_errors - self.means[self.size_index]
        noise = max(misses @ misses / max(1, len(misses) - len(self.means)), NO_NOISE)
        lines = [isotonic_regression(self.means, weights=self.counts, increasing=way).x for way in (True, False)]
        rising, falling = (self.counts @ (self.means - line) ** 2 for line in lines)
        return int(falling > CLEARLY * max(rising, noise)) - int(rising > CLEARLY * max(falling, noise))

    @property
    def repeated(self) -> bool:
        """True if enough seeds repeat to measure the noise; else measure the distance from a fitted law."""
        return int((self.counts - 1).sum()) >= max(2, len(self.counts) // 2)


@dataclass(frozen=True)
class Fit:
    """The fitted law of one curve, or several laws whose logs are averaged.

    law: "mean" for several laws; None with too few sizes or with rising errors (then `predict` gives NaN).
    rmse_holdout: RMSE of log predicted against log measured error, sizes predicted from smaller ones; None if too few.
    drift: how far the log error leaves the laws with each doubling beyond the data (scale).
    held_back: sizes and errors (2, R) of runs above the largest size to fit.
    """

    law: str | None
    laws: tuple[Law, ...] = field(repr=False)
    runs: LogErrors = field(repr=False)
    weights: np.ndarray = field(repr=False)  # (N) of each size in the least squares
    rmse_holdout: float | None = None
    drift: float = field(default=0.0, repr=False)
    of_items: np.ndarray | float = field(default=0.0, repr=False, compare=False)  # (DRAWS, N), see `noise_of_means`
    of_choice: np.ndarray | None = field(default=None, repr=False, compare=False)  # (DRAWS, N), of the best of models
    floor: float = field(default=0.0, repr=False)  # error still possible if the test items show no mistake
    held_back: np.ndarray = field(default_factory=lambda: np.empty((2, 0)), repr=False, compare=False)
    drawn: dict[bytes, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def params(self) -> dict:
        """The parameters by name; for a mean, the parameters of each law by the law's name."""
        if self.law == MEAN:
            return {law.name: law.params for law in self.laws}
        return self.laws[0].params if self.laws else {}

    @property
    def at_bound(self) -> list[str]:
        """The parameters that ended at a bound, such as `e_inf`; `m2.e_inf` in a mean."""
        return [f"{law.name}.{name}" if self.law == MEAN else name for law in self.laws for name in law.at_bound]

    @property
    def measured_by(self) -> str:
        """The source of the noise behind the intervals, in words."""
        return "seeds resampled" if self.runs.repeated else SCATTER

    @property
    def largest(self) -> float:
        return self.runs.keys[-1][0]  # an exponential of its logarithm would not be a round number

    @property
    def miss(self) -> float | None:
        """RMSE of the log error: over the sizes held back, else in the rolling hold-out."""
        if not self.held_back.size:
            return self.rmse_holdout
        sizes, errors = self.held_back
        return root_mean_square(np.log(self.predict(sizes)) - np.log(errors))

    @property
    def asked(self) -> list[float]:
        """The sizes to predict: the sizes held back, else multiples of the largest."""
        return sorted(set(self.held_back[0].tolist())) or [self.largest * times for times in BEYOND]

    @property
    def shown(self) -> float:
        """The size whose prediction a table shows: the largest size held back, else twice the data."""
        return self.asked[-1 if self.held_back.size else 0]

    @cached_property
    def holds(self) -> bool:
        """True if the laws may be drawn: off by at most 1.5x on their own data and on held-out sizes."""
        if not self.laws:
            return False
        misses = root_mean_square(self.log_errors(self.runs.log_sizes) - self.runs.means)
        return max(misses, self.rmse_holdout or 0.0) <= LARGEST_MISS

    @cached_property
    def scatter(self) -> tuple[np.ndarray, float, str]:
        """Find the scatter round a smooth curve: distances, degrees of freedom, and why it is no noise, or "".

        Noise changes its sign and lets errors rise; smoothed points never rise. Where such points come first, take the
        points from the first rise on.
        """
        x, y = self.runs.log_sizes, self.runs.means
        found = find_scatter(x, y)
        start = int((np.diff(y) > 0).argmax())
        if found[2] and start >= FEWEST_SCATTERED and len(x) - start >= ENOUGH:
            later = find_scatter(x[start:], y[start:])
            found = found if later[2] else later
        return found

    @property
    def smoothed(self) -> bool:
        """True if a curve of one seed is judged by the scatter of its largest sizes alone."""
        return not self.runs.repeated and len(self.scatter[0]) < len(self.runs.counts)

    @cached_property
    def noise(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], float]:
        """The noise of log errors: standard deviations by size (N), residuals with hashes of runs, degrees of freedom.

        Measure the noise by the scatter of seeds, of many points, or by the distance from the laws; else draws are NaN.
        Multiply the mean square of seeds within sizes by n / (n - 1) and pool the sizes as far as they agree. Resample
        standardized residuals of all sizes together: three seeds show too little of their distribution.
        """
        runs, place = self.runs, self.runs.size_index
        names = hash_runs(runs.keys)
        if runs.repeated:
            sizes = np.exp(runs.log_sizes)
            by_size = np.split(runs.log_errors, np.cumsum(runs.counts)[:-1])
            spreads = moderated_spreads(dict(zip(sizes, by_size, strict=True)))
            deviations = np.array([spreads[size].std if spreads else 0.0 for size in sizes])
            freedom = min((spread.degrees for spread in spreads.values()), default=1.0)
            misses = runs.log_errors - runs.means[place]
            misses = np.divide(misses, deviations[place], out=np.zeros_like(misses), where=spreads != {})
            scaled = misses * np.sqrt(runs.counts / np.maximum(runs.counts - 1, 1))[place]
            residuals, names = scaled[runs.counts[place] > 1], names[runs.counts[place] > 1]
        elif self.laws and len(runs.counts) >= FEWEST_SCATTERED and not self.scatter[2]:
            residuals, freedom, _ = self.scatter
            names = hash_runs([(size, 0) for size in np.exp(runs.log_sizes[-len(residuals) :])])
            deviations = np.full(len(runs.counts), WIDER * np.sqrt((residuals**2).sum() / freedom))
        elif self.laws:
            residuals = runs.log_errors - self.log_errors(runs.log_sizes)[place]
            freedom = float(max(1, len(residuals) - min(law.free for law in self.laws)))
            deviations = np.full(len(runs.counts), np.sqrt((residuals**2).sum() / freedom))
        else:
            deviations, residuals, freedom = np.full(len(runs.counts), np.nan), np.zeros(len(place)), 1.0
        pool = names.argsort()[:POOL]
        names, residuals = names[pool], residuals[pool] - residuals[pool].mean()
        size = np.sqrt((residuals**2).mean())
        return deviations, (residuals / size if size > 1e-12 else residuals * 0, names), freedom

    def draw_noise(self, purpose: str, draws: int, runs: Sequence[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Draw residuals (draws, runs) with replacement, and the factor of the deviation in each draw (draws, 1).

        The factor is the root of freedom / chi-squared: draws scatter as Student's t, since the deviation is an
        estimate. Each run takes the residual with the smallest hash of both runs' sizes and seeds. So models with the
        same runs share all draws, and a run more or less changes no draw of others.
        """
        from scipy.special import chdtri

        _, (residuals, names), freedom = self.noise
        counter = np.arange(draws, dtype=np.uint64)[:, None] * STRIDE
        chosen = [
            draw(draw(names + name, "pair") + counter, purpose).argmin(1) for name in draw(hash_runs(runs), "run")
        ]
        levels = (draw(counter, f"{purpose} spread") + 0.5) / 2.0**64
        return residuals[np.stack(chosen, axis=1)], np.sqrt(freedom / chdtri(freedom, levels))

    @cached_property
    def noise_of_means(self) -> np.ndarray:
        """Draws (draws, sizes) of the noise in each size's mean log error: the mean of one residual per run.

        `of_items` adds the effect of other test items; `of_choice`, for the best of several models, replaces all.
        """
        if self.of_choice is not None:
            return self.of_choice
        counts, keys = self.runs.counts, self.runs.keys
        # smoothed points share their noise, so that the whole curve moves: drawn for this curve alone
        keys = [(float(self.runs.means.sum()), 0)] if self.smoothed else keys
        chosen, larger = self.draw_noise("means", DRAWS // 2, keys)
        chosen = np.repeat(chosen, len(self.runs.keys), axis=1) if self.smoothed else chosen
        chosen = np.concatenate([chosen, -chosen])  # mirror each draw: fewer draws suffice
        sums = np.add.reduceat(chosen, np.concatenate([[0], np.cumsum(counts)[:-1]]), axis=1)
        return np.tile(larger, (2, 1)) * self.noise[0] * sums / counts + self.of_items

    @cached_property
    def theta_draws(self) -> list[np.ndarray]:
        """Thetas drawn for each law (draws / laws, P): refits to its own curve with other noise, one law per draw."""
        x, draws = self.runs.log_sizes, []
        for k, law in enumerate(self.laws):
            noise = self.noise_of_means[k :: len(self.laws)]
            begin = np.repeat(law.theta[None], len(noise), 0)
            draws.append(minimise(law, x, law.log_errors(x) + noise, self.weights, begin, steps=15)[0])
        return draws

    def log_errors(self, log_sizes: np.ndarray) -> np.ndarray:
        """Compute the log errors (N): the mean of the laws."""
        return mean_log_errors(self.laws, log_sizes) if self.laws else np.full(len(log_sizes), np.nan)

    def draw_log_errors(self, log_sizes: np.ndarray, role: int = 0) -> np.ndarray:
        """Draw log errors (draws, N): the laws with other noise in the data and, beyond the data, a drift per doubling.

        Give two compared models different `role`s, so that they drift apart. Keep the last draws: a study compares each
        model with all others at the same sizes.
        """
        key = bytes([role]) + log_sizes.tobytes()
        if key not in self.drawn:
            drawn = np.full((DRAWS, len(log_sizes)), np.nan)
            for k, (law, thetas) in enumerate(zip(self.laws, self.theta_draws, strict=True)):
                drawn[k :: len(self.laws)] = law.evaluate(thetas, log_sizes)[0]
            half = np.random.default_rng(role).standard_t(DRIFT_DEGREES, DRAWS // 2)
            drift = self.drift * np.concatenate([half, -half])
            if len(self.drawn) >= MOST_DRAWN:
                del self.drawn[next(iter(self.drawn))]
            doublings = np.maximum(log_sizes - self.runs.log_sizes[-1], 0) / np.log(2)
            self.drawn[key] = drawn + drift[:, None] * doublings
        return self.drawn[key]

    @cached_property
    def sudden(self) -> np.ndarray:
        """Compute the part of each fall between two sizes (N - 1) that exceeds the slopes before and after it."""
        slopes = -np.diff(self.runs.log_means) / (gaps := np.diff(self.runs.log_sizes))
        beside = np.pad(slopes, 1).clip(0)
        return (slopes - np.maximum(beside[:-2], beside[2:])).clip(0) * gaps

    def read_means(self, log_sizes: np.ndarray, role: int = 0) -> np.ndarray:
        """Compute the log mean error at log sizes (N), then its draws: (1 + draws, N).

        Return the measured error at measured sizes. Between two of them follow the laws, shifted by their miss at both,
        or a straight line in log size if the laws do not hold. Outside the data follow the laws. What is `sudden` may
        come all at once: each draw puts that step at another place.
        """
        x, means = self.runs.log_sizes, self.runs.log_means
        shares = np.stack([np.interp(log_sizes, x, one, 0, 0) for one in np.eye(len(x))])  # (sizes, N)
        drawn = means + self.noise_of_means
        left = np.clip(np.searchsorted(x, log_sizes, "right") - 1, 0, len(x) - 2)
        share = np.clip((log_sizes - x[left]) / np.diff(x)[left], 0, 1)
        places = np.random.default_rng(role).random((len(drawn), len(self.sudden)))
        steps = self.sudden[left] * (share - (share > places[:, left]))
        if not self.holds:
            return np.vstack([means @ shares, drawn @ shares + steps])
        curve = self.log_errors(log_sizes) + (means - self.log_errors(x)) @ shares
        steps += self.draw_log_errors(log_sizes, role)
        return np.vstack([curve, steps + (drawn - self.draw_log_errors(x)) @ shares])

    def predict(self, sizes: Sequence[float] | float) -> np.ndarray:
        """Predict the error at each size, in the shape of `sizes`."""
        sizes = np.asarray(sizes, float)
        return np.exp(self.log_errors(np.log(sizes.ravel()))).reshape(sizes.shape)

    def interval(self, sizes: Sequence[float] | float, one_run: bool = False) -> np.ndarray:
        """Compute the 90% interval (2, ...), low and high, of the mean error at each size, or of one new run's."""
        sizes = np.asarray(sizes, float)
        log_sizes = np.log(sizes.ravel())
        logs = self.draw_log_errors(log_sizes)
        if one_run:  # add the noise of the nearest size, by the same draws for each size
            chosen, larger = self.draw_noise("run", DRAWS, [(0.0, 0)])
            nearest = np.abs(log_sizes[:, None] - self.runs.log_sizes).argmin(1)
            logs = logs + larger * self.noise[0][nearest] * chosen
        low, high = np.exp(np.minimum(ends(logs), LARGEST_LOG))
        value = np.exp(self.log_errors(log_sizes))
        low, high = np.maximum(low * 0, np.minimum(low, value - self.floor)), np.maximum(high, value + self.floor)
        return np.stack([low, high]).reshape(2, *sizes.shape)

    def prediction_interval(self, sizes: Sequence[float] | float) -> np.ndarray:
        """Compute the 90% interval (2, ...), low and high, of one new run's error at each size."""
        return self.interval(sizes, one_run=True)


def find_scatter(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, str]:
    """Fit a polynomial to points: their distances, degrees of freedom, and why their scatter is no noise, or ""."""
    from scipy.special import bdtr, log_ndtr

    terms = np.vander((x - x.mean()) / np.ptp(x), min(4, len(x) // 2))
    line = terms @ np.linalg.lstsq(terms, y)[0]
    misses, freedom = y - line, len(x) - terms.shape[1]
    scatter = max(float(np.sqrt(misses @ misses / freedom)), np.sqrt(NO_NOISE))
    falls = log_ndtr(-np.diff(line) / scatter / np.sqrt(2))  # log probability that a step does not rise
    rises, doubt = [-1, *np.flatnonzero(np.diff(y) > 0), len(falls)], ""
    if bdtr((misses[1:] * misses[:-1] < 0).sum(), len(x) - 1, 0.5) < TREND:
        doubt = "points of one seed that leave a smooth curve in long waves tell no noise"
    if any(b - a >= FEWEST_SCATTERED and falls[a + 1 : b].sum() < np.log(SMOOTH) for a, b in pairwise(rises)):
        doubt = "points of one seed that never rise may be smoothed, and tell no noise"
    return misses, float(freedom), doubt


def hash_runs(runs: Sequence[tuple[float, int]]) -> np.ndarray:
    """Hash the size and the seed of each run: uint64 (N,)."""
    sizes, seeds = (np.array(of) for of in zip(*runs, strict=True))
    return draw(sizes.astype(np.float64).view(np.uint64) + draw(seeds.astype(np.uint64), "seed"), "size")


def mean_log_errors(laws: Sequence[Law], log_sizes: np.ndarray) -> np.ndarray:
    return np.mean([law.log_errors(log_sizes) for law in laws], axis=0)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def ends(values: np.ndarray, level: float = COVERAGE) -> np.ndarray:
    """Compute the two quantiles (2, ...) over the first axis between which `level` of the values lie, tails equal."""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)


def fit_scaling_law(
    sizes: Sequence[float],
    errors: Sequence[float],
    law: str = "auto",
    chance: float | None = None,
    seeds: Sequence[int] | None = None,
) -> Fit:
    """Fit error against training-set size by least squares in the log of the error.

    Repeat a size for runs of several seeds. `seeds` pair the runs of two models for a comparison; the default numbers
    them in order. `chance` is the error of guessing (0.9 for ten equal classes), the e_0 of M4. `auto` averages M2, M3
    and M4, leaves out laws with more parameters than sizes, and gives no law below 4 sizes. Raises UserError, also for
    errors that rise with the size.
    """
    runs = order_runs(sizes, errors, seeds)
    if runs.trend > 0:
        raise UserError("errors: rise with the size, and a law is of what falls; give 1 - accuracy, not the accuracy")
    if law != "auto" and law not in FORMS:
        raise UserError(f"law={law}: is not a law; {choices_text(law, ['auto', *FORMS])}")
    if chance is not None and not chance > np.exp(runs.means.min()):
        raise UserError(
            f"chance={chance}: no error is below it; give the error of guessing, such as 0.9 for ten equal classes"
        )
    return fit_runs(runs, law, chance)


def fit_points(
    sizes: Sequence[float],
    errors: Sequence[float],
    seeds: Sequence[int],
    chance: float | None = None,
    law: str = "auto",
    up_to: float = np.inf,
) -> Fit:
    """Fit sizes `up_to` a limit like `fit_scaling_law`; no law for rising errors; ignore a chance below all errors."""
    points = np.array([sizes, errors, seeds], float)
    within = points[0] <= up_to
    fit = fit_runs(order_runs(*points[:2, within], points[2, within].astype(int)), law, chance)
    return replace(fit, held_back=points[:2, ~within])


def order_runs(sizes: Sequence[float], errors: Sequence[float], seeds: Sequence[int] | None) -> LogErrors:
    """Order the runs by size and seed. Raises UserError if no law can be fitted to them."""
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
    return LogErrors(np.log(values), counts, np.log(e[order]), keys)


def fit_runs(runs: LogErrors, law: str, chance: float | None) -> Fit:
    """Fit runs like `fit_scaling_law`; ignore a chance below all errors."""
    x, count = runs.log_sizes, len(runs.log_sizes)
    if runs.trend > 0 or (law == "auto" and count < FEWEST_AVERAGED):
        return Fit(None, (), runs, runs.counts)
    weights = runs.counts
    if law == "auto":  # the largest sizes count most: curves leave their laws slowly
        weights = runs.counts * 0.5 ** ((x[-1] - x) / np.log(2) / HALVING)
    # fit so many first sizes: all, then folds that hold out the rest; of many folds take some, evenly spaced
    folds = np.arange(FIRST_FOLD if count > FIRST_FOLD else FIRST_FOLD - 1, count)
    if len(folds) > MOST_FOLDS:
        folds = folds[np.linspace(0, len(folds) - 1, MOST_FOLDS).round().astype(int)]
    firsts = [count, *folds.tolist()]
    found: list[list[Law]] = [[] for _ in firsts]
    for name in AVERAGED if law == "auto" else (law,):
        forms = [FORMS[name].of(x[:first], runs.means[:first], chance) for first in firsts]
        told = [place for place, first in enumerate(firsts) if forms[place].free <= first]
        if told:
            used = np.stack([np.where(np.arange(count) < firsts[place], weights, 0) for place in told])
            thetas = minimise_from_starts([forms[place] for place in told], x, runs.means, used)
            for place, theta in zip(told, thetas, strict=True):
                forms[place].theta = theta
                found[place].append(forms[place])
    laws, *of_folds = found
    if not laws:
        raise UserError(f"law={law}: has {forms[0].free} parameters, {count} sizes cannot tell them; give more")
    holdouts = []  # for held-out sizes: log predicted less log measured error, doublings beyond the fitted sizes
    for first, of_fold in zip(firsts[1:], of_folds, strict=True):
        if of_fold:
            misses = mean_log_errors(of_fold, x[first:]) - runs.means[first:]
            holdouts.append((misses, (x[first:] - x[first - 1]) / np.log(2)))
    per_doubling = [misses @ far / (far @ far) for misses, far in holdouts]
    return Fit(
        law=MEAN if law == "auto" else law,
        laws=tuple(laws),
        runs=runs,
        weights=weights,
        rmse_holdout=root_mean_square(np.array([misses[0] for misses, _ in holdouts])) if holdouts else None,
        drift=DRIFT * root_mean_square(np.array([*per_doubling, PRIOR])) if law == "auto" else 0.0,
    )
