"""A figure as a plotly figure, for the HTML report and for Weights & Biases."""

import html
from typing import Any

import plotly.graph_objects as go

from vitlab.reports.figures.spec import Axis, Figure, Series
from vitlab.reports.figures.theme import THEMES
from vitlab.reports.figures.ticks import spaced, tick_text

COLOURS = THEMES["light"]
CLEAR = "rgba(0,0,0,0)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
MODES = {
    "line": "lines",
    "points": "markers",
    "line+points": "lines+markers",
    "rings": "markers",
    "text above": "markers+text",  # markers that are not seen, so that the text keeps its distance
    "text below": "markers+text",
}
MARKERS = {"triangle": "triangle-up"}  # where plotly's name is another
TITLE, LEGEND, BELOW, GAP = 40, 30, 48, 44  # pixels: title, a row of the legend, below the panels, between two rows
PANEL_TITLE, PANEL_HEIGHT, SINGLE_HEIGHT = 24, 190, 340
WIDTH = 1000  # of a figure that stands alone


def plotly_figure(figure: Figure) -> go.Figure:
    """One trace per series, and one more for the outline of each band (`meta.role` tells: series, band).

    Names may hold anything: plotly reads its texts as HTML, so they are escaped.
    """
    listed = {series.label for series in figure.legend()}
    traces: list[go.Scatter] = []
    for number, panel in enumerate(figure.panels, start=1):
        for series in panel.series:
            if series.has_band:
                traces.append(band(series, number))
            traces.append(trace(series, number, legend=series.legend and series.label in listed))
            listed.discard(series.label)
    return go.Figure(traces, layout(figure, figure.columns or 1, bare=False, width=WIDTH))


def trace(series: Series, panel: int, legend: bool) -> go.Scatter:
    colour = COLOURS[series.colour_key]
    rings = series.style == "rings"
    symbol = MARKERS.get(series.marker, series.marker)
    hover = [html.escape(text).replace("\n", "<br>") for text in series.hover or filter(None, [series.note])]
    return go.Scatter(
        x=list(series.x),
        y=list(series.y),
        name=html.escape(series.label),
        mode=MODES[series.style],
        line={"color": colour, "width": series.width, "dash": series.dash},
        opacity=series.opacity,
        marker={
            "color": CLEAR if series.texts else colour,
            "symbol": f"{symbol}-open" if rings else symbol,
            "size": 7,
            "line": {
                "color": colour if rings else COLOURS["paper"],
                "width": 0 if series.texts else 1.2 if rings else 1,
            },
        },
        text=[html.escape(text) for text in series.texts] or None,
        textposition="bottom center" if series.style == "text below" else "top center",
        textfont={"size": 12, "color": COLOURS["muted"]},
        cliponaxis=not series.texts,
        hovertext=hover[0] if series.note else hover or None,
        hoverinfo="skip"
        if series.texts
        else "text"
        if hover and not series.note
        else "x+y+text"
        if hover
        else "x+y+name",
        customdata=list(series.links) or None,
        connectgaps=False,
        showlegend=legend,
        legendgroup=html.escape(series.label),
        meta={"role": "series", "label": series.follows or series.label, "model": series.model, "link": series.link},
        **placed(panel),
    )


def band(series: Series, panel: int) -> go.Scatter:
    """The outline of low..high, there and back."""
    points = [
        (x, low, high)
        for x, low, high in zip(series.x, series.low, series.high, strict=True)
        if low is not None and high is not None
    ]
    return go.Scatter(
        x=[x for x, _, _ in points] + [x for x, _, _ in reversed(points)],
        y=[high for _, _, high in points] + [low for _, low, _ in reversed(points)],
        fill="toself",
        fillcolor=f"{COLOURS[series.colour_key]}26",  # an alpha of 15%
        line={"width": 0, "color": CLEAR},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=html.escape(series.label),
        meta={"role": "band", "label": series.label, "model": series.model},
        **placed(panel),
    )


def placed(panel: int) -> dict[str, str]:
    return {"xaxis": f"x{panel}", "yaxis": f"y{panel}"} if panel > 1 else {}


def layout(figure: Figure, columns: int, bare: bool, width: int) -> dict[str, Any]:
    """Axes, panel titles, sizes; the colours are the light theme's.

    `columns` panels stand beside each other, in `width` pixels or more. A `bare` figure leaves title and legend to
    the page around it.
    """
    rows = figure.rows(columns) or 1
    single = len(figure.panels) <= 1
    legend = not bare and len(figure.legend()) > 1
    titled = any(panel.title for panel in figure.panels)
    top = (PANEL_TITLE if titled else 10) + TITLE * (not bare) + LEGEND * legend
    tall = SINGLE_HEIGHT if single else PANEL_HEIGHT
    inner = rows * tall + (rows - 1) * GAP
    height = top + inner + BELOW
    options: dict[str, Any] = {
        "template": {},
        "height": height,
        "margin": {"l": 58, "r": 12, "t": top, "b": BELOW},
        "font": {"family": FONT, "size": 13, "color": COLOURS["ink"]},
        "paper_bgcolor": CLEAR if bare else COLOURS["paper"],
        "plot_bgcolor": CLEAR,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": COLOURS["paper"],
            "bordercolor": COLOURS["muted"],
            "align": "left",
            "font": {"family": FONT, "color": COLOURS["ink"]},
        },
        "showlegend": legend,
        "legend": {"orientation": "h", "x": 0, "yref": "container", "yanchor": "top", "y": 1 - TITLE / height},
        "annotations": [],
    }
    if not bare:
        options["title"] = {
            "text": html.escape(figure.title),
            "x": 0.01,
            "y": 1 - 10 / height,
            "yanchor": "top",
            "font": {"size": 16},
        }
    largest = max((x for series in figure.series for x in series.x), default=0.0)
    gap = 0.03 if columns > 2 else 0.06
    wide, share = (1 - gap * (columns - 1)) / columns, tall / inner
    letters = max((len(tick_text(tick, figure.x)) for tick in figure.x.ticks), default=5)
    most = int(wide * (width - 70) / (8 * letters + 12))  # tick labels beside each other
    for i, panel in enumerate(figure.panels):
        row, column = divmod(i, columns)
        left, upper = column * (wide + gap), 1 - row * (tall + GAP) / inner
        number = "" if i == 0 else str(i + 1)
        last = i + columns >= len(figure.panels)
        across, up = [left, min(1.0, left + wide)], [max(0.0, upper - share), upper]
        options[f"xaxis{number}"] = {
            "anchor": f"y{number}",
            **side(figure.x, across, most, labelled=last, largest=largest),
        }
        options[f"yaxis{number}"] = {"anchor": f"x{number}", **side(figure.y, up, 6, labelled=column == 0)}
        if number:  # every panel has the first one's scale
            options[f"xaxis{number}"]["matches"], options[f"yaxis{number}"]["matches"] = "x", "y"
        if panel.title:
            options["annotations"].append(note(panel.title, left, upper))
        options["annotations"] += [written(*text, number) for text in panel.texts]
    return options


def side(axis: Axis, domain: list[float], most: int, labelled: bool, largest: float = 0.0) -> dict[str, Any]:
    """An axis of one panel: `domain` is its share of the figure, `most` the number of ticks there is room for."""
    options: dict[str, Any] = {
        "domain": domain,
        "type": "log" if axis.log else "linear",
        "gridcolor": COLOURS["grid"],
        "zeroline": False,
        "linecolor": COLOURS["grid"],
        "showline": True,
        "tickfont": {"color": COLOURS["muted"], "size": 12},
        "title": {
            "text": axis.label if labelled else "",
            "standoff": 8,
            "font": {"color": COLOURS["muted"], "size": 13},
        },
        "showticklabels": labelled,
    }
    if axis.ticks:
        ticks = spaced(axis.ticks, most, axis.log)
        options |= {"tickvals": ticks, "ticktext": [tick_text(tick, axis) for tick in ticks]}
    else:
        short = axis.whole and largest >= 1e4  # 20k rather than 20,000
        options |= {"nticks": max(4, most), "tickformat": ".0%" if axis.percent else "~s" if short else ",~g"}
    if axis.from_zero:
        options["rangemode"] = "tozero"
    return options


def note(text: str, x: float, y: float) -> dict[str, Any]:
    """A panel's title, above its left corner."""
    return {
        "text": html.escape(text),
        "x": x,
        "y": y,
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"size": 13, "color": COLOURS["ink"]},
    }


def written(x: float, y: float, text: str, panel: str) -> dict[str, Any]:
    """A text at a place of a panel's axes."""
    return {
        "text": f"<b>{html.escape(text)}</b>",
        "x": x,
        "y": y,
        "xref": f"x{panel}",
        "yref": f"y{panel}",
        "showarrow": False,
        "bgcolor": f"{COLOURS['paper']}b0",
        "borderpad": 0,
        "font": {"size": 13, "color": COLOURS["ink"]},
    }
