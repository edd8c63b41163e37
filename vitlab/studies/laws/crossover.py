"""The training-set size from which on one of two models stays ahead, with its uncertainty."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from vitlab.formatting import significant, whole
from vitlab.studies.laws.fit import Fit, ends

REACH = 10.0  # times the largest size: how far beyond the data a crossover is sought
NEAR = 2.0  # times the largest size: what p_none is about
CLEAR = 0.95  # level of the interval of a difference that makes one model's lead clear
MOST_WITHOUT = 0.1  # share of the draws without a crossover that a claim of one allows
GRID = 120  # sizes at which two laws are compared


@dataclass(frozen=True)
class Crossover:
    """Where two models change places. `size` is None where they are not seen to.

    `low` and `high` are the 90% interval, `high` None where it has no end within reach. `p_none` is the share of draws
    that have no crossover up to twice the largest size, None where no law is good enough to tell or no model leads.
    """

    size: float | None
    low: float | None
    high: float | None
    inside: bool
    p_none: float | None
    largest: float  # size that both were measured at
    clear: bool = True  # whether one of the models leads clearly at some size
    ahead: int | None = None  # after it: 0 the first model, 1 the second
    sizes: tuple[float, ...] = ()  # all crossovers, the last of which is `size`
    places: np.ndarray | None = field(default=None, repr=False, compare=False)  # its log size in each draw

    @property
    def factor(self) -> float | None:
        """How many times the largest size it is at."""
        return None if self.size is None else self.size / self.largest


def crossover(first: Fit, second: Fit, low: float | None = None, high: float | None = None) -> Crossover | None:
    """`find_crossover`, or None where the models do not change places."""
    found = find_crossover(first, second, low, high)
    return None if found.size is None else found


def find_crossover(first: Fit, second: Fit, low: float | None = None, high: float | None = None) -> Crossover:
    """The last change of order of two models from size `low` to `high`, by default the data's and ten times its end.

    Where the mean errors cross after a size at which one model leads clearly, the crossover is read off the difference
    of their logs, interpolated in the log of the size; else the laws tell, if both hold, where they cross beyond the
    data. A crossover that more than a tenth of the draws do not have is none.
    """
    sizes, differences, draws = measure_differences(first, second)
    kept = sizes >= np.log(low) if low is not None else sizes > -np.inf
    kept &= sizes <= np.log(high) if high is not None else True
    sizes, differences, draws = sizes[kept], differences[kept], draws[:, kept]
    largest = min(first.largest, second.largest)
    none = Crossover(None, None, None, False, None, largest)
    lows, highs = ends(draws, CLEAR) if len(sizes) else (np.zeros(0), np.zeros(0))
    clear = np.flatnonzero((lows > 0) | (highs < 0))
    if not len(clear):
        return replace(none, clear=False)
    turns = [(i, j) for i, j in pairwise(clear) if differences[i] * differences[j] < 0]
    if clear[-1] < len(sizes) - 1 and differences[clear[-1]] * differences[-1] < 0:
        turns.append((int(clear[-1]), len(sizes) - 1))
    grid = np.linspace(np.log(largest), np.log(high or REACH * largest), GRID)
    if turns:
        beyond = extend(first, second, grid) if first.holds and second.holds else None
        return replace(none, **read_off(sizes, differences, draws, turns, beyond))
    if not (first.holds and second.holds):
        return none
    return replace(none, **extrapolate(first, second, np.linspace(sizes[clear[-1]], grid[-1], 2 * GRID), grid[0]))


def measure_differences(first: Fit, second: Fit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log sizes (N) that both have, log mean errors of the first less the second's (N), draws of that (draws, N)."""
    sizes, here, there = np.intersect1d(first.runs.log_sizes, second.runs.log_sizes, return_indices=True)
    differences = np.log(first.runs.mean_errors[here] / second.runs.mean_errors[there])
    return sizes, differences, differences + first.noise_of_means[:, here] - second.noise_of_means[:, there]


def read_off(
    sizes: np.ndarray, differences: np.ndarray, draws: np.ndarray, turns: list, beyond: np.ndarray | None
) -> dict:
    """The crossovers between pairs of sizes with opposite leaders, and the interval of the last.

    A draw that does not cross between them crosses where its laws do `beyond` the data, at infinity if nowhere.
    """
    every = [find_turn(sizes[i : j + 1], differences[None, i : j + 1] * np.sign(differences[i]))[0] for i, j in turns]
    i, j = turns[-1]
    leads = np.sign(differences[i])
    places = find_turn(sizes[i : j + 1], draws[:, i : j + 1] * leads)
    if j == len(sizes) - 1:
        later = np.full(len(draws), np.inf) if beyond is None else find_ends(sizes[-1], *beyond, leads)
        places = np.where(draws[:, j] * leads > 0, later, places)
    return summarise(np.exp(every), places, sizes[-1]) | {"ahead": int(differences[j] > 0)}


def extend(first: Fit, second: Fit, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log sizes (G) and draws of the laws' difference in log error there (draws, G)."""
    return grid, first.form.evaluate(first.draws, grid)[0] - second.form.evaluate(second.draws, grid)[0]


def find_ends(begin: float, grid: np.ndarray, drawn: np.ndarray, leads: float) -> np.ndarray:
    """Where each draw of the laws' difference changes the sign that it began with; infinity if it does not."""
    return np.where(drawn[:, -1] * leads > 0, np.inf, np.maximum(find_turn(grid, drawn * leads), begin))


def extrapolate(first: Fit, second: Fit, grid: np.ndarray, largest: float) -> dict:
    """Where the laws cross beyond the log size `largest`, on a grid that begins where one model leads clearly.

    Laws that have crossed by then, where the data have not, cross at `largest`.
    """
    fitted = first.form.evaluate(first.theta[None], grid)[0][0] - second.form.evaluate(second.theta[None], grid)[0][0]
    zeros = np.maximum(list_zeros(grid, fitted), largest)
    places = find_ends(-np.inf, *extend(first, second, grid), np.sign(fitted[0]) or 1.0)
    return summarise(np.exp(zeros), places, largest) | {"ahead": int(fitted[-1] > 0)}


def summarise(every: np.ndarray, places: np.ndarray, largest: float) -> dict:
    """The fields of a Crossover from all crossovers' sizes and the log sizes of the last one in the draws."""
    found = {"p_none": float((places > largest + np.log(NEAR)).mean())}
    if not len(every) or np.isinf(places).mean() > MOST_WITHOUT:
        return found
    low, high = np.exp(np.quantile(places, [0.05, 0.95], method="inverted_cdf"))
    return found | {
        "places": places,
        "size": float(every[-1]),
        "low": float(low),
        "high": float(high) if np.isfinite(high) else None,
        "inside": bool(every[-1] < 0.999 * np.exp(largest)),
        "sizes": tuple(every.tolist()),
    }


def list_zeros(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where the line through (places, values), each (N), changes its sign."""
    i = np.flatnonzero(values[:-1] * values[1:] < 0)
    return places[i] + (places[i + 1] - places[i]) * values[i] / (values[i] - values[i + 1])


def find_turn(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where each line of values (B, N), positive at first, turns negative for good.

    Of several changes of sign between two clear leaders all but one are noise, and the last is late on average. So it
    is how far the line reaches with the parts where it is positive put together: with a single change, that change.
    """
    before, after = values[:, :-1], values[:, 1:]
    rise = np.maximum(before, 0) + np.maximum(after, 0)
    total = np.abs(before) + np.abs(after)
    share = np.where(before * after >= 0, (before + after > 0).astype(float), rise / np.where(total > 0, total, 1))
    return places[0] + (share * np.diff(places)).sum(1)


def describe_crossover(found: Crossover, first: str, second: str, unit: str = "example") -> str:
    """`A passes B at 9,400 training examples (90% interval 7,100 to 12,000), inside the data`, or that none is seen."""
    if found.size is None:
        return f"{first} and {second}: {describe_absence(found)}"
    ahead, behind = (second, first) if found.ahead else (first, second)
    return f"{ahead} passes {behind} at {describe_place(found, unit)}"


def describe_place(found: Crossover, unit: str) -> str:
    """`9,400 training examples (90% interval 7,100 to 12,000), inside the data`"""
    end = f"to {rounded(found.high)}" if found.high else f"up, open within {REACH:g}x of the data"
    where = "inside the data" if found.inside else f"extrapolated by a factor of {significant(found.factor, 2)}"
    if found.factor > NEAR:
        where += f", not within {NEAR:g}x of the data"
    return f"{rounded(found.size)} training {unit}s (90% interval {rounded(found.low)} {end}), {where}"


def describe_absence(found: Crossover) -> str:
    if not found.clear:
        return "no crossover is seen, as neither is clearly ahead at any size"
    if found.p_none is None:
        return "no crossover is seen in the data, and no law fits well enough to look further"
    share = f"{found.p_none:.0%}" if found.p_none < 0.995 else "above 99%"
    return f"no crossover is seen within {NEAR:g}x of the data (probability of none: {share})"


def rounded(size: float) -> str:
    """A size to two digits, as no more are known: `9,400`."""
    return whole(float(f"{size:.2g}"))
