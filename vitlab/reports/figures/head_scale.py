"""The axis of what an analysis measures of heads, and the references that it is read against.

The first reference of an analysis, uniform attention, is 100%: so small differences show, and models with other grids
compare. An analysis without references, as older runs have it, is drawn in its own unit and from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vitlab.formatting import finite, significant
from vitlab.reports.figures.spec import Axis, Series

Analysis = dict[str, Any]
FAR = 4.0  # times the spread of the values: a reference that would stretch the axis further is only named
DASHES = ("dash", "dot", "dashdot")


def read_references(analysis: Analysis) -> dict[str, float]:
    """name -> value in the analysis's unit; empty where the first, the 100%, is missing or 0."""
    references = {name: finite(value) for name, value in (analysis.get("references") or {}).items()}
    references = {name: value for name, value in references.items() if value is not None}
    return references if next(iter(references.values()), 0.0) > 0 else {}


@dataclass(frozen=True)
class HeadScale:
    """One scale for all panels of a figure. `references` are those of the first analysis, empty where one has none."""

    measured: str
    unit: str
    references: dict[str, float]
    low: float  # of the drawn values and the 100%, as they are drawn
    high: float

    @classmethod
    def of(cls, drawn: Sequence[tuple[Analysis, Sequence[float]]]) -> "HeadScale":
        """For analyses, each with the values that are drawn of it."""
        first = drawn[0][0]
        references = [read_references(analysis) for analysis, _ in drawn]
        relative = all(references)
        places = [
            value / next(iter(reference.values())) if relative else value
            for (_, values), reference in zip(drawn, references, strict=True)
            for value in values
        ]
        if relative:
            places.append(1.0)
        return cls(
            measured=str(first.get("name") or "value").replace("_", " "),
            unit=str(first.get("unit") or ""),
            references=references[0] if relative else {},
            low=min(places, default=0.0),
            high=max(places, default=0.0),
        )

    @property
    def uniform(self) -> str:
        """The name of the 100%; empty without references."""
        return next(iter(self.references), "")

    def place(self, analysis: Analysis, value: float) -> float:
        """Where a value lies on the axis: its share of what the same grid's 100% is."""
        return value / next(iter(read_references(analysis).values())) if self.references else value

    def text(self, analysis: Analysis, value: float) -> str:
        """`15.3 pixels, 83% of uniform attention`"""
        text = f"{significant(value)} {self.unit}".rstrip()
        return f"{text}, {self.place(analysis, value):.0%} of {self.uniform}" if self.references else text

    def axis(self) -> Axis:
        if not self.references:
            return Axis(f"{self.measured} ({self.unit})" if self.unit else self.measured, from_zero=True)
        return Axis(f"{self.measured}, % of uniform", percent=True, from_zero=self.reaches(0.0))

    def reaches(self, place: float) -> bool:
        """Whether the axis can begin or end there with the values still told apart."""
        return max(self.high, place) - min(self.low, place) <= FAR * (self.high - self.low)

    def lines(self, analysis: Analysis, ends: tuple[float, float]) -> list[Series]:
        """A line across a panel for each reference, to be drawn first; one that is too far off is only listed."""
        lines = []
        for dash, (name, value) in zip(
            DASHES, read_references(analysis).items() if self.references else (), strict=False
        ):
            place = self.place(analysis, value)
            label = f"{name}: {significant(value)} {self.unit}".rstrip()
            if name != self.uniform:
                label += f", {place:.0%}" if self.reaches(place) else f", {place:.0%}, off this scale"
            shown = self.reaches(place)
            lines.append(
                Series(
                    label=label,
                    x=ends if shown else (),
                    y=(place, place) if shown else (),
                    colour_key="muted",
                    style="line",
                    dash=dash,
                    width=1.4,
                    note=label,
                )
            )
        return lines
