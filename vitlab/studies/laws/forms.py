"""The laws of error e against training-set size x, as log e with its derivatives, for many parameter vectors at once.

M1 e = b x^c; M2 e = e_inf + b x^c; M3 e = b (1/x + g)^c; M4 (e - e_inf) / (e_0 - e)^a = b x^c
(Alabdulmohsin et al., 2022, arXiv 2209.06640). Fitted are the columns of `theta`, in which the sum of squares is well
conditioned: e_inf as a share of the lowest error, logarithms of positive numbers, and in place of log b the level
`beta` at the middle of the sizes. Shapes: theta (B, P), sizes (N), log errors and each derivative (B, N).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

LAWS = {  # name -> the formula
    "m1": "e = b x^c",
    "m2": "e = e_inf + b x^c",
    "m3": "e = b (1/x + g)^c",
    "m4": "(e - e_inf) / (e_0 - e)^a = b x^c",
}
STEEPEST, FLATTEST = 5.0, 0.01  # of the exponent of a law whose error falls
SLOPES = (0.1, 0.3, 0.7, 1.5, 3.0)  # exponents to start from
SHARES = (0.0, 0.5, 0.9)  # of the lowest error, e_inf to start from


@dataclass(frozen=True)
class Curve:
    """What the bounds of a law depend on: mean log errors by size, and the error of guessing where it is known."""

    log_sizes: np.ndarray  # (N), ascending
    log_errors: np.ndarray  # (N)
    chance: float | None = None

    @property
    def middle(self) -> float:
        return float(self.log_sizes.mean())

    @property
    def lowest(self) -> float:
        return float(np.exp(self.log_errors.min()))

    @property
    def ceiling(self) -> tuple[float, float]:
        """The bounds of e_0: chance where it is known, else from the highest error to 1, of losses to ten times it."""
        if self.chance is not None:
            return self.chance, self.chance
        highest = float(np.exp(self.log_errors.max()))
        return highest, 1.0 if highest <= 1 else 10 * highest


class Law(ABC):
    """A law on one curve's scale."""

    names: tuple[str, ...]

    def __init__(self, curve: Curve):
        self.curve = curve

    @property
    def free(self) -> int:
        """The number of parameters that are fitted."""
        low, high = self.bounds
        return int((low < high).sum())

    @property
    @abstractmethod
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest theta, (P) each."""

    @abstractmethod
    def starts(self) -> Iterator[tuple[float, ...]]:
        """Thetas to begin the search from."""

    @abstractmethod
    def evaluate(self, theta: np.ndarray, log_sizes: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """log e, and its derivative by each column of theta."""

    @abstractmethod
    def params(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """The law's own parameters, each (B)."""

    def centred(self, log_sizes: np.ndarray) -> np.ndarray:
        return log_sizes - self.curve.middle

    def level(self) -> float:
        return float(self.curve.log_errors.mean())

    def scale(self, beta: np.ndarray, c: np.ndarray) -> np.ndarray:
        """b of b x^c, by its logarithm at the middle of the sizes."""
        return exponential(beta - c * self.curve.middle)


def exponential(values: np.ndarray) -> np.ndarray:
    """exp, of what it can hold: a steep law has a b beyond any float."""
    return np.exp(np.clip(values, -700, 700))


def logistic(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log(1 + exp(u)), 1 / (1 + exp(-u)) and 1 / (1 + exp(u))."""
    small = np.exp(-np.abs(u))
    upper, lower = (np.where(sign * u >= 0, 1.0, small) / (1 + small) for sign in (1, -1))
    return np.maximum(u, 0) + np.log1p(small), upper, lower


class M1(Law):
    names = ("b", "c")
    bounds = (np.array([-np.inf, -STEEPEST]), np.array([np.inf, STEEPEST]))

    def starts(self):
        yield self.level(), -0.3

    def evaluate(self, theta, log_sizes):
        x, (beta, c) = self.centred(log_sizes), theta.T[:, :, None]
        return beta + c * x, [np.ones((len(theta), len(x))), np.broadcast_to(x, (len(theta), len(x)))]

    def params(self, theta):
        beta, c = theta.T
        return {"b": self.scale(beta, c), "c": c}


class M2(Law):
    names = ("e_inf", "b", "c")
    bounds = (np.array([0.0, -np.inf, -STEEPEST]), np.array([1.0, np.inf, -FLATTEST]))

    def starts(self):
        for share, slope in product(SHARES, SLOPES):
            yield share, self.level() + np.log1p(-0.9 * share), -slope

    def evaluate(self, theta, log_sizes):
        x, (share, beta, c) = self.centred(log_sizes), theta.T[:, :, None]
        limit, power = share * self.curve.lowest, exponential(beta + c * x)
        error = limit + power
        part = power / error
        return np.log(error), [self.curve.lowest / error, part, part * x]

    def params(self, theta):
        share, beta, c = theta.T
        return {"e_inf": share * self.curve.lowest, "b": self.scale(beta, c), "c": c}


class M3(Law):
    """beta is the level where x is in the middle and g = 0; log g is free up to where no size is seen to matter."""

    names = ("b", "g", "c")

    @property
    def bounds(self):
        low, high = self.curve.log_sizes[0], self.curve.log_sizes[-1]
        return np.array([-np.inf, -high - 7, FLATTEST]), np.array([np.inf, -low + 2, STEEPEST])

    def starts(self):
        sizes = self.curve.log_sizes
        for place, slope in product((-sizes[-1] - 4, -sizes[-1], -self.curve.middle), SLOPES):
            # the level is matched at the middle of the sizes
            yield self.level() - slope * float(np.logaddexp(0.0, place + self.curve.middle)), place, slope

    def evaluate(self, theta, log_sizes):
        x, (beta, log_g, c) = self.centred(log_sizes), theta.T[:, :, None]
        bend = np.logaddexp(-x, log_g + self.curve.middle)
        return beta + c * bend, [np.ones_like(bend), c * np.exp(log_g + self.curve.middle - bend), bend]

    def params(self, theta):
        beta, log_g, c = theta.T
        return {"b": exponential(beta + c * self.curve.middle), "g": np.exp(log_g), "c": c}


class M4(Law):
    """Solved for e by Newton's method in u, where e = e_inf + (e_0 - e_inf) / (1 + exp(-u))."""

    names = ("e_inf", "e_0", "b", "c", "a")

    @property
    def bounds(self):
        low, high = self.curve.ceiling
        return np.array([0.0, low, -np.inf, -STEEPEST, -3.0]), np.array([1.0, high, np.inf, -FLATTEST, 2.0])

    def starts(self):
        low, high = self.curve.ceiling
        for share, slope, log_a, place in product(SHARES[:2], SLOPES[1:], (-1.0, 0.0, 1.0), {(low + high) / 2, high}):
            yield share, place, self.level() + 0.5, -slope, log_a

    def evaluate(self, theta, log_sizes):
        x, (share, e_0, beta, c, log_a) = self.centred(log_sizes), theta.T[:, :, None]
        lowest = min(self.curve.lowest, self.curve.ceiling[0] * 0.999)
        a, limit = np.exp(log_a), share * lowest
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
        lowest = min(self.curve.lowest, self.curve.ceiling[0] * 0.999)
        return {"e_inf": share * lowest, "e_0": e_0, "b": self.scale(beta, c), "c": c, "a": np.exp(log_a)}


FORMS: dict[str, type[Law]] = {"m1": M1, "m2": M2, "m3": M3, "m4": M4}
