"""The laws that errors follow as the training set grows, and their least squares on many curves at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import ClassVar

import numpy as np

STEEPEST, FLATTEST = 5.0, 0.01  # of the exponent of a law whose error falls
SLOPES = (0.1, 0.3, 0.7, 1.5, 3.0)  # exponents to start from
SHARES = (0.0, 0.5, 0.9)  # of the lowest error, e_inf to start from


@dataclass(frozen=True, eq=False)
class Law:
    """A law on the scale of one curve, or of several that are fitted in one batch: its fields are (1, 1) or (B, 1).

    theta (B, P) are its parameters as they are searched for. `bounds` are the lowest and the highest theta, (1, P) or
    (B, P) each. `starts` gives thetas to begin from, `evaluate` log e and its derivative by each column of theta,
    (B, N) each, `params` the law's own parameters by name, (B) each.
    """

    first: np.ndarray  # log of the smallest size
    last: np.ndarray
    middle: np.ndarray  # mean of the log sizes
    level: np.ndarray  # mean of the log errors
    lowest: np.ndarray  # error
    ceiling: np.ndarray  # the bounds of e_0
    highest_ceiling: np.ndarray

    names: ClassVar[tuple[str, ...]]
    bounds: ClassVar[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, log_sizes: np.ndarray, log_errors: np.ndarray, chance: float | None = None) -> "Law":
        """By mean log errors (N) of ascending sizes.

        e_0 is chance where it is known, else from the highest error to 1, of losses to ten times it.
        """
        highest = float(np.exp(log_errors.max()))
        ceiling = (chance, chance) if chance is not None else (highest, 1.0 if highest <= 1 else 10 * highest)
        lowest = np.exp(log_errors.min())
        found = (log_sizes[0], log_sizes[-1], log_sizes.mean(), log_errors.mean(), lowest, *ceiling)
        return cls(*(np.array([[value]], float) for value in found))

    @classmethod
    def join(cls, laws: "Sequence[Law]", owners: np.ndarray) -> "Law":
        """One law for a batch whose problems (B) belong to the curves of `laws`."""
        return cls(*(np.concatenate([vars(law)[one.name] for law in laws])[owners] for one in fields(cls)))

    @property
    def free(self) -> int:
        """The number of parameters that are fitted."""
        low, high = self.bounds
        return int((low[0] < high[0]).sum())

    def scale(self, beta: np.ndarray, c: np.ndarray) -> np.ndarray:
        """b of b x^c, by its logarithm at the middle of the sizes."""
        return exponential(beta - c * self.middle[:, 0])


def columns(*values: float | np.ndarray) -> np.ndarray:
    """Bounds as (B, P), of numbers and (B, 1)."""
    return np.concatenate(np.broadcast_arrays(*(np.reshape(value, (-1, 1)) for value in values)), axis=1)


def exponential(values: np.ndarray) -> np.ndarray:
    """exp, of what it can hold: a steep law has a b beyond any float."""
    return np.exp(np.clip(values, -700, 700))


def logistic(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log(1 + exp(u)), 1 / (1 + exp(-u)) and 1 / (1 + exp(u))."""
    small = np.exp(-np.abs(u))
    upper, lower = (np.where(sign * u >= 0, 1.0, small) / (1 + small) for sign in (1, -1))
    return np.maximum(u, 0) + np.log1p(small), upper, lower


class M1(Law):
    """e = b x^c"""

    names = ("b", "c")
    bounds = (np.array([[-np.inf, -STEEPEST]]), np.array([[np.inf, STEEPEST]]))

    def starts(self):
        yield self.level.item(), -0.3

    def evaluate(self, theta, log_sizes):
        x, (beta, c) = log_sizes - self.middle, theta.T[:, :, None]
        error = beta + c * x
        return error, [np.ones_like(error), np.broadcast_to(x, error.shape)]

    def params(self, theta):
        beta, c = theta.T
        return {"b": self.scale(beta, c), "c": c}


class M2(Law):
    """e = e_inf + b x^c"""

    names = ("e_inf", "b", "c")
    bounds = (np.array([[0.0, -np.inf, -STEEPEST]]), np.array([[1.0, np.inf, -FLATTEST]]))

    def starts(self):
        for share, slope in product(SHARES, SLOPES):
            yield share, self.level.item() + np.log1p(-0.9 * share), -slope

    def evaluate(self, theta, log_sizes):
        x, (share, beta, c) = log_sizes - self.middle, theta.T[:, :, None]
        limit, power = share * self.lowest, exponential(beta + c * x)
        error = limit + power
        part = power / error
        return np.log(error), [self.lowest / error, part, part * x]

    def params(self, theta):
        share, beta, c = theta.T
        return {"e_inf": share * self.lowest[:, 0], "b": self.scale(beta, c), "c": c}


class M3(Law):
    """e = b (1/x + g)^c

    beta is the level where x is in the middle and g = 0; log g is free up to where no size is seen to matter.
    """

    names = ("b", "g", "c")

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

    def params(self, theta):
        beta, log_g, c = theta.T
        return {"b": exponential(beta + c * self.middle[:, 0]), "g": np.exp(log_g), "c": c}


class M4(Law):
    """(e - e_inf) / (e_0 - e)^a = b x^c

    Solved for e by Newton's method in u, where e = e_inf + (e_0 - e_inf) / (1 + exp(-u)).
    """

    names = ("e_inf", "e_0", "b", "c", "a")

    @property
    def bounds(self):
        low, high = self.ceiling, self.highest_ceiling
        return columns(0.0, low, -np.inf, -STEEPEST, -3.0), columns(1.0, high, np.inf, -FLATTEST, 2.0)

    @property
    def highest_limit(self) -> np.ndarray:
        return np.minimum(self.lowest, self.ceiling * 0.999)

    def starts(self):
        low, high = self.ceiling.item(), self.highest_ceiling.item()
        for share, slope, log_a, place in product(SHARES[:2], SLOPES[1:], (-1.0, 0.0, 1.0), {(low + high) / 2, high}):
            yield share, place, self.level.item() + 0.5, -slope, log_a

    def evaluate(self, theta, log_sizes):
        x, (share, e_0, beta, c, log_a) = log_sizes - self.middle, theta.T[:, :, None]
        lowest, a = self.highest_limit, np.exp(log_a)
        limit = share * lowest
        span = np.maximum(e_0 - limit, 1e-9)
        target = beta + c * x - (1 - a) * np.log(span)
        u = np.where(target > 0, target / a, target)
        for _ in range(30):
            soft, upper, lower = logistic(u)
            step = ((a - 1) * soft + u - target) / (lower + a * upper)
            u = u - step
            if np.abs(step).max() < 1e-6:  # the next step would be of its square
                break
        soft, upper, lower = logistic(np.clip(u, -100, 100))  # beyond it no float tells an error from its limit
        slope = lower + a * upper
        error = limit + span * upper
        by_u = span * upper * lower / slope / error  # d log e / d target
        by_span = -(1 - a) / span  # d target / d span
        return np.log(error), [
            lowest * (lower / error - by_u * by_span),
            upper / error + by_u * by_span,
            by_u,
            by_u * x,
            by_u * a * (np.log(span) - soft),
        ]

    def params(self, theta):
        share, e_0, beta, c, log_a = theta.T
        return {
            "e_inf": share * self.highest_limit[:, 0],
            "e_0": e_0,
            "b": self.scale(beta, c),
            "c": c,
            "a": np.exp(log_a),
        }


FORMS: dict[str, type[Law]] = {"m1": M1, "m2": M2, "m3": M3, "m4": M4}


# ---- least squares

STEPS, TOLERANCE = 100, 1e-6  # the latter of the sum of squares, relative
SHORT, KEPT = 10, 3  # steps from all starts; how many go on


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a step too far costs infinity, and is not taken
def minimise(
    law: Law, log_sizes: np.ndarray, log_errors: np.ndarray, weights: np.ndarray, theta: np.ndarray, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """The theta (B, P) that `theta` leads to and its weighted sum of squares (B), of log errors (B, N) or (N).

    `weights` (B, N) or (N) are the number of runs of each size. A parameter on its bound that wants to leave stays
    there.
    """
    low, high = law.bounds
    best = np.clip(theta, low, high)
    target, weights = (np.broadcast_to(array, (len(best), len(log_sizes))) for array in (log_errors, weights))
    square, normal, gradient = linearise(law, log_sizes, target, weights, best)
    costs, damping = square.copy(), np.full(len(best), 1e-2)
    open_ones = np.arange(len(best))  # problems that have not converged; what follows holds these only
    current = best.copy()
    for _ in range(steps):
        held = ((current <= low) & (gradient < 0)) | ((current >= high) & (gradient > 0))
        step = solve(normal, np.where(held, 0.0, gradient), held, damping)
        trial = np.clip(current + step, low, high)
        new_square, new_normal, new_gradient = linearise(law, log_sizes, target, weights, trial)
        better = new_square <= square
        gain = (square - new_square) / np.maximum(square, 1e-300)
        done = (better & (gain < TOLERANCE)) | (damping > 1e9) | (square < 1e-24)
        current[better], square[better] = trial[better], new_square[better]
        normal[better], gradient[better] = new_normal[better], new_gradient[better]
        damping = np.where(better, damping * 0.2, damping * 5)
        best[open_ones], costs[open_ones] = current, square
        if done.all():
            break
        if done.any():
            keep = ~done
            open_ones, current, square, damping = open_ones[keep], current[keep], square[keep], damping[keep]
            normal, gradient, target, weights = normal[keep], gradient[keep], target[keep], weights[keep]
            law = law if len(law.level) == 1 else law.join([law], keep)  # a law of a single curve is for any
            low, high = law.bounds
    return best, costs


def minimise_from_starts(
    laws: Sequence[Law], log_sizes: np.ndarray, log_errors: np.ndarray, weights: np.ndarray
) -> list[np.ndarray]:
    """The best theta (P) that the starts of each law lead to, by its weights (laws, N); the best few go to the end.

    All are of one form. They are searched for in one batch, since the arrays of one are too small to fill a call.
    """
    starts = [list(law.starts()) for law in laws]
    owners = np.repeat(np.arange(len(laws)), [len(some) for some in starts])
    theta = np.concatenate(starts)
    for steps, kept in ((SHORT, KEPT), (STEPS, 1)):
        law = type(laws[0]).join(laws, owners)
        theta, costs = minimise(law, log_sizes, log_errors, weights[owners], theta, steps)
        chosen = np.concatenate(
            [(rows := np.flatnonzero(owners == k))[costs[rows].argsort()[:kept]] for k in range(len(laws))]
        )
        theta, owners = theta[chosen], owners[chosen]
    return list(theta)


def linearise(law: Law, log_sizes, target, weights, theta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sum of squares (B), the normal matrix J'WJ (B, P, P) and J'Wr (B, P)."""
    predicted, by_parameter = law.evaluate(theta, log_sizes)
    residuals = target - predicted
    jacobian = np.stack(by_parameter, axis=1)  # (B, P, N)
    weighted = jacobian * weights[:, None]
    square = np.nan_to_num((weights * residuals**2).sum(1), nan=np.inf)
    return square, weighted @ jacobian.transpose(0, 2, 1), (weighted @ residuals[:, :, None])[:, :, 0]


def solve(normal: np.ndarray, gradient: np.ndarray, held: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """The damped step of each problem, 0 for a parameter that is held."""
    free = ~held
    matrix = normal * (free[:, :, None] & free[:, None, :])
    diagonal = np.einsum("bpp->bp", matrix)
    diagonal += np.where(held, 1.0, damping[:, None] * np.maximum(diagonal, 1e-12) + 1e-14)
    return np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]
