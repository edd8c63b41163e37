"""A heat map drawn by matplotlib: readable with ten classes and with a hundred."""

import math
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from vitlab.config import printable
from vitlab.reports.colours import THEMES
from vitlab.reports.figure import HeatMap

COLOURS = THEMES["light"]
SHADES = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#a8cbec", COLOURS["vit"], "#05325b"])
SMALL, LARGE = 0.1, 0.38  # inches: the side of a cell where there are many, and where there are few
WIDEST = 10.0  # inches: of the cells together, as long as they keep their smallest side
TEXT_SIDE = 0.25  # inches: the smallest cell that holds a text
LETTERS = 20  # of a class's name
GAMMA = 0.5  # a few percent are seen


def draw(figure: HeatMap) -> Canvas:
    """Square cells with every row and column named; a share's shade goes with its square root."""
    across, down = len(figure.columns), len(figure.rows)
    side = min(LARGE, max(SMALL, WIDEST / max(across, down)))
    size = min(8.0, max(4.5, 72 * side * 0.62))  # points: labels of neighbouring cells must not touch
    rows, columns = [short(name) for name in figure.rows], [short(name) for name in figure.columns]
    left, below = (0.75 * size / 72 * max(map(len, names)) + 0.5 for names in (rows, columns))
    width, height = max(3.6, left + across * side + 1.1), 0.5 + max(1.2, down * side) + below
    canvas = Canvas(figsize=(width, height))
    FigureCanvasAgg(canvas)
    canvas.text(0.1 / width, 1 - 0.1 / height, figure.title, va="top", fontsize=10.5, fontweight="bold")
    axes = canvas.add_axes((left / width, below / height, across * side / width, down * side / height))
    values = [[math.nan if value is None else value for value in row] for row in figure.values]
    norm = PowerNorm(GAMMA, vmin=0, vmax=1)
    drawn = axes.pcolormesh(
        values, cmap=SHADES, norm=norm, edgecolors=COLOURS["grid"], linewidth=0.4 if side > SMALL else 0.15
    )
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xticks([place + 0.5 for place in range(across)], columns, rotation=90, fontsize=size)
    axes.set_yticks([place + 0.5 for place in range(down)], rows, fontsize=size)
    axes.tick_params(length=0, pad=3)
    axes.set_xlabel(figure.x)
    axes.set_ylabel(figure.y)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if figure.texts and side >= TEXT_SIDE:
        write(axes, figure.texts, values)
    bar_height = min(2.0, down * side)
    bar = canvas.add_axes(
        (
            (left + across * side + 0.15) / width,
            (below + down * side - bar_height) / height,
            0.12 / width,
            bar_height / height,
        )
    )
    canvas.colorbar(drawn, cax=bar, label=figure.scale, ticks=[0, 0.05, 0.2, 0.5, 1])
    bar.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    bar.grid(False)
    return canvas


def write(axes: object, texts: Sequence[Sequence[str]], values: Sequence[Sequence[float]]) -> None:
    """Each text in its cell, in white where the cell is dark."""
    for row, (line, shares) in enumerate(zip(texts, values, strict=True)):
        for column, (text, share) in enumerate(zip(line, shares, strict=True)):
            colour = "white" if share > 0.3 else COLOURS["ink"]
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour)


def short(name: str) -> str:
    """A class's name as a label."""
    name = printable(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
