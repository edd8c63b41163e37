"""Find the best model size for a budget of FLOPs, and fit the loss L(N, D) (Hoffmann et al., 2022).

Their approach 2 fits a parabola in log parameters, approach 3 E + A / N^alpha + B / D^beta: docs/rules.md, "Compute".
"""

import operator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from vitlab.config import UserError
from vitlab.formatting import count, significant, with_prefix
from vitlab.statistics.fit import FEWEST, LARGEST_MISS, ends, root_mean_square
from vitlab.statistics.forms import FLATTEST
from vitlab.statistics.stats import DRAWS

NAMES, FEWEST_RUNS = ("A", "B", "E", "alpha", "beta", "exponent"), 10  # of L(N, D)
DELTA, STEEPEST, LOWEST = 1e-3, 5.0, -20.0  # of the Huber loss; highest exponent; log E below the lowest log loss
LOG_TERMS, SLOPES = (-3.0, -1.5, -0.5), (0.1, 0.3, 0.7, 1.5)  # to start from: log terms below the log loss, exponents
FAR = 3.0  # times a budget's lowest error: leave out higher errors, no well is a parabola there
KEPT, RESAMPLED = 8, 200  # starts searched to the end; resamples of the runs


@dataclass(frozen=True)
class BestSize:
    """The log of the best size with a budget, with its 90% interval: `best` (3,).

    Clipped to the `ends`, the logs of the smallest and the largest tried size; clipped means open-ended.
    """

    budget: float
    best: np.ndarray
    ends: tuple[float, float]
    curve: np.ndarray  # the parabola's coefficients

    @property
    def inside(self) -> bool:
        return self.ends[0] < self.best[0] < self.ends[1]

    def predict(self, params: np.ndarray) -> np.ndarray:
        return np.exp(np.polyval(self.curve, np.log(params)))

    def describe(self) -> str:
        """Describe the best size: `with 1.00 TFLOP at 140k parameters (90% interval 100k to 190k)`."""
        signs = ["below " if one <= self.ends[0] else "above " if one >= self.ends[1] else "" for one in self.best]
        value, low, high = (f"{sign}{count(np.exp(one))}" for sign, one in zip(signs, self.best, strict=True))
        place = f"at {value} parameters (90% interval {low} to {high})"
        if not self.inside:
            place = f"not inside the sizes but at their end, {count(np.exp(self.best[0]))}"
        return f"with {with_prefix(self.budget, 'FLOP')} {place}"


def find_best_sizes(budgets: np.ndarray, params: np.ndarray, errors: np.ndarray) -> list[BestSize]:
    """Find the best size for each budget with 3 or more sizes whose errors are not FAR from the budget's lowest.

    Resample the residuals of all budgets for intervals. Return [] without any: a parabola goes through three points.
    """
    logs, targets, places, found, random = np.log(params), np.log(errors), [], [], np.random.default_rng(0)
    for budget in np.unique(budgets):
        here = np.flatnonzero(budgets == budget)
        means = np.array([targets[here[params[here] == size]].mean() for size in params[here]])
        here = here[means <= means.min() + np.log(FAR)]
        places += [here] * (len({*params[here]}) >= FEWEST)
    curves = [np.polyfit(logs[here], targets[here], 2) for here in places]
    misses = [targets[here] - np.polyval(curve, logs[here]) for here, curve in zip(places, curves, strict=True)]
    misses = np.concatenate([*misses, []])
    if (freedom := len(misses) - 3 * len(places)) < 1:
        return []
    # fitting shrinks residuals, and their size is itself an estimate: scale them up as Student's t does
    larger = np.sqrt(len(misses) / random.chisquare(freedom, (1, DRAWS)))
    for here, curve in zip(places, curves, strict=True):
        low, high = logs[here].min(), logs[here].max()
        noise = np.polyfit(logs[here], larger * random.choice(misses, (len(here), DRAWS)), 2)
        second, first, _ = np.hstack([curve[:, None], curve[:, None] + noise])
        lower_end = np.where(second * (low + high) + first < 0, high, low)
        bottom = np.where(second > 0, (-first / (2 * second)).clip(low, high), lower_end)
        found.append(BestSize(budgets[here[0]], np.array([bottom[0], *ends(bottom[1:])]), (low, high), curve))
    return found


@dataclass(frozen=True)
class Surface:
    """The law L(N, D) = E + A / N^alpha + B / D^beta, fitted to `points` runs; `rmse` is of the log loss.

    params: A, B, E, alpha, beta and `exponent`, of compute in the best N; each a value, low and high (90%).
    """

    params: dict[str, list[float]]
    points: int
    rmse: float

    @property
    def holds(self) -> bool:
        """True if the RMSE is at most LARGEST_MISS and the error surely falls with N and with D."""
        return self.rmse <= LARGEST_MISS and min(self.params[name][1] for name in ("alpha", "beta")) > FLATTEST

    def describe(self) -> str:
        """Describe the law: `E + A/N^alpha + B/D^beta with alpha 0.347 (0.324 to 0.369), ...`."""
        if not self.holds:
            return "E + A/N^alpha + B/D^beta does not fit these runs, or an exponent may be 0"
        texts = {name: [significant(round(one, 6)) for one in three] for name, three in self.params.items()}
        alpha, beta, e, power = ("{} ({} to {})".format(*texts[name]) for name in ("alpha", "beta", "E", "exponent"))
        return f"E + A/N^alpha + B/D^beta with alpha {alpha}, beta {beta}, E {e}; the best N grows as compute^{power}"

    def predict(self, params: np.ndarray, data: np.ndarray | float) -> np.ndarray:
        a, b, e, alpha, beta, _ = (value for value, *_ in self.params.values())
        return e + a / params**alpha + b / data**beta


def fit_surface(params: np.ndarray, data: np.ndarray, losses: np.ndarray) -> Surface:
    """Fit L(N, D) by the Huber loss of the log loss, with L-BFGS from several starts; resample runs for intervals.

    The best N grows as C^(beta / (alpha + beta)), where compute C goes with N D. Raises UserError for too few runs.
    """
    from scipy.optimize import minimize

    logs, least = np.log([params, data, losses]), (FEWEST, FEWEST, FEWEST_RUNS)
    kinds = len({*params}), len({*data}), len(losses)
    if any(map(operator.lt, kinds, least)) or abs(np.corrcoef(logs[:2])[0, 1]) > 0.99:
        few = "L(N, D) needs {} different N, {} different D, {} runs, N and D not varied together".format(*least)
        raise UserError("{}; there are {} N, {} D, {} runs".format(few, *kinds))
    if (span := np.exp(np.ptp(logs[:2], axis=1).min())) < 4 - 1e-9:
        raise UserError(f"L(N, D) needs N and D that vary by 4x each, else E is open; here {span:.3g}x")
    centre, lowest = logs[:2].mean(1, keepdims=True), logs[2].min()
    logs[:2] -= centre

    def cost(theta: np.ndarray, n: np.ndarray, d: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum the Huber loss and its slopes over runs, in units of DELTA: smaller numbers would end the search."""
        a, b, e, alpha, beta = theta
        terms = np.stack(np.broadcast_arrays(a - alpha * n, b - beta * d, e))
        misses = (predicted := np.logaddexp.reduce(terms)) - target
        pull = misses.clip(-DELTA, DELTA) / DELTA
        a, b, e = np.exp(terms - predicted) * pull
        return float(pull @ (misses - DELTA * pull / 2)), np.array([a.sum(), b.sum(), e.sum(), -(a @ n), -(b @ d)])

    bounds = [(None, None), (None, None), (lowest + LOWEST, None), (0.0, STEEPEST), (0.0, STEEPEST)]
    search = lambda start, some: minimize(cost, start, (*some,), "L-BFGS-B", jac=True, bounds=bounds)  # noqa: E731
    starts = np.array([*product(LOG_TERMS, LOG_TERMS, LOG_TERMS, SLOPES, SLOPES)]) + np.array([lowest] * 3 + [0.0] * 2)
    order = np.argsort([cost(start, *logs)[0] for start in starts])[:KEPT]
    best = min((search(start, logs) for start in starts[order]), key=lambda found: found.fun).x
    chosen = np.random.default_rng(0).integers(0, len(losses), (RESAMPLED, len(losses)))
    thetas = np.stack([best, *(search(best, logs[:, runs]).x for runs in chosen)])
    thetas[:, :2] += thetas[:, 3:] * centre.T
    alpha, beta = thetas[:, 3:].T
    columns = dict(zip(NAMES, [*np.exp(thetas[:, :3].T), alpha, beta, beta / (alpha + beta)], strict=True))
    law = Surface({name: [of[0], *ends(of[1:])] for name, of in columns.items()}, len(losses), 0.0)
    return replace(law, rmse=root_mean_square(np.log(law.predict(params, data) / losses)))
