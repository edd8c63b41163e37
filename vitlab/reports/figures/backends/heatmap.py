"""A heat map drawn by matplotlib: readable with ten classes and with a hundred."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from vitlab.config import printable
from vitlab.reports.figures.spec import HeatMap
from vitlab.reports.figures.theme import THEMES

COLOURS = THEMES["light"]
SHADES = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#a8cbec", COLOURS["vit"], "#05325b"])
LARGE, WIDEST = 0.38, 10.0  # inches: the side of a cell at most, and of all of them together
LABEL_SIDE, TEXT_SIDE = 0.085, 0.25  # inches: the least side that a label, and a text in a cell, has room in
TITLE, BAR, RIGHT = 0.5, 2.1, 1.1  # inches: height of the title and of the scale, width of what is right of the cells
VECTORS = 2500  # cells that are drawn one by one in an SVG; more are a picture in it
LETTERS = 20  # of a class's name
GAMMA = 0.5  # a few percent are seen
DARK = 0.55  # of the shades: above it a text is white


def draw(figure: HeatMap) -> Canvas:
    """Square cells, named as far as the labels have room. A share's shade goes with its square root."""
    across, down = len(figure.columns), len(figure.rows)
    side = min(LARGE, WIDEST / max(across, down))
    every = math.ceil(LABEL_SIDE / side)
    size = min(8.0, 72 * side * every * 0.62)  # points: neighbouring labels must not touch
    rows, columns = ([short(name) for name in names[::every]] for names in (figure.rows, figure.columns))
    left, below = (0.66 * size / 72 * max(map(len, names)) + 0.4 for names in (rows, columns))
    below = max(below, BAR - down * side + 0.1)
    width, height = max(0.2 + 0.092 * len(figure.title), left + across * side + RIGHT), TITLE + down * side + below
    canvas = Canvas(figsize=(width, height))
    FigureCanvasAgg(canvas)
    canvas.text(0.1 / width, 1 - 0.1 / height, figure.title, va="top", fontsize=10.5, fontweight="bold")
    axes = canvas.add_axes((left / width, below / height, across * side / width, down * side / height))
    values = [[math.nan if value is None else value for value in row] for row in figure.values]
    norm = PowerNorm(GAMMA, vmin=0, vmax=1) if figure.ends is None else Normalize(*figure.ends)
    drawn = axes.pcolormesh(
        values,
        cmap=SHADES,
        norm=norm,
        edgecolors=COLOURS["grid"] if every == 1 else "none",
        linewidth=min(0.4, 2 * side),
        rasterized=across * down > VECTORS,
    )
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xticks([place + 0.5 for place in range(0, across, every)], columns, rotation=90, fontsize=size)
    axes.set_yticks([place + 0.5 for place in range(0, down, every)], rows, fontsize=size)
    axes.tick_params(length=0, pad=3)
    axes.set_xlabel(figure.x)
    axes.set_ylabel(figure.y)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if figure.texts and side >= TEXT_SIDE:
        write(axes, figure.texts, values, norm)
    bar_left, bar_below = left + across * side + 0.15, below + down * side - BAR
    bar = canvas.add_axes((bar_left / width, bar_below / height, 0.12 / width, BAR / height))
    shown = canvas.colorbar(drawn, cax=bar, label=figure.scale)
    if figure.ends is None:
        shown.set_ticks([0, 0.05, 0.2, 0.5, 1])
        bar.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    bar.grid(False)
    return canvas


def write(axes: Axes, texts: Sequence[Sequence[str]], values: Sequence[Sequence[float]], norm: Normalize) -> None:
    """Each text in its cell, in white where the cell is dark."""
    for row, (line, shades) in enumerate(zip(texts, norm(values).tolist(), strict=True)):
        for column, (text, shade) in enumerate(zip(line, shades, strict=True)):
            colour = "white" if shade > DARK else COLOURS["ink"]
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour)


def short(name: str) -> str:
    """A class's name as a label."""
    name = printable(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
