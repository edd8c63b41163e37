"""Where two learners of a task change places, and what the laws of their first sizes say about it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from curves import Curve
from scipy.stats import t

import vitlab

NEAR, FAR = 2.0, 10.0  # times the largest size kept
RULED_OUT = 0.9  # the p_none above which a crossover up to twice the largest size counts as ruled out
CLEAR = 0.95  # level of the interval of a difference that is clear


@dataclass(frozen=True)
class Case:
    """A pair at a cut. `where` is the place of its real crossover: inside, near, far, beyond or never."""

    task: str
    where: str
    claimed: bool
    likely: bool
    right: bool  # claimed, and the real crossover is in the interval
    checkable: bool  # claimed at a size that was measured
    ruled_out: bool


def find_change(first: Curve, second: Curve) -> float | None:
    """The size of the last change of order, 0 where there is none, None where the runs do not tell.

    Differences are those of log errors, of runs with the same seed, so of the same training subset. One is clear if its
    interval by Student's t, with the variances of neighboring sizes pooled, leaves out 0. A change of order counts if
    clear differences are on both sides, and all that follow agree with the latter.
    """
    sizes, seeds = min(len(first.sizes), len(second.sizes)), min(first.errors.shape[1], second.errors.shape[1])
    runs = np.log(first.errors[:sizes, :seeds] / second.errors[:sizes, :seeds])
    means = np.log(first.errors[:sizes, :seeds].mean(1) / second.errors[:sizes, :seeds].mean(1))
    padded = np.pad(runs.var(axis=1, ddof=1), 1, mode="edge")
    deviations = np.sqrt((padded[:-2] + padded[1:-1] + padded[2:]) / 3 / seeds)
    clear = np.flatnonzero(np.abs(means) > t.ppf((1 + CLEAR) / 2, 3 * (seeds - 1)) * deviations)
    if not len(clear) or (means[clear[-1] :] * means[clear[-1]] <= 0).any():
        return None
    if (means * means[clear[-1]] > 0).all():
        return 0.0
    before = clear[means[clear] * means[clear[-1]] < 0]
    if not len(before):
        return None
    last = np.flatnonzero(means * means[clear[-1]] <= 0)[-1]  # the order changes right after this size
    between = first.sizes[last : last + 2]
    return float(np.exp(np.interp(0, *sort_by(means[last : last + 2], np.log(between)))))


def sort_by(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(keys)
    return keys[order], values[order]


def judge_pair(first: Curve, second: Curve, fits: tuple[dict, dict]) -> Iterator[Case]:
    """What is said at each cut, by fits of either curve by cut; nothing where the runs do not tell the truth."""
    change = find_change(first, second)
    if change is None:
        return
    measured = min(first.sizes[-1], second.sizes[-1])
    for kept in sorted(fits[0].keys() & fits[1].keys()):
        largest = first.sizes[kept - 1]
        said = vitlab.crossover(fits[0][kept], fits[1][kept])
        claimed = said.claim == "sure" and said.size is not None
        yield Case(
            first.task,
            describe_place(change, largest),
            claimed,
            said.claim == "likely",
            claimed and said.low <= change <= (said.high or np.inf),
            claimed and said.size <= measured,
            said.p_none is not None and said.p_none > RULED_OUT,
        )


def describe_place(change: float, largest: float) -> str:
    if change == 0:
        return "never"
    ends = {"inside": 1.0, "near": NEAR, "far": FAR}
    return next((name for name, end in ends.items() if change <= end * largest), "beyond")
