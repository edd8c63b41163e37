"""Find the size at which one of two models passes the other, and how many times the other's data it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from vitlab.config import UserError
from vitlab.formatting import amount, significant
from vitlab.statistics.fit import (
    COVERAGE,
    ENOUGH,
    Fit,
    ends,
)

# ---- crossovers


REACH = 10.0  # times the largest size: seek crossovers and errors no farther beyond the data
NEAR = 2.0  # times the largest size: p_none covers sizes up to here
CLEAR = 0.95  # level of the intervals of differences: a lead is clear if its interval leaves out 0
SURE, LIKELY = 0.9, 0.5  # a claim needs a crossover in this share of the draws
EARLY = 0.1  # a sentence says that small sizes have another order if this share of the draws has
SUDDEN = 0.5  # a fall of which so much is sudden has no place between its sizes
GRID = 60  # sizes at which two laws are compared

CAME_TRUE = 0.64  # share of 73 likely crossovers on public curves (LCDB) whose winner led at the end: docs/rules.md

NO_LEADER = "neither is clearly ahead at any size"
OPEN_ORDER = f"their order changes, but {NO_LEADER}"


@dataclass(frozen=True)
class Crossover:
    """The size at which two models change places. Without a crossover `size` is None and `reason` says why.

    claim: "sure" if nine tenths of the draws cross, "likely" if half of them do, else "none".
    low, high: the 90% interval, for a likely crossover over the draws that cross; high is None if it is out of reach.
    p_none: share of draws without a crossover up to twice the largest size; None if no law is good enough to tell.
    """

    size: float | None = None
    low: float | None = None
    high: float | None = None
    inside: bool = False
    p_none: float | None = None
    claim: str = "none"
    reason: str = ""
    largest: float = float("nan")  # both models were measured up to this size
    below: float | None = None  # smallest size with a clear leader; set if the order at smaller sizes is open
    ahead: int | None = None  # the leader after the crossover: 0 the first model, 1 the second
    scattered: bool = False  # a curve of one seed is among them: judged by the scatter round the curve
    around: tuple[float, float] | None = None  # set if a curve falls so suddenly that sizes alone say where

    @property
    def factor(self) -> float | None:
        """The crossover's size as a multiple of the largest size."""
        return None if self.size is None else self.size / self.largest


def crossover(
    first: Fit,
    second: Fit,
    low: float | None = None,
    high: float | None = None,
    leads: Mapping[float, bool] | None = None,
    alpha: float = 1.0,
) -> Crossover:
    """Find the last size in `low` to `high` at which two models change places; default: the data and ten times beyond.

    If the mean errors cross after a clear lead, of a size or of several side by side together, interpolate the
    difference of their logs in the log size. Otherwise, if both laws hold, find where the laws cross beyond the data.
    Where only one model was measured, interpolate the other's error on its laws. `leads` says by size whether a model
    leads clearly, and overrides what the fits say of that size. `alpha`
    multiplies the share that intervals leave out (see `Results`).
    """
    sure, left_out = 1 - (1 - SURE) * alpha, (1 - COVERAGE) / 2 * alpha
    both = [fit.runs.log_sizes for fit in (first, second)]
    sizes, start, end = np.union1d(*both), np.log(low or 1e-300), np.log(high or np.inf)
    sizes = sizes[(sizes >= max(start, *(x[0] for x in both))) & (sizes <= min(end, *(x[-1] for x in both)))]
    if not len(sizes):
        return Crossover(reason="their training-set sizes do not overlap")
    scattered = [fit for fit in (first, second) if not fit.runs.repeated]
    if doubt := next(filter(None, (fit.scatter[2] for fit in scattered)), ""):
        return Crossover(reason=doubt, largest=float(np.exp(sizes[-1])))
    lines = first.read_means(sizes) - second.read_means(sizes, role=1)
    differences, draws = lines[0], lines[1:]
    none = Crossover(largest=float(np.exp(sizes[-1])), scattered=bool(scattered))
    lows, highs = ends(draws, 1 - (1 - CLEAR) * alpha / len(sizes))  # of all sizes at once
    leading = (lows > 0) | (highs < 0)
    for size, leads_there in (leads or {}).items():
        leading[np.isclose(sizes, np.log(size))] = leads_there
    # sizes side by side of one order tell together what none tells alone: then the surest of them leads
    orders = np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(differences > 0)) + 1)
    for order in orders:
        under, over = ends(draws[:, order].mean(1), 1 - (1 - CLEAR) * alpha / len(orders))
        if len(order) > 1 and (under > 0 or over < 0) and not leading[order].any():
            leading[order[np.maximum(lows, -highs)[order].argmax()]] = True
    clear = np.flatnonzero(leading)
    if not len(clear):
        return replace(none, reason=OPEN_ORDER if (differences > 0).any() and (differences < 0).any() else NO_LEADER)
    turned_early = np.zeros(len(draws), bool)  # draws whose mean order before the first clear lead is opposite
    if first_clear := clear[0]:
        turned_early = draws[:, :first_clear].mean(1) * differences[first_clear] < 0
    if turned_early.mean() > EARLY:
        none = replace(none, below=float(np.exp(sizes[first_clear])))
    turns = [(i, j) for i, j in pairwise([*clear, len(sizes) - 1]) if differences[i] * differences[j] < 0]
    hold = first.holds and second.holds
    if not turns and not hold:
        return replace(none, reason="the curves do not cross, and not both laws fit well enough to look beyond")
    grid = np.linspace(sizes[-1], np.log(high or REACH * none.largest), GRID)
    beyond = first.draw_log_errors(grid) - second.draw_log_errors(grid, role=1) if hold else np.full((1, GRID), np.nan)
    around = None
    if turns:  # read off the data; a draw that does not cross there crosses where its laws do, else at infinity
        i, j = turns[-1]
        lead, ahead = np.sign(differences[i]), differences[j] > 0
        between = np.union1d(sizes[i : j + 1], np.linspace(sizes[i], sizes[j], GRID))
        place, *places = find_turn(between, (first.read_means(between) - second.read_means(between, role=1)) * lead)
        for fit in (first, second):
            left = np.clip(np.searchsorted(x := fit.runs.log_sizes, place, "right") - 1, 0, len(x) - 2)
            if fit.sudden[left] > SUDDEN * abs(differences[j] - differences[i]):
                around = np.exp(x[left : left + 2]).tolist()
        if j == len(sizes) - 1:
            later = np.maximum(find_change(grid, beyond * lead), sizes[-1])
            places = np.where(draws[:, orders[-1]].mean(1) * lead > 0, later, places)
    else:  # where the laws put the last clear leader behind for good, but not before the end of the data
        lead = np.sign(differences[clear[-1]])
        path = np.concatenate([sizes, grid[1:]])[clear[-1] :]
        fitted = (first.log_errors(path) - second.log_errors(path)) * lead
        place, ahead = None, lead < 0
        if fitted[-1] < 0 and len(crossed := np.flatnonzero(fitted[:-1] * fitted[1:] < 0)):
            i = crossed[-1]
            place = max(path[i] + (path[i + 1] - path[i]) * fitted[i] / (fitted[i] - fitted[i + 1]), grid[0])
        within = first.draw_log_errors(sizes) - second.draw_log_errors(sizes, role=1)
        places = np.maximum(find_change(path, np.hstack([within, beyond[:, 1:]])[:, clear[-1] :] * lead), grid[0])
    places = np.array(places)
    share = float((has_one := np.isfinite(places)).mean())
    if hold:
        none = replace(none, p_none=float(((places > sizes[-1] + np.log(NEAR)) & ~turned_early).mean()))
    if place is None or share < LIKELY:
        return replace(none, reason=f"only {share:.0%} of the drawn curves cross within {REACH:g}x of the data")
    unsure = share < sure or any(len(fit.runs.counts) < ENOUGH for fit in scattered)
    claim, drawn = ("likely", places[has_one]) if unsure else ("sure", places)
    low, high = np.exp(np.quantile(drawn, [left_out, 1 - left_out], method="inverted_cdf")).tolist()
    size = float(np.exp(place))
    return replace(
        none,
        size=size,
        low=low,
        high=high if np.isfinite(high) else None,
        inside=size < 0.999 * none.largest,
        claim=claim,
        below=None,  # the order after the crossover is known
        ahead=int(ahead),
        around=None if around is None or high == np.inf else (min(low, around[0]), max(high, around[1])),
    )


def find_change(grid: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Find where each line (B, G) becomes negative for good; infinity where it is positive at the end."""
    places = np.full(len(lines), np.inf)
    turned = lines[:, -1] <= 0
    places[turned] = find_turn(grid, lines[turned])
    return places


def find_turn(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Find where each line of values (B, N), positive at first, turns negative for good.

    Return the start plus the total length where the line is positive; with one change of sign this is that change. Of
    several changes all but one are noise, and the last would be late on average.
    """
    before, after = values[:, :-1], values[:, 1:]
    rise = np.maximum(before, 0) + np.maximum(after, 0)
    total = np.abs(before) + np.abs(after)
    share = np.where(before * after >= 0, (before + after > 0).astype(float), rise / np.where(total > 0, total, 1))
    return places[0] + (share * np.diff(places)).sum(1)


def describe_crossover(crossing: Crossover, first: str = "", second: str = "", unit: str = "training examples") -> str:
    """Describe a crossover: `A passes B at 9,400 training examples (90% interval 7,100 to 12,000)`.

    Without names, write `the curves cross at ...`.
    """
    if crossing.size is None:
        text = f"no crossover is seen: {crossing.reason}"
        if crossing.reason == OPEN_ORDER:
            text = f"no crossover is claimed: {crossing.reason}"
        elif crossing.below is not None:
            text = f"a crossover, if any, is below {rounded(crossing.below)}"
        elif crossing.p_none is not None:
            share = f"{crossing.p_none:.0%}" if crossing.p_none < 0.995 else "above 99%"
            text = f"no crossover is seen within {NEAR:g}x of the data (probability of none: {share})"
        return f"{first} and {second}: {text}" if first else text
    ahead, behind = (second, first) if crossing.ahead else (first, second)
    low, high = rounded(crossing.low), crossing.high and rounded(crossing.high)
    by = ", by the curves' scatter" if crossing.scattered else ""
    if crossing.claim == "likely":
        what = f"{ahead} passes {behind}" if first else "the curves cross"
        came = "" if crossing.scattered else f" ({CAME_TRUE:.0%} of such claims came true)"
        return f"possible: {what} between {low} and {high} {unit}{came}{by}"
    verb = f"{ahead} passes {behind}" if first else "the curves cross"
    if crossing.around:
        low, high = map(rounded, crossing.around)
        return f"{verb} between {low} and {high} {unit}, near {rounded(crossing.size)}{by}"
    end = f"to {high}" if high else f"up, open within {REACH:g}x of the data"
    where = "" if crossing.inside else f", extrapolated by a factor of {significant(crossing.factor, 2)}"
    if crossing.factor > NEAR:
        where += f", not within {NEAR:g}x of the data"
    return f"{verb} at {rounded(crossing.size)} {unit} (90% interval {low} {end}){where}{by}"


def rounded(size: float) -> str:
    """Format a size to two digits, as no more are known: `9,400`."""
    return amount(float(f"{size:.2g}"))


@dataclass(frozen=True)
class Multiplier:
    """How many times the second model's data the first model needs for an error, with a 90% interval.

    `ratio` is None, and `reason` says why, if a law does not hold, if a model reaches the error below its smallest size
    or beyond ten times its largest, or if fewer than nine tenths of the draws reach it. `high` is None if the first
    model may never reach the error, `low` if the second may not.
    """

    error: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def data_multiplier(first: Fit, second: Fit, error: float | None = None, size: float | None = None) -> Multiplier:
    """Divide the data that the first model needs for `error`, or for the second's error at `size`, by the second's.

    The default error is one that both reach inside their data: the higher of the two at half their largest sizes.
    Raises UserError.
    """
    given = {name: value for name, value in (("error", error), ("size", size)) if value is not None}
    if len(given) > 1 or not all(0 < value < np.inf for value in given.values()):
        raise UserError(f"{', '.join(f'{name}={value}' for name, value in given.items())}: give one positive number")
    if not (first.holds and second.holds):
        return Multiplier(error, reason="the laws do not fit both well enough")
    if size is not None:
        levels = second.read_means(np.log([size]), role=1)[:, 0]
    elif (error := error or find_common_error(first, second)) is not None:
        levels = np.array([np.log(error)])
    else:
        return Multiplier(reason="they reach no error in common inside their data")
    none = Multiplier(error or float(np.exp(levels[0])))
    if doubt := next((fit.scatter[2] for fit in (first, second) if not fit.runs.repeated and fit.scatter[2]), ""):
        return replace(none, reason=doubt)
    needs = [find_needed(first, levels), np.log(size) if size is not None else find_needed(second, levels, role=1)]
    for name, fit, places in zip(("first", "second"), (first, second), needs, strict=True):
        places, (low, high) = np.atleast_1d(places), fit.runs.log_sizes[[0, -1]]
        if places[0] < low:
            return replace(none, reason=f"the {name} reaches it below its smallest size")
        if places[0] > high + np.log(REACH) or (places < np.inf).mean() < SURE:
            return replace(none, reason=f"the {name} is not seen to reach it within {REACH:g}x of its data")
    with np.errstate(invalid="ignore"):
        ratio, *drawn = needs[0] - needs[1]  # infinite if one never reaches the error, NaN if neither does
    low, high = (
        np.quantile(np.nan_to_num(drawn, nan=worst, neginf=-np.inf, posinf=np.inf), share, method="inverted_cdf")
        for worst, share in ((-np.inf, (1 - COVERAGE) / 2), (np.inf, (1 + COVERAGE) / 2))
    )
    low, high = (float(np.exp(end)) if np.isfinite(end) else None for end in (low, high))
    if low is high is None:
        return replace(none, reason=f"one or the other may not reach it within {REACH:g}x of its data")
    return replace(none, ratio=float(np.exp(ratio)), low=low, high=high)


def find_common_error(first: Fit, second: Fit) -> float | None:
    """Find the higher error of two models at half their largest sizes, in two digits if both reach that."""
    ends_and_half = [fit.runs.log_sizes[[0, -1, -1]] - [0, 0, np.log(2)] for fit in (first, second)]
    errors = np.exp([fit.read_means(sizes)[0] for fit, sizes in zip((first, second), ends_and_half, strict=True)])
    highest, (lowest, error) = errors[:, 0].min(), errors[:, 1:].max(0)
    return next((one for one in (float(f"{error:.2g}"), float(error)) if lowest <= one <= highest), None)


def find_needed(fit: Fit, levels: np.ndarray, role: int = 0) -> np.ndarray:
    """Find the log size at which the error falls to a level, for the curve and its draws: (1 + draws).

    Search up to ten times beyond the data on either side; minus infinity if the size is smaller, infinity if none is.
    """
    x = fit.runs.log_sizes
    grid = np.union1d(x, np.linspace(x[0] - np.log(REACH), x[-1] + np.log(REACH), GRID))
    lines = fit.read_means(grid, role) - levels[:, None]
    first, last = np.searchsorted(grid, x[[0, -1]])
    places = find_turn(grid[first : last + 1], lines[:, first : last + 1])
    for outside, part in ((lines[:, last] > 0, slice(last, None)), (lines[:, first] <= 0, slice(first + 1))):
        places[outside] = find_fall(grid[part], lines[outside, part])
    return places


def find_fall(grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Find where each line (B, G) first falls to 0; minus infinity if it begins below, infinity if nowhere."""
    fallen = values <= 0
    places = np.where(fallen.any(1), -np.inf, np.inf)
    (falls,) = np.nonzero(fallen.any(1) & ~fallen[:, 0])
    i = fallen[falls].argmax(1)
    before, after = values[falls, i - 1], values[falls, i]
    places[falls] = grid[i - 1] + (grid[i] - grid[i - 1]) * before / (before - after)
    return places


def describe_multiplier(found: Multiplier, first: str, second: str, name: str = "error") -> str:
    """Describe a multiplier: `A needs 0.42 (0.31 to 0.55) times the data of B for 5% error`, or why it is unknown."""
    target = f"{name} {significant(found.error)}"
    if name == "error" and found.error and found.error < 1:
        target = f"{significant(100 * found.error, 2)}% error"
    if found.ratio is None:
        return f"{first} and {second}: how many times the data is not known: {found.reason}"
    low, high = (end and significant(end, 2) for end in (found.low, found.high))
    interval = f"{low} to {high}" if low and high else f"{low} or more" if low else f"at most {high}"
    return f"{first} needs {significant(found.ratio, 2)} ({interval}) times the data of {second} for {target}"
