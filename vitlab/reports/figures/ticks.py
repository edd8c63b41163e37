"""Where the ticks of an axis stand and what they say, alike in every backend."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from vitlab.formatting import PREFIXES
from vitlab.reports.figures.spec import Axis


def tick_text(value: float, axis: Axis) -> str:
    """`32,000`, `85%` for a share, `10k` where the numbers are long, `5M`, `20T`."""
    if axis.percent:
        return f"{100 * value:.4g}%"
    if abs(value) >= 1e6:
        step = min(len(PREFIXES) - 1, floor(log10(abs(value)) / 3 + 1e-9))
        return f"{value / 1000**step:,g}{PREFIXES[step]}"
    return f"{value / 1e3:g}k" if axis.whole and abs(value) >= 1e4 else f"{value:,g}"


def spaced(ticks: Sequence[float], most: int, log: bool) -> list[float]:
    """The ticks to label when there is room for `most`: always the two ends, none closer than a share of the axis."""
    if not ticks:
        return []
    place = [log10(t) if log else t for t in sorted(ticks)]
    least = (place[-1] - place[0]) / max(1, most)
    places: list[int] = [0]
    for i in range(1, len(place)):
        if place[i] - place[places[-1]] >= least * 0.999:
            places.append(i)
    if places[-1] != len(place) - 1:
        # the last tick matters more than the one that stands in its way
        if len(places) > 1 and place[-1] - place[places[-1]] < least:
            places.pop()
        places.append(len(place) - 1)
    return [sorted(ticks)[i] for i in places]


def log_ticks(values: Sequence[float], most: int = 7) -> tuple[float, ...]:
    """Round numbers for a log axis of positive values: the finest ladder of them that has no more than `most`."""
    if not values:
        return ()
    low, high = min(values), max(values)
    ends = tuple(dict.fromkeys(float(f"{value:.2g}") for value in (low, high)))
    if high < 1.01 * low:
        return ends
    ticks: tuple[float, ...] = ()
    for ladder in even_steps(low, high) if high < 4 * low else decade_steps(low, high):
        ticks = tuple(tick for tick in ladder if 0.999 * low <= tick <= 1.001 * high)
        if len(ticks) <= most:
            break
    return ticks if len(ticks) >= 2 else ends


def even_steps(low: float, high: float) -> Iterator[list[float]]:
    """Multiples of 1, 2 and 5 of a power of ten, the finest first: for a range so short that they look even."""
    smallest = floor(log10(high - low)) - 1
    for power in range(smallest, smallest + 3):
        for factor in (1, 2, 5):
            step = factor * 10.0**power
            yield [i * step for i in range(floor(low / step), ceil(high / step) + 1)]


def decade_steps(low: float, high: float) -> Iterator[list[float]]:
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for rungs in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        yield [rung * 10.0**decade for decade in decades for rung in rungs]
