"""Where compute goes best (Hoffmann et al., 2022): the size of the lowest error with a budget of FLOPs, and L(N, D).

Approach 2: with each budget the log error is a parabola in the log of the parameters. Approach 3: the law
L(N, D) = E + A / N^alpha + B / D^beta. Both by docs/rules.md, "Compute".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from vitlab.config import UserError
from vitlab.formatting import count, plural, significant, with_prefix
from vitlab.studies.fit import FEWEST, ends, root_mean_square
from vitlab.studies.stats import DRAWS

if TYPE_CHECKING:
    import pandas as pd

    from vitlab.studies.results import Results

DELTA = 1e-3  # of the Huber loss, in log loss
KEPT, RESAMPLED = 8, 200  # of L(N, D): starts that are searched to the end, and draws of its runs
NAMES = ("A", "B", "E", "alpha", "beta")
FEWEST_RUNS = 2 * len(NAMES)
STEEPEST, LOWEST = 5.0, -20.0  # exponent, and log E below that of the lowest loss
SLOPES = (0.1, 0.3, 0.7, 1.5)  # exponents to start from
OUTSIDE = 1.0  # of a minimum, in log parameters: where one that is not inside the sizes stands in quantiles


def tabulate_runs(results: "Results") -> "pd.DataFrame":
    """Tabulate runs as `group, size, unit, budget, params, seen, error`; a group is a family, with its other axes."""
    import pandas as pd

    rows = []
    for model, cells in results.by_model.items() if results.fits.error_name else ():
        for row, error, _ in results.fits.list_errors(results, cells):
            unit, _, budget = str(row.get("budget") or "").partition("=")
            if budget and row.get("params") and row.get("examples_seen"):
                axes = [part for part in model.split(" ")[1:] if not part.startswith(("size=", f"{unit}="))]
                group = " ".join([results.families[model], *axes])
                of_run = unit, float(budget), row["params"], row["examples_seen"], error
                rows.append((group, row["train_size"], *of_run))
    return pd.DataFrame(rows, columns=["group", "size", "unit", "budget", "params", "seen", "error"])


def interval(three: np.ndarray) -> str:
    """Format a value with its interval: `0.35 (0.31 to 0.38)`."""
    value, low, high = (significant(round(float(one), 6), 2) for one in three)
    return f"{value} ({low} to {high})"


# ---- the best size with a budget


@dataclass(frozen=True)
class BestSizes:
    """The size of the lowest error with each of C budgets, by a parabola of the log error in the log size.

    `best` (C, 3) has its log and a 90% interval, infinite where that is not inside the sizes, NaN where nothing tells
    the interval. `exponent` is the budget's, with an interval; None below two budgets whose intervals are inside.
    """

    budgets: np.ndarray
    sizes: np.ndarray  # (C, 2): logs of the smallest and the largest
    curves: np.ndarray  # (C, 3): coefficients, at log sizes less `middle`
    middle: float
    best: np.ndarray
    exponent: np.ndarray | None

    def log_errors(self, budget: int, log_sizes: np.ndarray) -> np.ndarray:
        return np.polyval(self.curves[budget], log_sizes - self.middle)

    def describe(self) -> str:
        """Describe the best size of each budget: `with 1.00 TFLOP at 140k parameters (90% interval 100k to 190k)`."""
        texts = []
        for budget, (value, low, high), inside in zip(self.budgets, self.best, self.sizes, strict=True):
            first, last = (count(np.exp(end)) for end in inside)
            text = f"at {count(np.exp(value))} parameters" if np.isfinite(value) else "not inside the sizes, "
            if not np.isfinite(value):
                text += f"{first} or fewer" if value < 0 else f"{last} or more"
            elif not np.isnan(low):
                parts = (
                    f"below {first}" if np.isinf(low) else count(np.exp(low)),
                    f"above {last}" if np.isinf(high) else count(np.exp(high)),
                )
                text += f" (90% interval {parts[0]} to {parts[1]})"
            texts.append(f"with {with_prefix(budget, 'FLOP')} {text}")
        power = "" if self.exponent is None else f"; the best size grows as compute^{interval(self.exponent)}"
        return f"lowest {', '.join(texts)}{power}."


def find_best_sizes(budgets: np.ndarray, params: np.ndarray, errors: np.ndarray) -> BestSizes | None:
    """Find the best size of each budget with FEWEST sizes or more; None without one.

    The draws of an interval resample the residuals of all budgets, by Student's t.
    """
    logs, kept = np.log(params), [b for b in np.unique(budgets) if len({*params[budgets == b]}) >= FEWEST]
    if not kept:
        return None
    middle, places = logs.mean(), [np.flatnonzero(budgets == budget) for budget in kept]
    rows = [np.vander(logs[here] - middle, 3) for here in places]
    inverses = [np.linalg.pinv(of) for of in rows]
    curves = [inverse @ np.log(errors[here]) for inverse, here in zip(inverses, places, strict=True)]
    misses = np.concatenate([np.log(errors[i]) - x @ c for i, x, c in zip(places, rows, curves, strict=True)])
    freedom, random = len(misses) - 3 * len(kept), np.random.default_rng(0)
    sizes = np.array([(logs[here].min(), logs[here].max()) for here in places])
    larger = np.full((DRAWS, 1), np.nan)
    if freedom > 0:
        larger = np.sqrt(len(misses) / random.chisquare(freedom, (DRAWS, 1)))
    found = []
    for inverse, curve, (low, high) in zip(inverses, curves, sizes - middle, strict=True):
        noise = larger * random.choice(misses, (DRAWS, inverse.shape[1]))
        second, first, _ = np.vstack([curve, curve + noise @ inverse.T]).T
        with np.errstate(divide="ignore", invalid="ignore"):
            bottom = -first / (2 * second)
        falls = second * (low + high) + first < 0
        inside = ((second > 0) & (bottom >= low) & (bottom <= high)) | np.isnan(second)
        found.append(np.where(inside, bottom, np.where(falls, high + OUTSIDE, low - OUTSIDE)) + middle)
    values = np.array(found)
    best = np.column_stack([values[:, 0], ends(values[:, 1:].T).T])
    best = np.where(best < sizes[:, :1], -np.inf, np.where(best > sizes[:, 1:], np.inf, best))
    sure = np.isfinite(best).all(1)
    exponent = None
    if sure.sum() > 1:
        centred = np.log(kept)[sure] - np.log(kept)[sure].mean()
        slopes = centred @ values[sure].clip(*sizes[sure].T[:, :, None]) / (centred @ centred)
        exponent = np.array([slopes[0], *ends(slopes[1:])])
    return BestSizes(np.array(kept), sizes, np.array(curves), middle, best, exponent)


# ---- L(N, D)


@dataclass(frozen=True)
class Surface:
    """L(N, D) = E + A / N^alpha + B / D^beta: `theta` (5,) has log A, log B, log E, alpha, beta; `drawn` (draws, 5)."""

    theta: np.ndarray
    drawn: np.ndarray
    points: int
    miss: float  # RMSE of the log loss

    @property
    def params(self) -> dict[str, np.ndarray]:
        """Each parameter and `exponent`, of compute in the best N = G C^(beta / (alpha + beta)), with 90% intervals."""
        columns = np.vstack([self.theta, self.drawn]).T
        columns = [*np.exp(columns[:3]), *columns[3:], columns[4] / columns[3:].sum(0)]
        of_each = [np.array([column[0], *ends(column[1:])]) for column in columns]
        return dict(zip((*NAMES, "exponent"), of_each, strict=True))

    def predict(self, params: np.ndarray, data: np.ndarray) -> np.ndarray:
        return np.exp(np.logaddexp.reduce(make_terms(self.theta, np.log(params), np.log(data))))

    def describe(self) -> str:
        """Describe the law: `alpha 0.35 (0.31 to 0.38), beta ..., E ...; the best N grows as compute^0.51 (...)`."""
        found = self.params
        texts = [f"{name} {interval(found[name])}" for name in ("alpha", "beta", "E")]
        return f"{', '.join(texts)}; the best N grows as compute^{interval(found['exponent'])}"


def make_terms(theta: np.ndarray, log_params: np.ndarray, log_data: np.ndarray) -> np.ndarray:
    """Compute the logs (3, N) of the terms of L(N, D)."""
    a, b, e, alpha, beta = theta
    return np.stack([a - alpha * log_params, b - beta * log_data, np.full(len(log_params), e)])


def fit_surface(params: np.ndarray, data: np.ndarray, losses: np.ndarray) -> Surface:
    """Fit L(N, D) to runs by the Huber loss of the log; draws of the intervals resample the runs.

    Raises UserError with what there is too little of.
    """
    from scipy.optimize import minimize

    kinds = {"run": (losses, FEWEST_RUNS), "different N": (set(params), FEWEST), "different D": (set(data), FEWEST)}
    few = [f"{plural(len(of), name, name)} of {least} needed" for name, (of, least) in kinds.items() if len(of) < least]
    logs = np.log([params, data, losses])
    if not few and abs(np.corrcoef(logs[:2])[0, 1]) > 0.99:
        few = ["N and D vary together, so that nothing tells them apart"]
    if few:
        raise UserError(f"L(N, D): {'; '.join(few)}")
    centre = np.array([*logs[:2].mean(1), 0.0])
    logs = logs - centre[:, None]

    def cost(theta: np.ndarray, n: np.ndarray, d: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum the Huber loss over runs, in units of DELTA: smaller numbers would end the search early."""
        terms = make_terms(theta, n, d)
        predicted = np.logaddexp.reduce(terms)
        misses = predicted - target
        pull = misses.clip(-DELTA, DELTA) / DELTA
        a, b, e = np.exp(terms - predicted) * pull
        slopes = np.array([a.sum(), b.sum(), e.sum(), -(a @ n), -(b @ d)])
        return float(pull @ (misses - DELTA * pull / 2)), slopes

    lowest = float(logs[2].min())
    bounds = [(None, None), (None, None), (lowest + LOWEST, None), (0.0, STEEPEST), (0.0, STEEPEST)]
    search = lambda start, *of: minimize(cost, start, of, "L-BFGS-B", jac=True, bounds=bounds)  # noqa: E731
    levels = np.array(list(product((-3.0, -1.5, -0.5), (-3.0, -1.5, -0.5), (-2.0, -0.5, -0.1), SLOPES, SLOPES)))
    starts = levels + [lowest, lowest, lowest, 0, 0]
    order = np.argsort([cost(start, *logs)[0] for start in starts])
    best = min((search(starts[place], *logs) for place in order[:KEPT]), key=lambda found: found.fun).x
    random, runs = np.random.default_rng(0), len(losses)
    drawn = [search(best, *logs[:, random.integers(0, runs, runs)]).x for _ in range(RESAMPLED)]
    miss = root_mean_square(np.logaddexp.reduce(make_terms(best, *logs[:2])) - logs[2])
    thetas = np.vstack([best, *drawn])
    thetas[:, :2] += thetas[:, 3:] * centre[:2]
    return Surface(thetas[0], thetas[1:], runs, miss)
