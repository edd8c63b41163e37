"""A figure is an Altair chart with its words; here is the house style of its axes, colours and files.

Importing this module makes the house style Altair's theme.
"""

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
from PIL import Image, PngImagePlugin

from vitlab.config import printable
from vitlab.files import replacing
from vitlab.reports.figures.theme import THEMES, Look

COLOURS = THEMES["light"]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
SYMBOLS = {"triangle": "triangle-up"}
SOLID, DASHED, DOTTED = [1, 0], [6, 3], [2, 3]
SCALE = 2  # pixels of a PNG for one of the SVG
WIDTH, HEIGHT = 560, 320  # of a single chart
COLUMNS = 4  # panels beside each other at most
LETTER, SYMBOL = 6.2, 34  # pixels of a legend's entry: a letter, and all around them
ROOM = 0.25  # of the range of the values: how far bands widen an axis


@dataclass(frozen=True)
class Figure:
    """A chart and its words. `name` is that of its files, `title` says what it shows, `alt` what is to be seen.

    `files` are labels and addresses of its data. Neighbouring figures with a `choice` are views of one on a page, with
    a switch between them.
    """

    name: str
    title: str
    chart: alt.TopLevelMixin
    caption: str = ""
    alt: str = ""
    files: Sequence[tuple[str, str]] = ()
    choice: str = ""


@alt.theme.register("vitlab", enable=True)
def house_style() -> alt.theme.ThemeConfig:
    text = {"labelColor": COLOURS["muted"], "titleColor": COLOURS["muted"], "labelFontSize": 11, "titleFontSize": 12}
    lines = dict.fromkeys(("gridColor", "domainColor", "tickColor"), COLOURS["grid"])
    title = {"color": COLOURS["ink"], "anchor": "start", "fontSize": 12, "fontWeight": 600}
    header = {"labelColor": COLOURS["ink"], "labelAnchor": "start", "labelFontSize": 12, "labelFontWeight": 600}
    return {
        "config": {
            "background": "transparent",
            "font": FONT,
            "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": HEIGHT},
            "axis": {
                **text,
                **lines,
                "titleFontWeight": "normal",
                "labelOverlap": "greedy",
                "grid": True,
                "labelSeparation": 6,
            },
            "legend": {
                **text,
                "labelFontSize": 12,
                "labelColor": COLOURS["ink"],
                "orient": "top",
                "labelLimit": 0,
                "symbolLimit": 0,
            },
            "title": title,
            "header": {**header, "title": None, "labelLimit": 0},
            "facet": {"spacing": 14},
            "point": {"filled": True, "size": 52, "opacity": 1},
            "line": {"strokeWidth": 1.8, "strokeJoin": "round"},
            "area": {"opacity": 1, "fillOpacity": 0.15},  # opacity of a whole mark makes a PNG ten times as slow
            "rule": {"color": COLOURS["muted"], "strokeWidth": 1.4, "strokeDash": [6, 3]},
            "text": {"color": COLOURS["muted"], "fontSize": 11},
            "aria": False,
        }
    }


def band_opacity(models: int) -> float:
    """Of the band of each model, so that the bands of many, one over another, hide neither lines nor points."""
    return min(0.15, 0.6 / models)


RING = {"filled": False, "fill": "transparent", "size": 40, "strokeWidth": 1.2}


def axis(
    kind: Any,
    field: str,
    title: str,
    domain: tuple[float, float] | None = None,
    *,
    log: bool = False,
    percent: bool = False,
    zero: bool = False,
    short: bool = False,
    ticks: Sequence[float] = (),
) -> Any:
    """The encoding `alt.X` or `alt.Y` of a quantity; of a `percent` axis values are shares, a `short` one has 20k.

    Without a `domain` the axis has the range of the data; `ticks` are the values to label.
    """
    if log:
        title = f"{title[:-1]}, log scale)" if title.endswith(")") else f"{title} (log scale)"
    axis = {"title": title, "format": "~%" if percent else "~s" if short else ",~f"}
    scale: dict[str, Any] = (
        {"type": "log", "padding": 8 if kind is alt.X else 16, "nice": False} if log else {"zero": zero}
    )
    if domain:
        scale["domain"] = [*domain]
        ticks = ticks or (list_log_ticks(*domain) if log else ())
    if ticks:
        axis["values"] = [*ticks]
    return kind(f"{field}:Q", scale=alt.Scale(**scale), axis=alt.Axis(**axis))


def of_field(channel: Any, field: str) -> Any:
    """The same axis of another field."""
    other = channel.copy()
    other.shorthand = f"{field}:Q"
    return other


def list_log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a log axis, at least two where the range has them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for rungs in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [float(f"{rung * 10.0**decade:.2g}") for decade in decades for rung in rungs]
        ticks = [tick for tick in ticks if 0.999 * low <= tick <= 1.001 * high]
        if len(ticks) >= 5:
            break
    return ticks


def find_domain(values: Iterable[float], bands: Iterable[float] = (), *, log: bool, percent: bool) -> tuple[float, ...]:
    """The range of values, which the ends of bands widen by at most ROOM either way. Bands are cut there."""
    values, bands = ([v for v in some if v is not None and math.isfinite(v)] for some in (values, bands))
    if not values:
        return (0.1, 1.0)
    to, back = (math.log, math.exp) if log else (float, float)
    low, high = min(values), max(values)
    room = ROOM * (to(high) - to(low))
    bottom = min(low, max(min(bands, default=low), back(to(low) - room)))
    top = max(high, min(max(bands, default=high), back(to(high) + room)))
    return bottom, min(top, 1.0) if percent else top


def by_look(field: str, looks: Mapping[str, Look], *, listed: bool = True) -> dict[str, Any]:
    """The encodings of colour and marker by a field's values, with one legend of both where there are several."""
    names = [*looks]
    entry = SYMBOL + LETTER * max(map(len, names), default=1)
    columns = alt.ExprRef(f"max(1, floor((containerSize()[0] || {WIDTH}) / {entry}))")
    legend = alt.Legend(title=None, columns=columns, symbolOpacity=1) if listed and len(names) > 1 else None
    color = alt.Scale(domain=names, range=[COLOURS[look.colour] for look in looks.values()])
    shape = alt.Scale(domain=names, range=[SYMBOLS.get(look.marker, look.marker) for look in looks.values()])
    return {
        "color": alt.Color(f"{field}:N", scale=color, legend=legend),
        "shape": alt.Shape(f"{field}:N", scale=shape, legend=legend),
    }


def with_legend(field: str, looks: Mapping[str, Look], layers: Sequence[alt.Chart]) -> list[alt.Chart]:
    """The layers, of which a click on an entry of the legend shows that one alone; further clicks add others.

    An empty layer comes first: a legend looks like the first layer that it belongs to.
    """
    if len(looks) < 2:
        return [*layers]
    picked = alt.selection_point(name="picked", fields=[field], bind="legend", toggle="true")
    empty = alt.Chart(name="legend").mark_point().transform_filter("false").encode(**by_look(field, looks))
    return [empty.add_params(picked), *(layer.transform_filter(picked) for layer in layers)]


def panels(chart: alt.LayerChart, field: str, titles: Sequence[str]) -> alt.TopLevelMixin:
    """The chart once for each value of a field, in this order; a single one is as large as other charts."""
    if len(titles) == 1:
        return chart.properties(title=titles[0]) if titles[0] else chart
    facet = alt.Facet(f"{field}:N", sort=[*titles], title=None)
    width, height = (270, 180) if len(titles) == 2 else (200, 170)
    whole = chart.properties(width=width, height=height).facet(facet, columns=min(COLUMNS, len(titles)))
    return whole.resolve_axis(x="independent", y="independent")


def describe(chart: alt.TopLevelMixin, **properties: Any) -> dict[str, Any]:
    """Vega-Lite's description, with the data in place however many they are."""
    with alt.data_transformers.enable("default", max_rows=None):
        return {**chart.to_dict(validate=False), **properties}


def describe_for_page(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The same in the colours of a page, as wide as its place; the page's script fits panels into it."""
    spec = describe(chart)
    data = spec.pop("datasets", {})
    if "facet" not in spec:
        spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    text = json.dumps(spec)
    for key, colour in COLOURS.items():
        text = text.replace(f'"{colour}"', f'"var(--{key})"')
    return {**json.loads(text), "datasets": data}


def save_figure(figure: Figure, folder: str | Path) -> list[Path]:
    """Write `<name>.svg` and `<name>.png` below a folder; gives their paths."""
    import vl_convert

    title = {"text": printable(figure.title), "fontSize": 14, "offset": 8, "anchor": "start"}
    spec = describe(figure.chart, title=title, padding=10, background="white")
    text = json.dumps(spec).replace('"point": "transparent"', '"point": false')  # only a page's can be pointed at
    svg = vl_convert.vegalite_to_svg(text)
    pixels = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=SCALE))).convert("RGB")
    named = PngImagePlugin.PngInfo()
    named.add_itxt("Title", figure.title)
    paths = [Path(folder) / f"{figure.name}.{suffix}" for suffix in ("svg", "png")]
    with replacing(paths[0]) as file:
        file.write(svg.encode())
    with replacing(paths[1]) as file:
        pixels.save(file, format="PNG", pnginfo=named)
    return paths
