"""The forms of scaling laws, and their least squares: laws of many curves at once."""

from collections.abc import Sequence
from itertools import product
from typing import ClassVar

import numpy as np

STEEPEST, FLATTEST = 5.0, 0.01  # bounds of the exponent of a law whose error falls
SLOPES = (0.1, 0.3, 0.7, 1.5, 3.0)  # exponents to start from
SHARES = (0.0, 0.5, 0.9)  # e_inf to start from, as shares of the lowest error
STEPS, TOLERANCE = 100, 1e-6  # of the least squares: most steps; relative gain in the sum of squares
SHORT, KEPT = 10, 3  # steps from all starts; starts that go on
HIGHEST_CEILING = 10.0  # times the highest error: bound of an unknown e_0
LARGEST_LOG = 700.0  # its exponential is still a number


# ---- laws


class Law:
    """A law scaled to one curve, or to each of a batch of B curves; fitted once it has a `theta` (P).

    theta (B, P): the parameters in the form that the search uses. bounds: lowest and highest theta, (1, P) or (B, P)
    each. starts: yields thetas to begin from. evaluate: log e and its derivative by each column of theta, (B, N) each.
    name_params the formula's parameters by name, (B) each.
    """

    name: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    bounds: tuple[np.ndarray, np.ndarray]
    theta: np.ndarray

    def __init__(self, curves: np.ndarray):
        """Keep `curves` (7, B, 1): logs of the smallest and the largest size, mean log size, mean log error, lowest
        error, and the bounds of e_0.
        """
        self.curves = curves
        self.first, self.last, self.middle, self.level, self.lowest, self.ceiling, self.highest_ceiling = curves

    @classmethod
    def of(cls, log_sizes: np.ndarray, log_errors: np.ndarray, chance: float | None) -> "Law":
        """Make a law on the scale of a curve: mean log errors (N) of ascending sizes.

        e_0 is `chance` if some error is below that; else search e_0 from the highest error to ten times that.
        """
        highest, lowest = np.exp(log_errors.max()), np.exp(log_errors.min())
        ends = (highest, HIGHEST_CEILING * highest)
        if chance is not None and chance > lowest:
            ends = (chance, chance)
        curve = (log_sizes[0], log_sizes[-1], log_sizes.mean(), log_errors.mean(), lowest, *ends)
        return cls(np.array(curve, float)[:, None, None])

    @property
    def free(self) -> int:
        """The number of parameters that are fitted."""
        low, high = self.bounds
        return int((low[0] < high[0]).sum())

    @property
    def params(self) -> dict[str, float]:
        """The parameters of the law's formula, by name."""
        return {name: float(value[0]) for name, value in self.name_params(self.theta[None]).items()}

    @property
    def at_bound(self) -> list[str]:
        """The parameters that ended at a bound: the data only say that they lie at or beyond that bound."""
        low, high = (bound[0] for bound in self.bounds)
        slack = np.minimum(0.01 * (high - low), 0.1)
        ended = (low < high) & ((self.theta <= low + slack) | (self.theta >= high - slack))
        return [name for name, at_end in zip(self.names, ended, strict=True) if at_end]

    def log_errors(self, log_sizes: np.ndarray) -> np.ndarray:
        """Compute log errors (N) at log sizes (N)."""
        return self.evaluate(self.theta[None], log_sizes)[0][0]

    def scale(self, beta: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Compute b of b x^c from its logarithm at the middle of the sizes."""
        return exponential(beta - c * self.middle[:, 0])


def columns(*values: float | np.ndarray) -> np.ndarray:
    """Stack bounds, numbers and (B, 1), as (B, P)."""
    return np.concatenate(np.broadcast_arrays(*(np.reshape(value, (-1, 1)) for value in values)), axis=1)


def exponential(values: np.ndarray) -> np.ndarray:
    """Compute exp, clipped to the range of a float: a steep law has a b beyond any float."""
    return np.exp(np.clip(values, -LARGEST_LOG, LARGEST_LOG))


class M1(Law):
    """e = b x^c"""

    name, names = "m1", ("b", "c")
    bounds = (np.array([[-np.inf, -STEEPEST]]), np.array([[np.inf, STEEPEST]]))

    def starts(self):
        yield self.level.item(), -0.3

    def evaluate(self, theta, log_sizes):
        x, (beta, c) = log_sizes - self.middle, theta.T[:, :, None]
        error = beta + c * x
        return error, [np.ones_like(error), np.broadcast_to(x, error.shape)]

    def name_params(self, theta):
        beta, c = theta.T
        return {"b": self.scale(beta, c), "c": c}


class M2(Law):
    """e = e_inf + b x^c"""

    name, names = "m2", ("e_inf", "b", "c")
    bounds = (np.array([[0.0, -np.inf, -STEEPEST]]), np.array([[1.0, np.inf, -FLATTEST]]))

    def starts(self):
        for share, slope in product(SHARES, SLOPES):
            yield share, self.level.item() + np.log1p(-0.9 * share), -slope

    def evaluate(self, theta, log_sizes):
        x, (share, beta, c) = log_sizes - self.middle, theta.T[:, :, None]
        power = exponential(beta + c * x)
        error = share * self.lowest + power
        part = power / error
        return np.log(error), [self.lowest / error, part, part * x]

    def name_params(self, theta):
        share, beta, c = theta.T
        return {"e_inf": share * self.lowest[:, 0], "b": self.scale(beta, c), "c": c}


class M3(Law):
    """e = b (1/x + g)^c

    beta is the log error at the middle size if g = 0. The upper bound of log g: no size matters any more.
    """

    name, names = "m3", ("b", "g", "c")

    @property
    def bounds(self):
        return columns(-np.inf, -self.last - 7, FLATTEST), columns(np.inf, 2 - self.first, STEEPEST)

    def starts(self):
        last, middle = self.last.item(), self.middle.item()
        for place, slope in product((-last - 4, -last, -middle), SLOPES):
            # the level is matched at the middle of the sizes
            yield self.level.item() - slope * float(np.logaddexp(0.0, place + middle)), place, slope

    def evaluate(self, theta, log_sizes):
        x, (beta, log_g, c) = log_sizes - self.middle, theta.T[:, :, None]
        bend = np.logaddexp(-x, log_g + self.middle)
        return beta + c * bend, [np.ones_like(bend), c * np.exp(log_g + self.middle - bend), bend]

    def name_params(self, theta):
        beta, log_g, c = theta.T
        return {"b": exponential(beta + c * self.middle[:, 0]), "g": np.exp(log_g), "c": c}


class M4(Law):
    """(e - e_inf) / (e_0 - e)^a = b x^c

    Solve for e by Newton's method in u, where e = e_inf + (e_0 - e_inf) / (1 + exp(-u)).
    """

    name, names = "m4", ("e_inf", "e_0", "b", "c", "a")

    @property
    def bounds(self):
        low, high = self.ceiling, self.highest_ceiling
        return columns(0.0, low, -np.inf, -STEEPEST, -3.0), columns(1.0, high, np.inf, -FLATTEST, 2.0)

    @property
    def highest_e_inf(self) -> np.ndarray:
        return np.minimum(self.lowest, self.ceiling * 0.999)

    def starts(self):
        low, high = self.ceiling.item(), self.highest_ceiling.item()
        for share, slope, log_a, place in product(SHARES[:2], SLOPES[1:], (-1.0, 0.0, 1.0), {(low + high) / 2, high}):
            yield share, place, self.level.item() + 0.5, -slope, log_a

    def evaluate(self, theta, log_sizes):
        x, (share, e_0, beta, c, log_a) = log_sizes - self.middle, theta.T[:, :, None]
        lowest, a = self.highest_e_inf, np.exp(log_a)
        e_inf = share * lowest
        span = np.maximum(e_0 - e_inf, 1e-9)
        target = beta + c * x - (1 - a) * np.log(span)
        u = np.where(target > 0, target / a, target)
        for _ in range(30):
            soft, upper, lower = logistic(u)
            step = ((a - 1) * soft + u - target) / (lower + a * upper)
            u = u - step
            if np.abs(step).max() < 1e-6:  # the next step would be about its square
                break
        soft, upper, lower = logistic(np.clip(u, -100, 100))  # beyond 100 no float tells an error from its limit
        slope = lower + a * upper
        error = e_inf + span * upper
        by_u = span * upper * lower / slope / error  # d log e / d target
        by_span = -(1 - a) / span  # d target / d span
        by_limit = lowest * (lower / error - by_u * by_span)
        return np.log(error), [
            by_limit,
            upper / error + by_u * by_span,
            by_u,
            by_u * x,
            by_u * a * (np.log(span) - soft),
        ]

    def name_params(self, theta):
        share, e_0, beta, c, log_a = theta.T
        e_inf = share * self.highest_e_inf[:, 0]
        return {"e_inf": e_inf, "e_0": e_0, "b": self.scale(beta, c), "c": c, "a": np.exp(log_a)}


def logistic(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log(1 + exp(u)), 1 / (1 + exp(-u)) and 1 / (1 + exp(u))."""
    small, positive = np.exp(-np.abs(u)), u >= 0
    more, less = 1 / (1 + small), small / (1 + small)
    soft = np.maximum(u, 0) + np.log1p(small)
    return soft, np.where(positive, more, less), np.where(positive, less, more)


FORMS: dict[str, type[Law]] = {form.name: form for form in (M1, M2, M3, M4)}


# ---- least squares


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a step too far costs infinity, and is rejected
def minimise(
    law: Law, log_sizes: np.ndarray, log_errors: np.ndarray, weights: np.ndarray, theta: np.ndarray, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Minimize from `theta` (B, P): return the theta reached and its weighted sum of squares (B).

    `log_errors` and `weights`, the number of runs of each size, are (B, N) or (N). A parameter stays on its bound while
    the search pushes it outward.
    """
    low, high = (np.broadcast_to(bound, theta.shape) for bound in law.bounds)
    best = np.clip(theta, low, high)
    target, weights = (np.broadcast_to(array, (len(best), len(log_sizes))) for array in (log_errors, weights))
    # state of the problems that have not converged, `open_ones`: theta, damping, sum of squares and its slopes
    open_ones, current, damping = np.arange(len(best)), best.copy(), np.full(len(best), 1e-2)
    square, normal, gradient = linearise(law, log_sizes, target, weights, best)
    costs = square.copy()
    for _ in range(steps):
        held = ((current <= low) & (gradient < 0)) | ((current >= high) & (gradient > 0))
        matrix = normal * (~held[:, :, None] & ~held[:, None, :])
        diagonal = np.einsum("bpp->bp", matrix)
        diagonal += np.where(held, 1.0, damping[:, None] * np.maximum(diagonal, 1e-12) + 1e-14)
        step = np.linalg.solve(matrix, np.where(held, 0.0, gradient)[:, :, None])[:, :, 0]
        moved = np.clip(current + step, low, high)
        new_square, new_normal, new_gradient = linearise(law, log_sizes, target, weights, moved)
        better = new_square <= square
        gain = (square - new_square) / np.maximum(square, 1e-300)
        done = (better & (gain < TOLERANCE)) | (damping > 1e9) | (square < 1e-24)
        current[better], square[better] = moved[better], new_square[better]
        normal[better], gradient[better] = new_normal[better], new_gradient[better]
        damping = np.where(better, damping * 0.2, damping * 5)
        best[open_ones], costs[open_ones] = current, square
        if done.all():
            break
        if done.any():
            of_each = open_ones, current, square, damping, normal, gradient, target, weights, low, high
            of_each = (one[~done] for one in of_each)
            open_ones, current, square, damping, normal, gradient, target, weights, low, high = of_each
            law = law if len(law.level) == 1 else type(law)(law.curves[:, ~done])  # one curve's law serves all
    return best, costs


def minimise_from_starts(
    laws: Sequence[Law], log_sizes: np.ndarray, log_errors: np.ndarray, weights: np.ndarray
) -> list[np.ndarray]:
    """Find each law's best theta (P), by weights (laws, N), from several starts; search only the best few to the end.

    All laws have one form. Search them in one batch: the arrays of a single law are too small to fill a call.
    """
    starts = [list(law.starts()) for law in laws]
    owners = np.repeat(np.arange(len(laws)), [len(some) for some in starts])
    theta, curves = np.concatenate(starts), np.concatenate([law.curves for law in laws], axis=1)
    for steps, kept in ((SHORT, KEPT), (STEPS, 1)):
        batch = type(laws[0])(curves[:, owners])
        theta, costs = minimise(batch, log_sizes, log_errors, weights[owners], theta, steps)
        rows = [np.flatnonzero(owners == k) for k in range(len(laws))]
        chosen = np.concatenate([of_law[costs[of_law].argsort()[:kept]] for of_law in rows])
        theta, owners = theta[chosen], owners[chosen]
    return list(theta)


def linearise(law: Law, log_sizes, target, weights, theta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sum of squares (B), the normal matrix J'WJ (B, P, P) and J'Wr (B, P)."""
    predicted, by_parameter = law.evaluate(theta, log_sizes)
    residuals = target - predicted
    jacobian = np.stack(by_parameter, axis=1)  # (B, P, N)
    weighted = jacobian * weights[:, None]
    square = (weights * residuals**2).sum(1)
    square[np.isnan(square)] = np.inf
    return square, weighted @ jacobian.transpose(0, 2, 1), (weighted @ residuals[:, :, None])[:, :, 0]
