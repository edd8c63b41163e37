"""The best value of a recipe's number, such as its rate, as a law of sizes: log best = a + b log size.

At each size the log error is a well around the best value, near it a parabola; of all sizes one arm is steeper by the
same factor. The wells are fitted at once with the law in the place of their bottoms, so that a size counts by how
curved its well is. Recipes differ in more than this number, and are the same at all sizes: intervals leave out one
recipe after the other (jackknife), and hold how far sizes scatter about the law (DerSimonian and Laird, 1986).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.config import UserError
from vitlab.formatting import plural
from vitlab.studies.fit import BEYOND, FEWEST, LARGEST_LOG, LEVEL
from vitlab.studies.stats import quantile

FEWEST_VALUES = 4  # of a size: a parabola goes through three
KEPT = 0.7  # of the recipes of a size, those of the lowest errors: far from the best no well is a parabola
SKEWEST = 2.0  # of the wells: 0 is a parabola, 1 an arm that is exponential


@dataclass(frozen=True)
class BestLaw:
    """The law `log best = coefficients @ (1, log size - middle)`, fitted at `sizes` (S, P), of one or more quantities.

    `best` (S,) is the value of each size's best recipe, `at_edge` says where that is its lowest or highest value.
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    degrees: int
    middle: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray  # (S,): 1 / variance of the log best at one size
    scatter: float  # variance of a size's log best about the law
    best: np.ndarray
    at_edge: np.ndarray
    held_back: np.ndarray  # (H, P), sizes that are predicted
    held_best: np.ndarray
    tried: float  # the largest value over the lowest

    @property
    def asked(self) -> np.ndarray:
        """The sizes to predict: those held back, else the largest one with its first quantity some times as large."""
        largest = self.sizes[-1]
        beyond = np.outer(BEYOND, largest[:1])
        return self.held_back if len(self.held_back) else np.hstack([beyond, np.tile(largest[1:], (len(BEYOND), 1))])

    def reach(self, row: np.ndarray, own: bool) -> float:
        """Compute how far the 90% interval of `row @ coefficients` reaches, with a size's `own` scatter or without."""
        rows = add_ones(np.log(self.sizes) - self.middle)
        spread = row @ np.linalg.pinv(rows.T @ (self.weights[:, None] * rows)) @ rows.T * self.weights
        variances = np.array([row @ self.covariance @ row, self.scatter * (own + (spread**2).sum())])
        spent = (variances**2 / [self.degrees, max(len(rows) - len(row), 1)]).sum()
        return float(np.sqrt(variances.sum()) * quantile(variances.sum() ** 2 / spent, LEVEL)) if spent else 0.0

    def predict(self, sizes: np.ndarray) -> np.ndarray:
        """Predict the best value at sizes (N, P), with its 90% interval: (N, 3)."""
        rows = add_ones(np.log(sizes) - self.middle)
        value, reach = rows @ self.coefficients, np.array([self.reach(row, own=True) for row in rows])
        return np.exp(np.stack([value, value - reach, value + reach], 1).clip(-LARGEST_LOG, LARGEST_LOG))

    @property
    def exponents(self) -> np.ndarray:
        """The exponent of each quantity with its 90% interval: (P, 3)."""
        value, rows = self.coefficients[1:], np.eye(len(self.coefficients))[1:]
        reach = np.array([self.reach(row, own=False) for row in rows])
        return np.stack([value, value - reach, value + reach], 1)


def add_ones(columns: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(columns)), columns])


def shape_well(far: np.ndarray, skew: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute a well of curvature 1 at log values so `far` from its bottom, and its slope."""
    skew = skew if abs(skew) > 1e-3 else 1e-3
    steps = (skew * far).clip(-30, 30)
    return (np.exp(steps) - steps - 1) / skew**2, (np.exp(steps) - 1) / skew


def fit_best(
    sizes: np.ndarray, values: np.ndarray, errors: np.ndarray, recipes: Sequence[int], limit: float = np.inf
) -> BestLaw:
    """Fit the law to runs of `sizes` (N, P), by their values (N), errors (N) and numbers of recipes (N).

    Sizes whose first quantity is above the limit are held back. Raises UserError with what there is too little of.
    """
    from scipy.optimize import least_squares

    recipes, kept, found = np.asarray(recipes), [], []
    cells, place = np.unique(sizes, axis=0, return_inverse=True)
    for number in range(len(cells)):
        runs = np.flatnonzero(place.ravel() == number)
        names, which = np.unique(recipes[runs], return_inverse=True)
        means = np.bincount(which, np.log(errors[runs])) / np.bincount(which)
        best = np.isin(which, means.argsort()[: max(FEWEST_VALUES, int(np.ceil(KEPT * len(names))))])
        of_best = values[runs][which == means.argmin()][0]
        found.append((of_best, of_best in (values[runs].min(), values[runs].max()), len(np.unique(values[runs]))))
        kept.append(runs[best])
    best, at_edge, counts = (np.array(of) for of in zip(*found, strict=True))
    within = cells[:, 0] <= limit
    used, above = np.flatnonzero(within & (counts >= FEWEST_VALUES)), ~within
    count, free = len(used), 1 + cells.shape[1]
    if count < max(FEWEST, free + 1):
        problem = f"{plural(count, 'size')} with {FEWEST_VALUES} or more values of it"
        raise UserError(f"{problem}; a law needs {max(FEWEST, free + 1)}")
    runs = np.concatenate([kept[number] for number in used])
    place, recipes = np.repeat(np.arange(count), [len(kept[number]) for number in used]), recipes[runs]
    logs, target, middle = np.log(values[runs]), np.log(errors[runs]), np.log(cells[used]).mean(0)
    rows = add_ones(np.log(cells[used]) - middle)
    if np.linalg.matrix_rank(rows) < free:
        raise UserError("its sizes do not tell the quantities of --x apart; give fewer")
    ends = np.array([(logs[place == number].min(), logs[place == number].max()) for number in range(count)])
    parts = [free, free + 1, free + 1 + count]  # coefficients, skew, levels, curvatures

    def miss(theta: np.ndarray) -> np.ndarray:
        """Return how far each run is from its well, then how far each bottom is outside of the tried values."""
        line, skew, levels, curves = np.split(theta, parts)
        bottoms = rows @ line
        wells = levels[place] + curves[place] * shape_well(logs - bottoms[place], skew[0])[0]
        outside = np.maximum(bottoms - ends[:, 1], ends[:, 0] - bottoms).clip(0)
        return np.concatenate([wells - target, 10 * target.std() * outside])

    lowest = [target[place == number].min() for number in range(count)]
    spread = [max(target[place == number].std(), 1e-3) for number in range(count)]
    begin = np.concatenate([np.linalg.lstsq(rows, np.log(best[used]))[0], [0.0], lowest, spread])
    ends_of = np.repeat([np.inf, SKEWEST, np.inf, np.inf], [free, 1, count, count])
    least = np.where(np.arange(len(begin)) < parts[2], -ends_of, 0.0)
    fitted = least_squares(miss, begin, bounds=(least, ends_of), x_scale="jac", max_nfev=200)
    line, skew, _, curves = np.split(fitted.x, parts)
    if not (curves > 1e-6).any():
        raise UserError("no size has a best value between others; try a wider range of it")
    inner = (fitted.x > least + 1e-6) & (fitted.x < ends_of - 1e-2)
    slopes, misses = fitted.jac[: len(target), inner], -fitted.fun[: len(target)]
    normal = slopes.T @ slopes
    names = np.unique(recipes)
    moved = []  # the coefficients without each recipe, by one step of the least squares
    for name in names:
        of_one = recipes == name
        part, gradient = slopes[of_one], slopes[of_one].T @ misses[of_one]
        moved.append(np.linalg.lstsq(normal - part.T @ part, gradient)[0][:free])
    covariance = (len(names) - 1) / len(names) * np.transpose(moved) @ moved
    # how far each size's own bottom is from the law, and with which weight
    noise = misses @ misses / max(len(misses) - inner.sum(), 1)
    offsets, weights = np.zeros(count), np.zeros(count)
    for number in np.flatnonzero(curves > 1e-6):
        here = place == number
        well, slope = shape_well(logs[here] - rows[number] @ line, skew[0])
        inverse = np.linalg.pinv(np.column_stack([np.ones(len(well)), well, -curves[number] * slope]))
        offsets[number], weights[number] = inverse[2] @ misses[here], 1 / max(noise * (inverse[2] @ inverse[2]), 1e-12)
    inverse = np.linalg.pinv(rows.T @ (weights[:, None] * rows)) @ rows.T
    left = weights @ (offsets - rows @ (inverse @ (weights * offsets))) ** 2
    worth = weights.sum() - np.trace(inverse @ (weights[:, None] ** 2 * rows))
    return BestLaw(
        coefficients=line,
        covariance=covariance,
        degrees=max(len(names) - free, 1),
        middle=middle,
        sizes=cells[used],
        weights=weights,
        scatter=max(0.0, float(left - (count - free)) / worth) if worth > 0 else 0.0,
        best=best[used],
        at_edge=at_edge[used],
        held_back=cells[above],
        held_best=best[above],
        tried=values.max() / values.min(),
    )
