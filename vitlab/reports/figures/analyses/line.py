"""A line: values against a number, such as the layer. One figure per "kind" of row."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.formatting import significant
from vitlab.reports.figures.analyses import value_axis
from vitlab.reports.figures.figure import Axis, Figure, Key, draw_curves
from vitlab.reports.urls import file_stem

OTHER = ("kind", "step", "value")


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of rows with "value", a number under another key, and perhaps "kind"; `config.axes` names the axis of each."""
    kinds = list(dict.fromkeys(row.get("kind") for row in found.rows))
    axes = vars(config).get("axes") or {}
    for kind in kinds:
        rows = [row for row in found.rows if row.get("kind") == kind]
        key = next(key for key in rows[0] if key not in OTHER)
        label = axes.get(kind, key)
        ends = [f"{significant(row['value'])} at {row[key]}" for row in (rows[0], rows[-1])]
        entry = Key(kind or found.name, "vit")
        points = [
            {
                "mark": mark,
                "label": entry.label,
                "x": row[key],
                "y": row["value"],
                "text": f"{label} {row[key]}\n{significant(row['value'])}",
            }
            for row in rows
            for mark in ("line", "point")
        ]
        across = Axis(label, ticks=sorted(row[key] for row in rows))
        yield Figure(
            name=file_stem(f"{found.name}-{kind or 'curve'}"),
            title=f"{title}, {kind}" if kind else title,
            panels=draw_curves({"": points}, [entry], across, value_axis(found, config.title)),
            keys=[entry],
            alt=f"{ends[0]}, {ends[1]}.",
        )
