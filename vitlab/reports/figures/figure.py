"""A figure: one Altair description, for the pages, for SVG and PNG files and for W&B.

Most figures are points that `draw_curves` turns into a chart in the house style; any other Altair chart will do too.
"""

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import altair as alt
from PIL import Image, PngImagePlugin

from vitlab.config import printable
from vitlab.files import replacing
from vitlab.reports.figures.theme import THEMES

Chart = alt.Chart | alt.LayerChart
Point = Mapping[str, Any]
COLOURS = THEMES["light"]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
SCALE = 2  # pixels of a PNG for one of the SVG
MOST_KEYS = 25  # of a legend
COLUMNS = 4  # panels beside each other at most
LETTER = 6.2  # pixels of a letter of the legend


@dataclass(frozen=True)
class Key:
    """An entry of the legend. `colour` names one of the themes' colours, `style` what its symbol is."""

    label: str
    colour: str
    marker: str = "circle"
    dash: str = "solid"
    style: str = "line+points"  # line, points, line+points, rings (open points)
    width: float = 2.0
    model: str = ""  # what a chooser of models shows or hides


@dataclass(frozen=True)
class Figure:
    """One or more panels, charts by their titles. `name` is that of its files, `title` says what it shows.

    Neighbouring figures of a page with a `choice` are views of one, with a switch between them.
    """

    name: str
    title: str
    panels: Mapping[str, Chart]
    keys: Sequence[Key] = ()
    alt: str = ""  # what is to be seen, in a sentence or two
    caption: str = ""
    files: Sequence[tuple[str, str]] = ()  # label and address of the data
    hint: str = ""  # what a reader of the page can do
    choice: str = ""

    @cached_property
    def specs(self) -> dict[str, dict[str, Any]]:
        """Vega-Lite's descriptions of the panels by their titles, with the data in place however many they are."""
        with alt.data_transformers.enable("default", max_rows=None, consolidate_datasets=False):
            specs = {title: chart.to_dict(validate=False) for title, chart in self.panels.items()}
        for spec in specs.values():
            if isinstance(points := spec.get("data", {}).get("values"), str):
                spec["data"] = {"values": json.loads(points)}
        return specs


def save_figure(figure: Figure, folder: str | Path) -> list[Path]:
    """Write `<name>.svg` and `<name>.png` below a folder; gives their paths."""
    import vl_convert

    spec = compose_file(figure)
    svg = vl_convert.vegalite_to_svg(spec)
    pixels = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=SCALE))).convert("RGB")
    title = PngImagePlugin.PngInfo()
    title.add_itxt("Title", figure.title)
    paths = [Path(folder) / f"{figure.name}.{suffix}" for suffix in ("svg", "png")]
    with replacing(paths[0]) as file:
        file.write(svg.encode())
    with replacing(paths[1]) as file:
        pixels.save(file, format="PNG", pnginfo=title)
    return paths


def compose_file(figure: Figure) -> dict[str, Any]:
    """The panels beside each other with title and legend."""
    specs = [
        remove_targets({**spec, "title": printable(title)} if title else spec) for title, spec in figure.specs.items()
    ]
    whole: dict[str, Any] = {"concat": specs, "columns": min(COLUMNS, len(specs)), "spacing": 14}
    if len(specs) == 1:
        whole = specs[0]
    elif figure.keys:
        whole["resolve"] = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "shared")}
    title = {"text": printable(figure.title), "anchor": "start", "fontSize": 14, "offset": 8}
    return {**whole, "title": title, "padding": 10, "config": {**configure(COLOURS), "background": "white"}}


def compose_page(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A panel as wide as its place on a page, in the page's colours; without title and legend, which the page has.

    The page's script sets the parameter "hidden": the labels that are not shown.
    """
    whole = {
        **remove_legends(spec),
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": [{"name": "hidden", "value": []}],
        "transform": [{"filter": "indexof(hidden, datum.label) < 0"}],
        "config": configure(COLOURS),
    }
    text = json.dumps(whole)
    for key, colour in COLOURS.items():
        text = text.replace(f'"{colour}"', f'"var(--{key})"')
    return json.loads(text)


def remove_targets(spec: dict[str, Any]) -> dict[str, Any]:
    """Without the invisible points of lines, which are there to be pointed at."""
    targets = {"type": "point", "opacity": 0}
    layers = [layer for layer in spec.get("layer", []) if not targets.items() <= layer["mark"].items()]
    return {**spec, "layer": layers} if layers else spec


def remove_legends(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {key: None if key == "legend" else remove_legends(value) for key, value in spec.items()}
    return [remove_legends(value) for value in spec] if isinstance(spec, list) else spec


def configure(colours: Mapping[str, str]) -> dict[str, Any]:
    """Fonts and colours of all charts."""
    text = {"labelColor": colours["muted"], "titleColor": colours["muted"], "labelFontSize": 11, "titleFontSize": 12}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "gridColor": colours["grid"],
            "domainColor": colours["grid"],
            "tickColor": colours["grid"],
            "labelOverlap": "greedy",
            "labelSeparation": 6,
        },
        "legend": {**text, "labelColor": colours["ink"], "orient": "top", "labelLimit": 0},
        "title": {"color": colours["ink"], "anchor": "start", "fontSize": 12, "fontWeight": 600},
        "concat": {"spacing": 14},
        "aria": False,
    }


@dataclass(frozen=True)
class Axis:
    """A quantity along an axis. Values of a `percent` axis are shares in 0..1; `ticks` are the values to label."""

    title: str  # with the unit
    log: bool = False
    percent: bool = False
    zero: bool = False
    ticks: Sequence[float] = ()
    short: bool = False  # 20k rather than 20,000
    whole: bool = False  # no ticks between whole numbers
    domain: tuple[float, float] | None = None
    free: bool = False  # from the points that a page's script puts in

    def channel(self, kind: Any, name: str, points: Sequence[Point]) -> Any:
        """The encoding `alt.X` or `alt.Y`, with the range of all the points, so that panels share it."""
        axis = {"format": "~%" if self.percent else "~s" if self.short else ",~f", "title": self.title}
        if self.whole:
            axis["tickMinStep"] = 1
        scale: dict[str, Any] = {"type": "log", "padding": 8} if self.log else {"zero": self.zero}
        if not self.free:
            low, high = self.domain or self.find_range(name, points)
            if ticks := list(self.ticks) or (list_log_ticks(low, high) if self.log else []):
                axis["values"] = ticks
            scale |= {"domain": [low, high], "nice": not self.log and self.domain is None}
        if name == "x" and not self.log and not self.zero:
            scale["padding"] = 6
        return kind(f"{name}:Q", scale=alt.Scale(**scale), axis=alt.Axis(**axis))

    def find_range(self, name: str, points: Sequence[Point]) -> tuple[float, float]:
        """From the least value to the largest; a band widens it by at most ROOM either way, and is cut there."""
        values = [point[name] for point in points if point.get(name) is not None] + [0.0] * self.zero
        low, high = min(values, default=0.0), max(values, default=1.0)
        if name == "y" and (banded := [point for point in points if point.get("low") is not None]):
            to, back = (math.log, math.exp) if self.log else (float, float)
            room = ROOM * (to(high) - to(low))
            low = min(low, max(min(point["low"] for point in banded), back(to(low) - room)))
            high = max(high, min(max(point["high"] for point in banded), back(to(high) + room)))
        if self.percent and max(values, default=0.0) <= 1:  # shares; a ratio to a reference may be above 100%
            high = min(high, 1.0)
        return low, high


def list_log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a log axis, at least two where the range has them."""
    if not 0 < low < high:
        return []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for rungs in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [rung * 10.0**decade for decade in decades for rung in rungs]
        ticks = [float(f"{tick:.2g}") for tick in ticks if 0.999 * low <= tick <= 1.001 * high]
        if len(ticks) >= 5:
            break
    return ticks


DASHES = {"solid": [1, 0], "dash": [6, 3], "dot": [2, 3], "dashdot": [7, 3, 2, 3], "longdash": [11, 4]}
MARKERS = {"triangle": "triangle-up"}
TEXT = "datum.text || datum.label + ': ' + format(datum.y, '.4~g') + ' at ' + format(datum.x, ',.6~g')"
DETAIL = [alt.Detail("label:N"), alt.Detail("line:N")]
ROOM = 0.25  # of the range of the values
POINTED = 1500  # points of a panel up to which lines without markers can be pointed at


def draw_curves(
    panels: Mapping[str, Iterable[Point]], keys: Sequence[Key], x: Axis, y: Axis
) -> dict[str, alt.LayerChart]:
    """Panels of lines and points that share their axes.

    A point has a "mark" (one of MARKS), x, y, the "label" of its key unless the mark is grey, for an area "low" and
    "high", and perhaps "line" (separates the lines of one label), "text" (shown where it is pointed at) and "link"
    (opened there). A y that is None is a gap.
    """
    listed = {title: [{"line": "", **point} for point in points] for title, points in panels.items()}
    every = [point for points in listed.values() for point in points]
    if every:
        least, most = y.domain or y.find_range("y", every)
        for point in every:
            if point["mark"] == "band":  # a clip path for each would make a PNG five times as slow
                point |= {"low": min(max(point["low"], least), most), "high": max(min(point["high"], most), least)}
    count = max(1, len(listed))
    width, height = (560, 320) if count == 1 else (270, 180) if count == 2 else (200, 170)
    longest = max((len(key.label) for key in keys), default=1)
    across = max(1, min(len(keys), int(width * min(COLUMNS, count) / (34 + LETTER * longest))))
    channels = {"x": x.channel(alt.X, "x", every), "y": y.channel(alt.Y, "y", every), **encode_keys(keys, across)}
    return {
        title: layer_marks(points, channels).properties(width=width, height=height) for title, points in listed.items()
    }


def encode_keys(keys: Sequence[Key], columns: int) -> dict[str, Any]:
    """The encodings of colour, marker and dash by label; together they make one legend."""
    lines = all(key.style == "line" for key in keys)
    shown = [key.label for key in keys if lines or key.style != "line"]
    symbol = {"symbolType": "stroke", "symbolStrokeWidth": 2, "symbolSize": 160} if lines else {"symbolStrokeWidth": 0}
    legend = alt.Legend(title=None, columns=columns, symbolOpacity=1, values=shown, **symbol)
    legend = legend if 1 < len(shown) <= MOST_KEYS else None
    channels = {
        "color": (alt.Color, [COLOURS[key.colour] for key in keys]),
        "shape": (alt.Shape, [MARKERS.get(key.marker, key.marker) for key in keys]),
        "strokeDash": (alt.StrokeDash, [DASHES[key.dash] for key in keys]),
    }
    domain = [key.label for key in keys]
    listed = ("color", "strokeDash") if lines else ("color", "shape")
    return {
        name: kind("label:N", scale=alt.Scale(domain=domain, range=values), legend=legend if name in listed else None)
        for name, (kind, values) in channels.items()
    }


# kind of mark -> what draws it, and which encodings of the keys it takes; in drawing order. Opacity is that of a fill
# or a stroke: that of a whole mark makes a PNG ten times as slow.
MARKS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "strip": ("area", {"color": COLOURS["muted"], "opacity": 1, "fillOpacity": 0.15}, ()),
    "band": ("area", {"opacity": 1, "fillOpacity": 0.15}, ("color",)),
    "stairs": ("line", {"strokeWidth": 7, "strokeOpacity": 0.25}, ("color",)),
    "rule": ("line", {"strokeWidth": 1.5, "strokeDash": DASHES["dot"], "color": COLOURS["muted"]}, ()),
    "reference": ("line", {"strokeWidth": 1.4, "strokeDash": DASHES["dash"], "color": COLOURS["muted"]}, ()),
    "law": ("line", {"strokeWidth": 1.8}, ("color",)),
    "law beyond": ("line", {"strokeWidth": 1.8, "strokeDash": DASHES["dash"]}, ("color",)),
    "line": ("line", {"strokeWidth": 1.8, "strokeJoin": "round"}, ("color", "strokeDash")),
    "ring": (
        "point",
        {"filled": False, "fill": "transparent", "size": 40, "strokeWidth": 1.2, "opacity": 1},
        ("color", "shape"),
    ),
    "point": ("point", {"filled": True, "size": 52, "opacity": 1}, ("color", "shape")),
    "hollow": (
        "point",
        {"filled": False, "fill": COLOURS["paper"], "size": 60, "strokeWidth": 2, "opacity": 1},
        ("color", "shape"),
    ),
    "above": ("text", {"dy": -9, "color": COLOURS["muted"], "fontSize": 11}, ()),
    "below": ("text", {"dy": 11, "color": COLOURS["muted"], "fontSize": 11}, ()),
    "label": ("text", {"dy": -7, "align": "left", "color": COLOURS["muted"], "fontSize": 10}, ()),
    "name": ("text", {"color": COLOURS["ink"], "fontSize": 11, "fontWeight": "bold"}, ()),
}


def layer_marks(points: Sequence[Point], channels: Mapping[str, Any]) -> alt.LayerChart:
    """A layer for each kind of mark that occurs."""
    layers = []
    kinds = {point["mark"] for point in points}
    base = alt.Chart().transform_calculate(text=TEXT)
    for kind, (mark, options, taken) in MARKS.items():
        if kind not in kinds:
            continue
        encoded = {"x": channels["x"], "y": channels["y"], "detail": DETAIL}
        encoded |= {name: channels[name] for name in taken}
        if mark == "area":
            encoded |= {"y": channels["y"].copy(), "y2": alt.Y2("high:Q")}
            encoded["y"].shorthand = "low:Q"
        elif mark == "text":
            encoded["text"] = alt.Text("text:N")
        else:
            encoded["tooltip"] = alt.Tooltip("text:N")
        chosen = base.transform_filter(f"datum.mark === '{kind}'")
        layers.append(getattr(chosen, f"mark_{mark}")(**options).encode(**encoded))
        if kind in ("line", "law", "law beyond", "stairs") and len(points) <= POINTED:
            layers.append(chosen.mark_point(opacity=0, size=60, filled=True).encode(**encoded))
    # as text: Altair copies data that are lists at every step
    return alt.layer(*layers, data=alt.InlineData(values=json.dumps(points), format=alt.DataFormat(type="json")))
