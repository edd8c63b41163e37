"""A figure as SVG and PNG, through matplotlib's object interface: no display, no global state left behind."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from vitlab.config import printable
from vitlab.files import replacing
from vitlab.reports.figures.backends import heatmap, image_grid
from vitlab.reports.figures.spec import Axis, Drawing, Figure, HeatMap, Series, Tiles
from vitlab.reports.figures.theme import THEMES
from vitlab.reports.figures.ticks import spaced, tick_text

DPI = 200
TITLE, LEGEND, EDGE = 0.36, 0.2, 0.1  # inches: height of the title, of a row of the legend, left margin
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "triangle-down": "v"}
DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.2)),
    "dashdot": (0, (6, 2, 1, 2)),
    "longdash": (0, (9, 3)),
}
COLOURS = THEMES["light"]
RC = {
    "font.family": "DejaVu Sans",  # matplotlib's own: the same file on every machine
    "font.size": 8.5,
    "text.parse_math": False,  # a name with two dollar signs is not a formula
    "text.color": COLOURS["ink"],
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.7,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.6,
    "svg.fonttype": "none",  # text stays text: it can be searched and edited
    "svg.hashsalt": "vitlab",  # the same figure gives the same file
}


def save(figure: Drawing, folder: str | Path) -> list[Path]:
    """Write `<name>.svg` and `<name>.png` below a folder; gives their paths."""
    paths = [Path(folder) / f"{figure.name}.{suffix}" for suffix in ("svg", "png")]
    for path, content in zip(paths, (svg_bytes(figure), png_bytes(figure)), strict=True):
        with replacing(path) as file:
            file.write(content)
    return paths


def svg_bytes(figure: Drawing) -> bytes:
    return rendered(figure, "svg", metadata={"Date": None, "Creator": "vitlab", "Title": figure.title})


def png_bytes(figure: Drawing) -> bytes:
    return rendered(figure, "png", dpi=DPI, metadata={"Software": None, "Title": figure.title})


def rendered(figure: Drawing, suffix: str, **options: Any) -> bytes:
    content = io.BytesIO()
    with matplotlib.rc_context(RC):
        by_type = {HeatMap: heatmap.draw, Tiles: image_grid.draw}
        canvas = by_type.get(type(figure), draw)(figure)
        canvas.savefig(content, format=suffix, facecolor="white", **options)
    return content.getvalue()


def draw(figure: Figure) -> Canvas:
    """The panels in a grid, the title and the legend above them, left-aligned."""
    columns = figure.columns or 1
    rows = figure.rows(columns) or 1
    single = len(figure.panels) <= 1
    listed = figure.legend() if len(figure.legend()) > 1 else []
    width, body = (6.8, 3.6) if single else (1.2 + 2.1 * columns, 0.4 + 2.0 * rows)
    longest = max((len(entry.label) for entry in listed), default=0)
    across = max(1, min(len(listed), int(width / (0.55 + 0.068 * longest))))  # inches of a swatch and of a letter
    above = TITLE + LEGEND * -(-len(listed) // across)
    height = body + above
    canvas = Canvas(figsize=(width, height), layout="constrained")
    canvas.get_layout_engine().set(rect=(0, 0, 1, 1 - above / height), w_pad=0.08, h_pad=0.06)
    FigureCanvasAgg(canvas)
    size = 10.5 * min(1, width / (2 * EDGE + 0.092 * len(figure.title)))  # points: a long title fits
    canvas.text(EDGE / width, 1 - 0.1 / height, figure.title, va="top", fontsize=size, fontweight="bold")
    if listed:
        corner = ((EDGE - 0.06) / width, 1 - (TITLE - 0.05) / height)
        handles, labels = [handle(entry, fine=not single) for entry in listed], [entry.label for entry in listed]
        lines = any("line" in entry.style for entry in listed)
        canvas.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=corner,
            ncols=across,
            borderaxespad=0,
            handlelength=None if lines else 1.0,  # a marker in the middle of a line's room is nearer to the next label
        )
    grid = canvas.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for i, axes in enumerate(grid.flat):
        if i >= len(figure.panels):
            axes.set_axis_off()
            continue
        axes.set_title(figure.panels[i].title)
        for series in figure.panels[i].series:
            add(axes, series, fine=not single)
        for x, y, text in figure.panels[i].texts:
            behind = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
            axes.text(x, y, printable(text), ha="center", va="center", fontweight="bold", bbox=behind)
        if i + columns >= len(figure.panels):
            axes.set_xlabel(figure.x.label)
            axes.tick_params(labelbottom=True)
        if i % columns == 0:
            axes.set_ylabel(figure.y.label)
    for axes in grid.flat[: len(figure.panels)]:
        scale(axes, axes.xaxis, figure.x, most=8 if single else 4)
        scale(axes, axes.yaxis, figure.y, most=8)
    return canvas


def add(axes: Axes, series: Series, fine: bool) -> None:
    """One Line2D per series, and a band below it when it has one."""
    x, y = list(series.x), gapped(series.y)
    if series.has_band:
        low, high = gapped(series.low), gapped(series.high)
        axes.fill_between(x, low, high, color=COLOURS[series.colour_key], alpha=0.15, linewidth=0)
    axes.add_line(handle(series, x, y, fine=fine))
    above = series.style == "text above"
    if series.texts:
        axes.margins(y=0.09)  # room between the outermost points and the frame
    for place, text in zip(zip(x, y, strict=True), series.texts, strict=False):
        axes.annotate(
            text,
            place,
            xytext=(0, 4 if above else -4),  # points
            textcoords="offset points",
            horizontalalignment="center",
            verticalalignment="bottom" if above else "top",
            color=COLOURS["muted"],
            fontsize=8,
        )
    axes.autoscale_view()


def gapped(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def handle(series: Series, x: Sequence[float] = (), y: Sequence[float] = (), *, fine: bool) -> Line2D:
    """The line as drawn, or without coordinates as listed in the legend; `fine` markers for small panels."""
    colour = COLOURS[series.colour_key]
    rings = series.style == "rings"
    return Line2D(
        x,
        y,
        color=colour,
        alpha=series.opacity,
        linewidth=0.75 * series.width,  # pixels of the page are 1/96 inch, points 1/72
        linestyle=DASHES[series.dash] if "line" in series.style else "none",
        marker="none" if series.style == "line" or series.texts else MARKERS[series.marker],
        markersize=4.0 if fine else 5.2,
        markerfacecolor="none" if rings else colour,
        markeredgecolor=colour if rings else "white",
        markeredgewidth=0.8 if rings else 0.5,
    )


def scale(axes: Axes, side: Any, axis: Axis, most: int) -> None:
    """Scale, ticks and their text."""
    set_scale, set_limits = (axes.set_xscale, axes.set_xlim) if side is axes.xaxis else (axes.set_yscale, axes.set_ylim)
    if axis.log:
        set_scale("log")
    if axis.from_zero:
        # a margin of the whole axis, not of where the values lie on it: else points at the top are cut
        highest, top = side.get_data_interval()[1], side.get_view_interval()[1]
        set_limits(0, max(top, 1.05 * highest))
    if axis.ticks:
        side.set_major_locator(FixedLocator(spaced(axis.ticks, most, axis.log)))
    elif not axis.log:
        side.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    side.set_minor_locator(NullLocator())
    side.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, axis)))
