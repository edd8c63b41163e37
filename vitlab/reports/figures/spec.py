"""A figure as data, for `static` (matplotlib: SVG and PNG) and `interactive` (plotly: HTML and W&B) alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
    opacity: float = 1.0
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
        by_label: dict[str, Series] = {}
        for series in self.series:
            if series.legend:
                by_label.setdefault(series.label, series)
        return list(by_label.values())


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
