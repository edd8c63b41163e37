"""What an analysis measures of each head: a point per head against the layer, or a line per layer against the step.

Values are drawn as shares of the first reference, uniform attention, so that models with other grids compare; without
references in their own unit. Every reference is on the axis, so that small differences look small.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

import altair as alt
import pandas as pd

from vitlab.formatting import finite, significant
from vitlab.reports.figures.figure import RING, Figure, axis, by_look, panels, with_legend
from vitlab.reports.figures.theme import Look, group_look

COARSE = 0.4  # of uniform attention: a neighborhood with more than that tells no local head from a global one


@dataclass(frozen=True)
class Measured:
    """An analysis of heads, `{"name", "unit", "rows", "references"}`, of one run. `title` is that of its panel."""

    analysis: dict[str, Any]
    title: str = ""
    link: str = ""

    @cached_property
    def references(self) -> dict[str, float]:
        """name -> value in the analysis's unit; empty where the first, the 100%, is missing or 0."""
        named = {name: finite(value) for name, value in (self.analysis.get("references") or {}).items()}
        known = {name: value for name, value in named.items() if value is not None}
        return known if next(iter(known.values()), 0.0) > 0 else {}

    @property
    def steps(self) -> list[int]:
        return sorted({row["step"] for row in self.analysis["rows"]})


class Heads:
    """The analyses of one figure: `frame` has a row per head, step and run, `y` what is drawn of its `value`."""

    def __init__(self, measured: Sequence[Measured]):
        first = measured[0]
        self.measured, self.titles = measured, [one.title for one in measured]
        self.name, self.unit = first.analysis["name"].replace("_", " "), first.analysis["unit"]
        relative = all(one.references for one in measured)
        self.references = first.references if relative else {}
        self.uniform = next(iter(self.references.items()), None)
        rows = [
            {"panel": one.title, "link": one.link, "last": one.steps[-1], "first": one.steps[0], **row}
            | {"y": row["value"] / next(iter(one.references.values())) if relative else row["value"]}
            for one in measured
            for row in one.analysis["rows"]
            if all(finite(row[key]) is not None for key in ("value", "layer", "step"))
        ]
        columns = ["panel", "link", "first", "last", "step", "layer", "head", "value", "y"]
        self.frame = pd.DataFrame(rows, columns=columns)
        self.layers = sorted(set(self.frame.layer))

    def text(self, value: float, share: float) -> str:
        """`15.3 pixels, 83% of uniform attention`"""
        text = f"{significant(value)} {self.unit}".rstrip()
        return f"{text}, {share:.0%} of {self.uniform[0]}" if self.uniform else text

    def up(self) -> alt.Y:
        title = (
            f"{self.name}, % of uniform" if self.uniform else f"{self.name} ({self.unit})" if self.unit else self.name
        )
        return axis(alt.Y, "y", title, percent=bool(self.uniform), zero=not self.uniform)

    def layer_references(self) -> list[alt.Chart]:
        """A line across each panel for each reference, with its name at the left end."""
        layers, once = [], alt.Chart().transform_aggregate(heads="count()")
        for name, value in self.references.items():
            here = once.encode(y=alt.datum(value / self.uniform[1]))
            text = f"{name}, {significant(value)} {self.unit}".rstrip()
            label = here.mark_text(dy=-7, dx=3, align="left", fontSize=10, text=text).encode(x=alt.value(0))
            layers += [here.mark_rule().properties(name=name), label.properties(name=f"{name}, name")]
        return layers

    def describe_ends(self, form: Callable[[int, str, str], str]) -> str:
        """What `form` says of the first and the last layer, by the texts of their first and last step."""
        means = self.frame.groupby(["panel", "layer", "step"], sort=False)[["value", "y"]].mean().reset_index()
        means["text"] = [self.text(one.value, one.y) for one in means.itertuples()]
        texts = []
        for title, mine in means.groupby("panel", sort=False):
            by_layer = {layer: some.text.iloc[[0, -1]] for layer, some in mine.sort_values("step").groupby("layer")}
            ends = "; ".join(form(layer, *by_layer[layer]) for layer in dict.fromkeys((min(by_layer), max(by_layer))))
            texts.append(f"{f'{title}: ' if title else ''}{ends}.")
        return " ".join(["Mean over the heads:", *texts])

    @property
    def files(self) -> list[tuple[str, str]]:
        return [
            (one.title, f"{one.link}analysis/{quote(one.analysis['name'])}.json") for one in self.measured if one.link
        ]

    def note(self) -> str:
        """That the grid is too coarse to show locality, where it is."""
        near = next((value for name, value in self.references.items() if name.startswith("3 x 3")), 0.0)
        if not near or near / self.uniform[1] <= COARSE:
            return ""
        return (
            f" The grid of patches is too coarse to show locality: attention to a 3 x 3 neighbourhood alone is"
            f" {near / self.uniform[1]:.0%} of uniform attention."
        )


def draw_heads(name: str, title: str, measured: Sequence[Measured], colour: str, caption: str = "") -> Figure:
    """A panel per run: a point per head against the layer, the untrained model's as rings behind.

    With one step there is nothing to tell apart, and no word for it: step 0 of a pretrained model is a trained one.
    """
    heads = Heads(measured)
    frame = heads.frame[(heads.frame.step == heads.frame["first"]) | (heads.frame.step == heads.frame["last"])]
    several = (frame["first"] != frame["last"]).any()
    untrained = several & (frame.step != frame["last"])
    frame = frame.assign(
        heads=untrained.map({True: "untrained heads", False: "trained heads" if several else "heads"}),
        text=[heads.text(one.value, one.y) for one in frame.itertuples()],
    )
    shown = (
        {"untrained heads": Look("untrained"), "trained heads": Look(colour)} if several else {"heads": Look(colour)}
    )
    ends = (heads.layers[0] - 0.4, heads.layers[-1] + 0.4) if heads.layers else (0.0, 1.0)
    base = alt.Chart().encode(
        x=axis(alt.X, "layer", "layer", ends, ticks=heads.layers),
        y=heads.up(),
        tooltip=["heads", "layer", "head", alt.Tooltip("text", title=heads.name)],
        **by_look("heads", shown),
    )
    rings = base.transform_filter("datum.heads === 'untrained heads'").mark_point(**RING).properties(name="untrained")
    points = base.transform_filter("datum.heads !== 'untrained heads'").mark_point().properties(name="trained")
    layers = with_legend("heads", shown, [rings, points] if several else [points])
    columns = ["panel", "layer", "head", "y", "heads", "text", "link"]
    return Figure(
        name=name,
        title=title,
        chart=panels(alt.layer(*heads.layer_references(), *layers, data=frame[columns]), "panel", heads.titles),
        caption=f"{caption}{heads.note()}",
        alt=heads.describe_ends(lambda layer, _, last: f"{last} in layer {layer}"),
        files=heads.files,
    )


def draw_layers(name: str, title: str, measured: Sequence[Measured], caption: str = "") -> Figure:
    """A panel per run: the mean over each layer's heads against the training step."""
    heads = Heads(measured)
    means = heads.frame.groupby(["panel", "link", "layer", "step"], sort=False)[["value", "y"]].mean().reset_index()
    means["text"] = [heads.text(one.value, one.y) for one in means.itertuples()]
    means["layer"] = [f"layer {layer}" for layer in means.layer]
    shown = {f"layer {layer}": group_look(place) for place, layer in enumerate(heads.layers)}
    step = axis(alt.X, "step", "training step", zero=True, short=means.step.max() >= 1e4)
    tooltip = ["layer", "step", alt.Tooltip("text", title=heads.name)]
    base, look = alt.Chart().encode(x=step, y=heads.up()), by_look("layer", shown)
    lines = base.mark_line().encode(color=look["color"]).properties(name="lines")
    points = base.mark_point().encode(tooltip=tooltip, **look).properties(name="points")
    layers = with_legend("layer", shown, [lines, points])
    columns = ["panel", "layer", "step", "y", "text", "link"]
    return Figure(
        name=name,
        title=title,
        chart=panels(alt.layer(*heads.layer_references(), *layers, data=means[columns]), "panel", heads.titles),
        caption=caption,
        alt=heads.describe_ends(lambda layer, first, last: f"layer {layer} from {first}, to {last}"),
        files=heads.files,
    )
