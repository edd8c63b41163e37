"""Draw studies and analyses as figures: Altair charts with title, caption and alternative text.

Every module in this folder is loaded. A module draws studies, analyses, or both:
- `draw(results)` yields a study's figures, with captions and links to their data, or none if data are missing. PLACE
  orders the modules' figures; the report, figures/ and W&B show all figures.
- `DRAWINGS` lists functions of (findings, config, title) that yield figures, each with its own name. An analysis
  chooses functions by name, in `drawings` of its YAML; a user's own module has one function, `figures`. A function
  draws the rows of the findings, or the first array.

This module holds the house style of axes, colors and files. Importing this module sets Altair's theme.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

from vitlab.config import UserError, printable
from vitlab.registry import implementation, list_modules
from vitlab.reports import THEMES, Look, write_chart

if TYPE_CHECKING:
    from vitlab.analysis.capture import Findings
    from vitlab.config.schema import AnalysisConfig
    from vitlab.studies.results import Results

COLOURS = THEMES["light"]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
SYMBOLS = {"triangle": "triangle-up"}
SOLID, DASHED, DOTTED = [1, 0], [6, 3], [2, 3]
RING = {"filled": False, "fill": "transparent", "size": 40, "strokeWidth": 1.2}
WIDTH, HEIGHT = 560, 320  # pixels of a single chart
COLUMNS = 4  # most panels side by side
LETTER, SYMBOL = 6.2, 34  # pixels of a legend's entry: per letter, and for marker and margins
# STRING finds a JSON string; group 1 is its drawn part. UNDRAWABLE finds an escape: surrogate pair, not in SVG, other.
STRING = re.compile(  # draws pictures and lists of labels whole, and 1000 letters of other texts
    r'"(data:[^"]*|\[\\"(?:\\.|[^"\\])*|(?:\\u....|\\.|[^"\\]){0,1000})(?:\\.|[^"\\])*"'
)
UNDRAWABLE = re.compile(r"\\(?:ud[89ab]..\\ud[c-f]..|(u(?:00[0189].|007f|d[89a-f]..|fff[ef])|[bf])|.)")
ROOM = 0.25  # share of the values' range by which bands may widen an axis


@dataclass(frozen=True)
class Figure:
    """A chart and its words. `name` names its files, `title` and `caption` stand beside it, `alt` replaces the picture.

    `files` are labels and addresses of the data. A page folds a figure with `detail`. A page shows neighboring figures
    with a `choice` as views of one figure, with a switch.
    """

    name: str
    title: str
    chart: alt.TopLevelMixin
    caption: str = ""
    alt: str = ""
    files: Sequence[tuple[str, str]] = ()
    choice: str = ""
    detail: bool = False

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite description with inline data, without Altair's limit on rows."""
        with alt.data_transformers.enable("default", max_rows=None):
            return self.chart.to_dict(validate=False)


@cache
def load_modules() -> list[Any]:
    return [import_module(f"{__name__}.{name}") for name in list_modules(__name__)]


def draw_study(results: "Results", save: Callable[[Figure], Any]) -> list[Figure]:
    """Draw every figure of a study, and call `save` with each at once; figures that need the laws come last."""
    drawing = [module for module in load_modules() if hasattr(module, "PLACE")]
    drawn: dict[int, list[Figure]] = {}
    with alt.utils.schemapi.debug_mode(False):  # checks against Vega-Lite's schema would double the time
        for module in sorted(drawing, key=lambda module: module.PLACE, reverse=True):
            for figure in module.draw(results):
                save(figure)
                drawn.setdefault(module.PLACE, []).append(figure)
    return [figure for place in sorted(drawn) for figure in drawn[place]]


def draw_findings(findings: "Findings", config: "AnalysisConfig", source: str) -> Iterator[Figure]:
    """Draw every figure of an analysis's findings; the title names `source`, the model. Raises UserError."""
    known: dict[str, Callable[..., Iterator[Figure]]] = {
        drawing.__name__: drawing for module in load_modules() for drawing in getattr(module, "DRAWINGS", ())
    }
    for kind in config.drawings:
        if kind not in known and "." not in kind:
            choices = ", ".join(sorted(known))
            raise UserError(f"drawings: {kind}: choose from {choices}, or your own as PACKAGE.MODULE")
        draw = known.get(kind) or implementation("", kind, "figures").figures
        yield from draw(findings, config, f"{source}: {config.title}")


# ---- the house style


@alt.theme.register("vitlab", enable=True)
def house_style() -> alt.theme.ThemeConfig:
    ink, muted, grid = (COLOURS[key] for key in ("ink", "muted", "grid"))
    text = {"labelColor": muted, "titleColor": muted, "labelFontSize": 11, "titleFontSize": 12}
    axes = {"titleFontWeight": "normal", "labelOverlap": "greedy", "grid": True, "labelSeparation": 6}
    lines = dict.fromkeys(("gridColor", "domainColor", "tickColor"), grid)
    header = {"labelColor": ink, "labelAnchor": "start", "labelFontSize": 12, "labelFontWeight": 600, "labelLimit": 0}
    limits = dict.fromkeys(("labelLimit", "symbolLimit", "titleLimit"), 0)
    legend = {"labelFontSize": 12, "labelColor": ink, "orient": "top", **limits}
    return {
        "config": {
            "background": "transparent",
            "font": FONT,
            "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": HEIGHT},
            "axis": {**text, **lines, **axes},
            "legend": {**text, **legend},
            "title": {"color": ink, "anchor": "start", "fontSize": 12, "fontWeight": 600},
            "header": {**header, "title": None},
            "facet": {"spacing": 14},
            "point": {"filled": True, "size": 52, "opacity": 1},
            "line": {"strokeWidth": 1.8, "strokeJoin": "round"},
            "area": {"opacity": 1, "fillOpacity": 0.15},  # opacity of a whole mark makes a PNG ten times as slow
            "rule": {"color": muted, "strokeWidth": 1.4, "strokeDash": DASHED},
            "text": {"color": muted, "fontSize": 11},
            "aria": False,
        }
    }


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
    """Make the encoding `alt.X` or `alt.Y` of a quantity; `percent`: values are shares, `short`: labels like 20k.

    Labels write small numbers out: 0.005 rather than 5m with a prefix, 1e-7 rather than 0 in six decimals.
    Without a `domain` the axis spans the data; `ticks` are the labelled values.
    """
    if log:
        title = f"{title[:-1]}, log scale)" if title.endswith(")") else f"{title} (log scale)"
    small = log and domain is not None and domain[0] < (1 if short else 1e-5)
    axis = {"title": title, "format": "~%" if percent else "~g" if small else "~s" if short else ",~f"}
    if short:  # billions of examples, not giga
        axis["labelExpr"] = "replace(datum.label, 'G', 'B')"
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
    """Copy an axis for another field."""
    other = channel.copy()
    other.shorthand = f"{field}:Q"
    return other


def mark_band(base: alt.Chart, y: alt.Y, models: int = 1) -> alt.Chart:
    """Draw each model's band from `low` to `high`, lighter with more models, so that lines and points stay visible."""
    band = base.mark_area(fillOpacity=min(0.15, 0.6 / models)).encode(y=of_field(y, "low"), y2="high:Q")
    return band.properties(name="bands")


def list_log_ticks(low: float, high: float) -> list[float]:
    """List round numbers for a log axis, at least two if the range contains two."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    finer = [[i / n for i in range(n, 10 * n)] for n in (2, 5, 10)]
    for rungs in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), *finer):
        ticks = [float(f"{rung * 10.0**decade:.2g}") for decade in decades for rung in rungs]
        ticks = [tick for tick in ticks if 0.999 * low <= tick <= 1.001 * high]
        if len(ticks) >= 5:
            break
    return ticks


def find_domain(values: Iterable[float], bands: Iterable[float] = (), *, log: bool, percent: bool) -> tuple[float, ...]:
    """Find the axis range of values and bands; bands widen each end by at most ROOM and are cut beyond."""
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
    """Encode color and marker by a field; several values get one legend for both."""
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
    """Make the legend of layers clickable: the first click shows an entry alone; further clicks add entries.

    An empty layer comes first, because Vega-Lite draws the legend in the style of the first layer.
    """
    if len(looks) < 2:
        return [*layers]
    picked = alt.selection_point(name="picked", fields=[field], bind="legend", toggle="true")
    empty = alt.Chart(name="legend").mark_point().transform_filter("false").encode(**by_look(field, looks))
    return [empty.add_params(picked), *(layer.transform_filter(picked) for layer in layers)]


def panels(chart: alt.LayerChart, field: str, titles: Sequence[str]) -> alt.TopLevelMixin:
    """Repeat the chart for each value of a field, ordered as `titles`; a single panel is as large as other charts."""
    if len(titles) == 1:
        return chart.properties(title=titles[0]) if titles[0] else chart
    facet = alt.Facet(f"{field}:N", sort=[*titles], title=None)
    width, height = (270, 180) if len(titles) == 2 else (200, 170)
    whole = chart.properties(width=width, height=height).facet(facet, columns=min(COLUMNS, len(titles)))
    return whole.resolve_axis(x="independent", y="independent")


def with_variables(spec: Any) -> Any:
    """Replace colors in a chart's description by the page's CSS variables, which follow the theme."""
    text = json.dumps(spec)
    for key, colour in COLOURS.items():
        text = text.replace(f'"{colour}"', f'"var(--{key})"')
    return json.loads(text)


def pack_for_page(figure: Figure) -> dict[str, Any]:
    """Pack a figure's chart for a page, as wide as its container; charts.js unpacks the data and fits the panels."""
    spec = {key: value for key, value in figure.spec.items() if key != "datasets"}
    if "facet" not in spec:
        spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    datasets = figure.spec.get("datasets", {})
    return {**with_variables(spec), "datasets": {name: pack_points(points) for name, points in datasets.items()}}


def pack_points(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Pack points as a list per column: texts as indices into `words`, as points share texts; floats in 5 digits."""
    words: dict[str, int] = {}
    columns: dict[str, list[Any]] = {key: [] for point in points for key in point}
    texts = set()
    for key, column in columns.items():
        for value in (point.get(key) for point in points):
            if isinstance(value, str):
                texts.add(key)
                value = words.setdefault(value, len(words))
            column.append(float(f"{value:.5g}") if isinstance(value, float) else value)
    return {"columns": columns, "words": list(words), "texts": sorted(texts)}


def save_figure(figure: Figure, folder: str | Path) -> list[Path]:
    """Write `<name>.svg` and `<name>.png` below a folder; return their paths."""
    return write_chart(*describe_chart(figure, folder))


def describe_chart(figure: Figure, folder: str | Path) -> tuple[str, str, Path]:
    """Return the arguments of `write_chart`, which may run in another process."""
    title = {"text": printable(figure.title), "fontSize": 14, "offset": 8, "anchor": "start"}
    text = json.dumps({**figure.spec, "title": title, "padding": 10, "background": "white"})
    text = text.replace('"point": "transparent"', '"point": false')  # only pages have a pointer
    # a NUL in a user's text ends the renderer's process, and characters outside XML break readers of the SVG
    text = UNDRAWABLE.sub(lambda found: rf"\\{found[1]}" if found[1] else found[0], STRING.sub(r'"\1"', text))
    return text, printable(figure.title), Path(folder) / figure.name
