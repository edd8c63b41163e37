"""A figure as data, for `static` (matplotlib: SVG and PNG) and `interactive` (plotly: HTML and W&B) alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from vitlab.formatting import PREFIXES

# rings: open points, for what stands behind; the last two: the labels as text at the points, and nothing else
Style = Literal["line", "points", "line+points", "rings", "text above", "text below"]


@dataclass(frozen=True)
class Axis:
    """`ticks` are the values to label; empty: round numbers of the backend's choice."""

    label: str  # with the unit
    log: bool = False
    percent: bool = False  # values are shares in 0..1, shown as percent
    from_zero: bool = False
    whole: bool = False  # large whole numbers: 10k rather than 10,000
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """One curve or cloud of points. x, y and, when given, low, high, hover and links have one length.

    A y that is None is a gap. `low` and `high` bound a band. `links` are addresses relative to the study folder.
    A long curve has one `note` and one `link` for all of its points: a text for each would make a page heavy.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour_key: str
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    style: Style = "line+points"
    marker: str = "circle"
    dash: str = "solid"
    width: float = 2.0  # of the line, in pixels of the page
    hover: Sequence[str] = ()
    links: Sequence[str] = ()
    note: str = ""  # shown with x and y of a point, where there is no hover
    link: str = ""
    texts: Sequence[str] = ()  # of the two styles that are text
    follows: str = ""  # label of the series that it is shown and hidden with; empty: its own
    legend: bool = True  # the same label in several panels is listed once
    model: str = ""  # what a chooser of models shows or hides

    @property
    def has_band(self) -> bool:
        return any(value is not None for value in self.low)


@dataclass(frozen=True)
class Panel:
    series: tuple[Series, ...]
    title: str = ""
    texts: tuple[tuple[float, float, str], ...] = ()  # x, y and what stands there


@dataclass(frozen=True)
class Figure:
    """One or more panels that share their axes."""

    name: str  # of its files, without a suffix
    title: str  # says what it shows
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    alt: str = ""  # the text alternative: what is to be seen, in a sentence or two

    @property
    def series(self) -> list[Series]:
        return [series for panel in self.panels for series in panel.series]

    @property
    def columns(self) -> int:
        """Panels beside each other on a wide page."""
        return min(4, len(self.panels))

    def rows(self, columns: int) -> int:
        return -(-len(self.panels) // columns)

    def legend(self) -> list[Series]:
        """The series to list, one per label."""
        found: dict[str, Series] = {}
        for series in self.series:
            if series.legend:
                found.setdefault(series.label, series)
        return list(found.values())


@dataclass(frozen=True)
class HeatMap:
    """A table of values as shaded cells. `texts` are written into the cells where there is room for them.

    Shares in 0..1, unless `ends` are the values of the lightest and the darkest shade.
    """

    name: str
    title: str
    x: str  # what the columns are
    y: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]  # None: no shade
    texts: Sequence[Sequence[str]] = ()
    scale: str = ""  # what a shade means
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Tiles:
    """Small pictures side by side, uint8 (rows, columns, Y, X, 3). The labels of rows and columns may be empty."""

    name: str
    title: str
    images: np.ndarray
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    x: str = ""  # what the columns are
    y: str = ""
    scale: str = ""  # what a shade means; empty: no scale is drawn
    ends: tuple[float, float] = (0.0, 1.0)  # values of the darkest and the brightest shade


Drawing = Figure | HeatMap | Tiles


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
    kept: list[int] = [0]
    for i in range(1, len(place)):
        if place[i] - place[kept[-1]] >= least * 0.999:
            kept.append(i)
    if kept[-1] != len(place) - 1:
        # the last tick matters more than the one that stands in its way
        if len(kept) > 1 and place[-1] - place[kept[-1]] < least:
            kept.pop()
        kept.append(len(place) - 1)
    return [sorted(ticks)[i] for i in kept]


def log_ticks(values: Sequence[float], most: int = 7) -> tuple[float, ...]:
    """Round numbers for a log axis of positive values: the finest ladder of them that has no more than `most`."""
    if not values:
        return ()
    low, high = min(values), max(values)
    ends = tuple(dict.fromkeys(float(f"{value:.2g}") for value in (low, high)))
    if high < 1.01 * low:
        return ends
    found: tuple[float, ...] = ()
    for ladder in even_steps(low, high) if high < 4 * low else decade_steps(low, high):
        found = tuple(tick for tick in ladder if 0.999 * low <= tick <= 1.001 * high)
        if len(found) <= most:
            break
    return found if len(found) >= 2 else ends


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
