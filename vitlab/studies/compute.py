"""Where compute goes best (Hoffmann et al., 2022): the size of the lowest error with a budget of FLOPs, and L(N, D).

Approach 2: with each budget the log error is a parabola in the log of the parameters. Approach 3: the law
L(N, D) = E + A / N^alpha + B / D^beta. docs/rules.md, "Compute", has their definitions.
"""

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

NAMES = ("A", "B", "E", "alpha", "beta")  # the parameters of L(N, D)
DELTA = 1e-3  # of the Huber loss, in log loss
LEVELS, SLOPES = (-3.0, -1.5, -0.5), (0.1, 0.3, 0.7, 1.5)  # to start from: log terms below the log loss, exponents
KEPT, RESAMPLED = 8, 200  # starts that are searched to the end, draws of the runs
STEEPEST, LOWEST = 5.0, -20.0  # exponent, and log E below the lowest log loss


def tabulate_runs(results: "Results") -> "pd.DataFrame":
    """Tabulate runs as `group, size, unit, budget, params, seen, error`; a group is a family, with its other axes."""
    import pandas as pd

    rows = []
    for model, cells in results.by_model.items() if results.fits.error_name else ():
        for row, error, _ in results.fits.list_errors(results, cells):
            unit, _, budget = str(row.get("budget") or "").partition("=")
            axes = [part for part in model.split(" ")[1:] if not part.startswith(("size=", f"{unit}="))]
            if budget and row.get("params") and row.get("examples_seen"):
                of_run = row["train_size"], unit, float(budget), row["params"], row["examples_seen"], error
                rows.append((" ".join([results.families[model], *axes]), *of_run))
    return pd.DataFrame(rows, columns=["group", "size", "unit", "budget", "params", "seen", "error"])


@dataclass(frozen=True)
class BestSize:
    """The log of the size of the lowest error with a budget, with a 90% interval: `best` (3,).

    It is infinite where it is not inside the sizes (`ends`, logs), NaN where nothing tells the interval. `curve` has
    the parabola's coefficients.
    """

    budget: float
    best: np.ndarray
    ends: tuple[float, float]
    curve: np.ndarray

    def describe(self) -> str:
        """Describe it: `with 1.00 TFLOP at 140k parameters (90% interval 100k to 190k)`."""
        first, last = map(count, np.exp(self.ends))
        value, low, high = (
            count(np.exp(one)) if abs(one) < np.inf else f"below {first}" if one < 0 else f"above {last}"
            for one in self.best
        )
        told = f"at {value} parameters" if abs(self.best[0]) < np.inf else f"not inside the sizes but {value}"
        told += "" if np.isnan(self.best[1]) else f" (90% interval {low} to {high})"
        return f"with {with_prefix(self.budget, 'FLOP')} {told}"


def find_best_sizes(budgets: np.ndarray, params: np.ndarray, errors: np.ndarray) -> list[BestSize]:
    """Find the best size with each budget that has 3 sizes or more; intervals resample the residuals of all."""
    logs, found, random = np.log(params), [], np.random.default_rng(0)
    places = [np.flatnonzero(budgets == budget) for budget in np.unique(budgets)]
    places = [here for here in places if len({*params[here]}) >= FEWEST]
    curves = [np.polyfit(logs[here], np.log(errors[here]), 2) for here in places]
    misses = [np.log(errors[here]) - np.polyval(of, logs[here]) for here, of in zip(places, curves, strict=True)]
    misses = np.concatenate([*misses, []])
    freedom = len(misses) - 3 * len(places)
    # residuals are too small by the parameters fitted, and their size was itself estimated: Student's t
    larger = np.sqrt(len(misses) / random.chisquare(freedom, (1, DRAWS))) if freedom > 0 else np.nan
    for here, curve in zip(places, curves, strict=True):
        low, high = logs[here].min(), logs[here].max()
        noise = np.polyfit(logs[here], larger * random.choice(misses, (len(here), DRAWS)), 2)
        second, first, _ = np.hstack([curve[:, None], curve[:, None] + noise])
        bottom = -first / (2 * second)
        inside = ((second > 0) & (bottom >= low) & (bottom <= high)) | np.isnan(second)
        # others stand beyond the end where the parabola is lower, so that there are quantiles of all
        bottom = np.where(inside, bottom, np.where(second * (low + high) + first < 0, high + 1, low - 1))
        best = np.array([bottom[0], *ends(bottom[1:])])
        best = np.where(best < low, -np.inf, np.where(best > high, np.inf, best))
        found.append(BestSize(budgets[here[0]], best, (low, high), curve))
    return found


@dataclass(frozen=True)
class Surface:
    """L(N, D) = E + A / N^alpha + B / D^beta. `thetas` (1 + draws, 5): log A, log B, log E, alpha, beta; fit, draws."""

    thetas: np.ndarray
    points: int
    miss: float  # RMSE of the log loss

    @property
    def params(self) -> dict[str, list[float]]:
        """Each parameter, and the `exponent` of compute in the best N, C^(beta / (alpha + beta)); 90% intervals."""
        columns = [*np.exp(self.thetas[:, :3].T), *self.thetas[:, 3:].T]
        columns.append(columns[4] / (columns[3] + columns[4]))
        return {name: [of[0], *ends(of[1:])] for name, of in zip((*NAMES, "exponent"), columns, strict=True)}

    @property
    def shown(self) -> dict[str, str]:
        """The parameters as texts: `0.35 (0.32 to 0.37)`."""
        texts = {name: [significant(round(one, 6)) for one in three] for name, three in self.params.items()}
        return {name: f"{value} ({low} to {high})" for name, (value, low, high) in texts.items()}

    def predict(self, params: np.ndarray, data: np.ndarray) -> np.ndarray:
        return np.exp(np.logaddexp.reduce(make_terms(self.thetas[0], np.log(params), np.log(data))))


def make_terms(theta: np.ndarray, log_params: np.ndarray, log_data: np.ndarray) -> np.ndarray:
    """Compute the logs (3, N) of the terms of L(N, D)."""
    a, b, e, alpha, beta = theta
    return np.stack([a - alpha * log_params, b - beta * log_data, np.full(len(log_params), e)])


def fit_surface(params: np.ndarray, data: np.ndarray, losses: np.ndarray) -> Surface:
    """Fit L(N, D) by the Huber loss of the log loss, L-BFGS from several starts; intervals resample the runs.

    Raises UserError with what there is too little of.
    """
    from scipy.optimize import minimize

    kinds = (("run", losses, 2 * len(NAMES)), ("different N", {*params}, FEWEST), ("different D", {*data}, FEWEST))
    few = [f"{plural(len(of), name, name)}, {least} needed" for name, of, least in kinds if len(of) < least]
    logs = np.log([params, data, losses])
    if few or abs(np.corrcoef(logs[:2])[0, 1]) > 0.99:
        raise UserError(f"L(N, D): {'; '.join(few) or 'N and D vary together, nothing tells them apart'}")
    centre, lowest = logs[:2].mean(1, keepdims=True), logs[2].min()
    logs[:2] -= centre

    def cost(theta: np.ndarray, n: np.ndarray, d: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum the Huber loss over runs, and its slopes, in units of DELTA: smaller numbers would end the search."""
        terms = make_terms(theta, n, d)
        misses = (predicted := np.logaddexp.reduce(terms)) - target
        pull = misses.clip(-DELTA, DELTA) / DELTA
        a, b, e = np.exp(terms - predicted) * pull
        return float(pull @ (misses - DELTA * pull / 2)), np.array([a.sum(), b.sum(), e.sum(), -(a @ n), -(b @ d)])

    bounds = [(None, None), (None, None), (lowest + LOWEST, None), (0.0, STEEPEST), (0.0, STEEPEST)]
    search = lambda start, some: minimize(cost, start, (*some,), "L-BFGS-B", jac=True, bounds=bounds)  # noqa: E731
    starts = np.array([*product(LEVELS, LEVELS, LEVELS, SLOPES, SLOPES)]) + np.array([lowest] * 3 + [0.0] * 2)
    order = np.argsort([cost(start, *logs)[0] for start in starts])[:KEPT]
    best = min((search(start, logs) for start in starts[order]), key=lambda found: found.fun).x
    miss = root_mean_square(np.logaddexp.reduce(make_terms(best, *logs[:2])) - logs[2])
    chosen = np.random.default_rng(0).integers(0, len(losses), (RESAMPLED, len(losses)))
    thetas = np.stack([best, *(search(best, logs[:, runs]).x for runs in chosen)])
    thetas[:, :2] += thetas[:, 3:] * centre.T
    return Surface(thetas, len(losses), miss)
