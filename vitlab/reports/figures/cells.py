"""Tables of values as shaded cells and small pictures side by side, as charts.

Above VECTORS cells the table is a picture with axes around it: as single marks they would be megabytes.
"""

import base64
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from PIL import Image

from vitlab.config import printable
from vitlab.reports.figures.figure import COLOURS

VECTORS = 2500
LARGE, WIDEST = 30, 760  # pixels: the side of a cell at most, and of all of them together
LABEL_SIDE, TEXT_SIDE = 9, 20  # pixels: the least side that a label, and a text in a cell, has room in
LETTERS = 20  # of a class's name
SHARES = ([0.0, 1 / 9, 4 / 9, 1.0], ["#ffffff", "#a8cbec", COLOURS["vit"], "#05325b"])  # a few percent are seen
DARK = 0.3  # of the shares: above it a text is white
TILE, SPACE = 84, 4  # pixels: the longer side of a tile, and between two
# viridis (Smith and van der Walt, 2015) at even steps, read by the colour-blind too
STEPS = (
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26818e 21908c 1f9f88 28ae80 3ebc74 5dc963 82d34c abdc32 d5e21a"
)
ANCHORS = np.array([list(bytes.fromhex(step)) for step in f"{STEPS} fde725".split()])
SHADES = np.stack([np.interp(np.linspace(0, 1, 256), np.linspace(0, 1, len(ANCHORS)), of) for of in ANCHORS.T], axis=1)


def draw_cells(
    values: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    x: str,
    y: str,
    scale: str = "",
    ends: tuple[float, float] | None = None,
    texts: Sequence[Sequence[str]] = (),
) -> alt.LayerChart:
    """Square cells, named as far as the labels have room. `texts` are written into them where they are large.

    Shares in 0..1, whose shade goes with their square root, unless `ends` are the values of the lightest and the
    darkest shade. None has no shade. `scale` says what a shade means.
    """
    side = min(LARGE, WIDEST / max(len(rows), len(columns), 1))
    every = max(1, math.ceil(LABEL_SIDE / side))
    domain, shades = SHARES if ends is None else (list(np.linspace(*ends, 4)), SHARES[1])
    ticks = {"values": [0, 0.05, 0.2, 0.5, 1], "format": "~%"} if ends is None else {"format": "~g"}
    color = shade(domain, shades, scale, 150, **ticks)
    places = {"x": place_cells(alt.X, x, columns, every, labelAngle=-90), "y": place_cells(alt.Y, y, rows, every)}
    size = {"width": side * len(columns), "height": side * len(rows)}
    if len(rows) * len(columns) > VECTORS:
        return frame_picture(shade_table(values, domain, shades), places, color, domain, size)
    cells = [
        (i, j, value, texts[i][j] if texts else "")
        for i, line in enumerate(values)
        for j, value in enumerate(line)
        if value is not None
    ]
    base = alt.Chart(pd.DataFrame(cells, columns=["row", "column", "value", "text"])).encode(**places)
    layers = [base.mark_rect(stroke=COLOURS["grid"], strokeWidth=0.4).encode(color=color).properties(name="cells")]
    if texts and side >= TEXT_SIDE:
        dark = domain[0] + DARK * (domain[-1] - domain[0])
        ink = alt.condition(f"datum.value > {dark}", alt.value("white"), alt.value(COLOURS["ink"]))
        layers.append(base.mark_text(fontSize=9).encode(text="text:N", color=ink))
    return alt.layer(*layers).properties(**size)


def shade(domain: Sequence[float], shades: Sequence[str], title: str, length: float, **legend: Any) -> alt.Color:
    """The encoding of a value's shade; its legend is left out where it has no title."""
    scale = alt.Scale(domain=[*domain], range=[*shades], clamp=True, interpolate="rgb")
    shown = alt.Legend(title=title, orient="right", gradientLength=length, **legend) if title else None
    return alt.Color("value:Q", scale=scale, legend=shown)


def place_cells(channel: Any, title: str, names: Sequence[str], every: int, **options: Any) -> Any:
    """The encoding of rows or columns by their place, with the names of every so many as labels."""
    labels = [shorten(name) for name in names]
    bare = dict.fromkeys(("labelOverlap", "grid", "ticks", "domain"), False)
    axis = alt.Axis(
        title=title or None,
        values=list(range(0, len(names), every)),
        labelExpr=f"{json.dumps(labels)}[datum.value]",
        labelLimit=0,
        **bare,
        **options,
    )
    field = "row" if channel is alt.Y else "column"
    return channel(f"{field}:O", scale=alt.Scale(domain=list(range(len(names))), padding=0), axis=axis)


def shorten(name: str) -> str:
    """A class's name as a label."""
    name = printable(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def shade_table(values: Sequence[Sequence[float | None]], domain: Sequence[float], shades: Sequence[str]) -> np.ndarray:
    """uint8 (rows, columns, 3); white where there is no value."""
    table = np.array([[math.nan if value is None else value for value in line] for line in values], dtype=float)
    colours = np.array([list(bytes.fromhex(shade[1:])) for shade in shades], dtype=float)
    shaded = np.stack([np.interp(table, domain, channel) for channel in colours.T], axis=-1)
    return np.where(np.isnan(table)[..., None], 255, shaded).round().astype(np.uint8)


def frame_picture(
    pixels: np.ndarray, places: dict[str, Any], color: alt.Color, domain: Sequence[float], size: dict[str, float]
) -> alt.LayerChart:
    """An image uint8 (Y, X, 3) that fills its axes, each pixel a sharp rectangle."""
    factor = max(1, math.ceil(2 * max(size["width"] / pixels.shape[1], size["height"] / pixels.shape[0])))
    large = Image.fromarray(pixels.repeat(factor, axis=0).repeat(factor, axis=1))
    file = io.BytesIO()
    large.quantize(256, dither=Image.Dither.NONE).save(file, format="PNG", optimize=True)
    address = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    corners = pd.DataFrame({"row": [0, 0], "column": [0, 0], "value": [domain[0], domain[-1]]})
    picture = alt.Chart(pd.DataFrame({"url": [address]}), name="picture").mark_image(
        **size, align="left", baseline="top", aspect=False
    )
    axes = alt.Chart(corners, name="axes").mark_rect(opacity=0).encode(**places, color=color)
    picture = picture.encode(x=alt.value(0), y=alt.value(0), url="url:N")
    return alt.layer(axes, picture).properties(**size)


def draw_tiles(
    images: np.ndarray,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    *,
    x: str = "",
    y: str = "",
    scale: str = "",
    ends: tuple[float, float] = (0.0, 1.0),
) -> alt.LayerChart:
    """Small pictures uint8 (rows, columns, Y, X, 3) side by side, with the labels of rows and columns.

    `scale` says what a shade means, `ends` are the values of the darkest and the brightest; without it none is shown.
    """
    down, across, tall, wide = images.shape[:4]
    unit = min(TILE / max(tall, wide), WIDEST / (across * wide), WIDEST / (down * tall))
    factor = max(1, round(2 * unit))
    gap = max(1, round(SPACE * factor / unit / 2)) if unit * min(tall, wide) > 3 * SPACE else factor
    large = images.repeat(factor, axis=2).repeat(factor, axis=3)
    large = np.pad(large, ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0)), constant_values=255)
    sheet = large.swapaxes(1, 2).reshape(down * large.shape[2], across * large.shape[3], 3)
    size = {"width": sheet.shape[1] * unit / factor, "height": sheet.shape[0] * unit / factor}
    every = [max(1, math.ceil(16 / side)) for side in (tall * unit, wide * unit / 2)]
    places = {
        "x": place_cells(alt.X, x, list(columns) or [""] * across, every[1], labelAngle=0, orient="top"),
        "y": place_cells(alt.Y, y, list(rows) or [""] * down, every[0]),
    }
    shades = [f"#{bytes(anchor.tolist()).hex()}" for anchor in ANCHORS]
    domain = np.linspace(*ends, len(shades)).tolist()
    return frame_picture(
        sheet, places, shade(domain, shades, scale, min(150, size["height"]), format="~g"), domain, size
    )


def shade_values(values: np.ndarray, ends: tuple[float, float] | None = None) -> np.ndarray:
    """uint8 (..., 3) of values (Y, X) or more; without `ends` from their least to their largest."""
    return SHADES[(255 * scale_values(values, ends)).round().astype(int)].round().astype(np.uint8)


def scale_values(values: np.ndarray, ends: tuple[float, float] | None = None) -> np.ndarray:
    """Values as shares in 0..1 between the ends, by default their least and their largest; equal ones are 0."""
    low, high = (float(values.min()), float(values.max())) if ends is None else ends
    return np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values, dtype=float)


def to_pixels(image: np.ndarray) -> np.ndarray:
    """uint8 (Y, X, 3) of an image uint8 (C, Y, X); of other than 3 channels their mean, in grey."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True).round().astype(np.uint8), 3, axis=0)
    return np.moveaxis(image, 0, -1)


def wrap_images(images: Sequence[np.ndarray], most: int) -> np.ndarray:
    """Pictures (Y, X, 3) as (rows, columns, Y, X, 3), as even rows as can be; missing ones are white."""
    rows = -(-len(images) // most)
    columns = -(-len(images) // rows)
    missing = [np.full_like(images[0], 255)] * (rows * columns - len(images))
    return np.stack([*images, *missing]).reshape(rows, columns, *images[0].shape)
