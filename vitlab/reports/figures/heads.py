"""What an analysis measures of each head: a point per head against the layer, or a line per layer against the step.

Values are drawn as shares of the first reference, uniform attention, so that models with other grids compare; without
references in their own unit. Every reference is on the axis, so that small differences look small.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vitlab.formatting import finite, significant, whole
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import ACCENTS, DASHES, group_look

Analysis = dict[str, Any]
COARSE = 0.4  # of uniform attention: a neighborhood with more than that tells no local head from a global one


@dataclass(frozen=True)
class Measured:
    """An analysis of heads, `{"name", "unit", "rows", "references"}`, of one run. `title` is that of its panel."""

    analysis: Analysis
    title: str = ""
    link: str = ""

    @property
    def references(self) -> dict[str, float]:
        """name -> value in the analysis's unit; empty where the first, the 100%, is missing or 0."""
        named = {name: finite(value) for name, value in (self.analysis.get("references") or {}).items()}
        known = {name: value for name, value in named.items() if value is not None}
        return known if next(iter(known.values()), 0.0) > 0 else {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Those with a number."""
        return [row for row in self.analysis["rows"] if finite(row["value"]) is not None]

    @property
    def steps(self) -> list[int]:
        return sorted({row["step"] for row in self.analysis["rows"]})

    def choose_steps(self) -> dict[str, list[dict[str, Any]]]:
        """label -> rows of the untrained model (step 0) and of the trained one (the last step).

        With one step there is nothing to tell apart, and no word for it: step 0 of a pretrained model is a trained one.
        """
        first, last = self.steps[0], self.steps[-1]
        labels = {"untrained heads": first, "trained heads": last} if first != last else {"heads": first}
        return {label: [row for row in self.rows if row["step"] == step] for label, step in labels.items()}

    def average_layers(self) -> dict[int, dict[int, float]]:
        """layer -> step -> the mean over its heads."""
        values: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            if finite(row["layer"]) is not None and finite(row["step"]) is not None:
                values[row["layer"]][row["step"]].append(row["value"])
        return {
            layer: {step: statistics.fmean(by_step[step]) for step in sorted(by_step)}
            for layer, by_step in sorted(values.items())
        }


class Scale:
    """Relative to uniform attention where all analyses have it."""

    def __init__(self, measured: Sequence[Measured]):
        self.relative = all(one.references for one in measured)
        first = measured[0]
        self.name = str(first.analysis.get("name") or "value").replace("_", " ")
        self.unit = str(first.analysis.get("unit") or "")
        self.references = list(first.references.items()) if self.relative else []

    @property
    def axis(self) -> Axis:
        if self.relative:
            return Axis(f"{self.name}, % of uniform", percent=True)
        return Axis(f"{self.name} ({self.unit})" if self.unit else self.name, zero=True)

    def place(self, one: Measured, value: float) -> float:
        return value / next(iter(one.references.values())) if self.relative else value

    def text(self, one: Measured, value: float) -> str:
        """`15.3 pixels, 83% of uniform attention`"""
        text = f"{significant(value)} {self.unit}".rstrip()
        return f"{text}, {self.place(one, value):.0%} of {self.references[0][0]}" if self.relative else text

    def lines(self, one: Measured, ends: Sequence[float]) -> Iterator[dict[str, Any]]:
        """A line across a panel for each reference, with its name at the left end."""
        for name, _ in self.references:
            if name in one.references:
                value = one.references[name]
                y, text = self.place(one, value), f"{name}: {self.text(one, value)}"
                for x in ends:
                    yield {"mark": "reference", "line": name, "x": x, "y": y, "text": text}
                label = f"{name}, {significant(value)} {self.unit}".rstrip()
                yield {"mark": "label", "line": name, "x": ends[0], "y": y, "text": label}

    def note(self) -> str:
        """That the grid is too coarse to show locality, where it is."""
        near = next((value for name, value in self.references if name.startswith("3 x 3")), 0.0)
        if not near or near / self.references[0][1] <= COARSE:
            return ""
        return (
            f" The grid of patches is too coarse to show locality: attention to a 3 x 3 neighbourhood alone is"
            f" {near / self.references[0][1]:.0%} of uniform attention."
        )


def draw_heads(name: str, title: str, measured: Sequence[Measured], colour: str, caption: str = "") -> Figure:
    """A panel per run: a point per head against the layer, the untrained model's as rings behind."""
    scale = Scale(measured)
    layers = sorted({row["layer"] for one in measured for row in one.rows if finite(row["layer"]) is not None})
    ends = (layers[0] - 0.4, layers[-1] + 0.4) if layers else (0.0, 1.0)
    labels = dict.fromkeys(label for one in measured for label in one.choose_steps())
    keys = [
        Key(label, "untrained" if label == "untrained heads" else colour, style="rings" if "un" in label else "points")
        for label in labels
    ]
    panels = {
        one.title: [
            *scale.lines(one, ends),
            *(
                {
                    "mark": "ring" if label == "untrained heads" else "point",
                    "label": label,
                    "x": row["layer"],
                    "y": scale.place(one, row["value"]),
                    "text": f"{label}: layer {row['layer']}, head {row['head']}\n{scale.text(one, row['value'])}",
                    "link": one.link,
                }
                for label, rows in one.choose_steps().items()
                for row in rows
            ),
        ]
        for one in measured
    }
    return Figure(
        name=name,
        title=title,
        panels=draw_curves(panels, keys, Axis("layer", ticks=layers, domain=ends), scale.axis),
        keys=keys,
        alt=" ".join(["Mean over the heads:", *(describe_heads(one, scale) for one in measured)]),
        caption=f"{caption}{scale.note()}",
        files=list_files(measured),
    )


def describe_heads(one: Measured, scale: Scale) -> str:
    """The mean over heads of the first and the last layer, at the last step."""
    means = {layer: list(by_step.values())[-1] for layer, by_step in one.average_layers().items()}
    ends = [
        f"{scale.text(one, means[layer])} in layer {layer}"
        for layer in dict.fromkeys((*means,)[:: len(means) - 1 or 1])
    ]
    return f"{one.title + ': ' if one.title else ''}{'; '.join(ends)}."


def draw_layers(name: str, title: str, measured: Sequence[Measured], caption: str = "") -> Figure:
    """A panel per run: the mean over each layer's heads against the training step."""
    scale = Scale(measured)
    means = [one.average_layers() for one in measured]
    last = max((step for of_run in means for by_step in of_run.values() for step in by_step), default=1)
    layers = sorted({layer for of_run in means for layer in of_run})
    keys = []
    for place, layer in enumerate(layers):
        colour, marker = group_look(place)
        keys.append(Key(f"layer {layer}", colour, marker, DASHES[place // len(ACCENTS) % len(DASHES)]))
    panels = {
        one.title: [
            *scale.lines(one, (0, last)),
            *(
                {
                    "mark": mark,
                    "label": f"layer {layer}",
                    "x": step,
                    "y": scale.place(one, value),
                    "text": f"layer {layer}, step {whole(step)}\n{scale.text(one, value)}",
                    "link": one.link,
                }
                for layer, by_step in of_run.items()
                for step, value in by_step.items()
                for mark in ("line", "point")
            ),
        ]
        for one, of_run in zip(measured, means, strict=True)
    }
    return Figure(
        name=name,
        title=title,
        panels=draw_curves(panels, keys, Axis("training step", zero=True, short=last >= 1e4), scale.axis),
        keys=keys,
        alt=" ".join(["Mean over the heads:", *(describe_layers(one, scale) for one in measured)]),
        caption=caption,
        files=list_files(measured),
    )


def describe_layers(one: Measured, scale: Scale) -> str:
    """How far the first and the last layer came."""
    means = one.average_layers()
    ends = []
    for layer in dict.fromkeys((*means,)[:: len(means) - 1 or 1]):
        values = list(means[layer].values())
        ends.append(f"layer {layer} from {scale.text(one, values[0])}, to {scale.text(one, values[-1])}")
    return f"{one.title + ': ' if one.title else ''}{'; '.join(ends)}."


def list_files(measured: Sequence[Measured]) -> list[tuple[str, str]]:
    from urllib.parse import quote

    return [(one.title, f"{one.link}analysis/{quote(one.analysis['name'])}.json") for one in measured if one.link]
