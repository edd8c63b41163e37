"""What drawings of several groups of points share; no drawing itself."""

from vitlab.analysis.capture.findings import Findings
from vitlab.reports.figures.spec import Axis
from vitlab.reports.figures.theme import FIXED, MARKERS, OTHERS

COLOURS = (*FIXED, *OTHERS)


def look(place: int) -> tuple[str, str]:
    """The colour key and the marker of a group: 25 groups differ in one of the two."""
    return COLOURS[place % len(COLOURS)], MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]


def measured(found: Findings, label: str, from_zero: bool = False) -> Axis:
    """The axis of an analysis's values: shares in percent, others with their unit."""
    percent = found.unit == "share"
    text = f"{label} ({found.unit})" if found.unit and not percent else label
    return Axis(text, percent=percent, from_zero=from_zero)
