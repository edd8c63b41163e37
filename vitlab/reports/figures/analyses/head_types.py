"""A point per head against the layer, in the colour and marker of its type."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.formatting import plural, significant
from vitlab.reports.figures.analyses import value_axis
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.figures.theme import group_look
from vitlab.reports.urls import file_stem

KEYS = ("step", "layer", "head", "type", "value")
NO_PATTERN = ("mixed", "none")  # of a head that no single pattern fits
APART = 0.08  # layers between two heads of one layer: equal scores stay visible


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of the last step's rows with "layer", "head", "value", and what the head is, beside all that it could be.

    That is "type" and a score under the name of each type; or "label" and "scores" by pattern, or no single pattern. A
    type looks the same in every figure, whichever types its model has.
    """
    last = [row for row in found.rows if row["step"] == found.rows[-1]["step"]]
    heads = max((row["head"] for row in last), default=1)
    labelled = "label" in last[0]
    types = [*last[0]["scores"], *NO_PATTERN] if labelled else [key for key in last[0] if key not in KEYS]
    keys: list[Key] = []
    points = []
    counts = []
    for place, kind in enumerate(types):
        rows = [row for row in last if row["label" if labelled else "type"] == kind]
        if not rows:
            continue
        colour, marker = group_look(place)
        keys.append(Key(kind, colour, marker, style="points"))
        counts.append(f"{kind}: {plural(len(rows), 'head')}.")
        points += [
            {
                "mark": "point",
                "label": kind,
                "x": row["layer"] + min(APART, 0.6 / heads) * (row["head"] - (heads + 1) / 2),
                "y": row["value"],
                "text": f"layer {row['layer']}, head {row['head']}: {kind}\n{significant(row['value'])}",
            }
            for row in rows
        ]
    only = f", all {keys[0].label}" if len(keys) == 1 else ""  # a legend of one is not drawn
    layers = sorted({row["layer"] for row in last})
    value = value_axis(found, "best pattern" if labelled else "score of the type")
    yield Figure(
        name=file_stem(f"{found.name}-labels" if labelled else found.name),
        title=f"{title}{only}",
        panels=draw_curves({"": points}, keys, Axis("layer, its heads side by side", ticks=layers), value),
        keys=keys,
        alt=" ".join(counts),
    )
