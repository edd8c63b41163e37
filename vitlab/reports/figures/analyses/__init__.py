"""How the findings of an analysis are drawn: one module per kind of drawing, chosen by `drawings` in its YAML.

A module has `figures(findings, config, title)`, which gives figures, each with a name of its own. The module of an
analysis knows nothing of them; what they draw is its rows, or the first of its arrays.
"""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.registry import implementation
from vitlab.reports.figures.figure import Axis, Figure


def draw_findings(findings: Findings, config: AnalysisConfig, source: str) -> Iterator[Figure]:
    """Every figure of what an analysis found in a model; the title names the `source`. Raises UserError."""
    for kind in config.drawings:
        module = implementation("vitlab.reports.figures.analyses", kind, "figures")
        yield from module.figures(findings, config, f"{source}: {config.title}")


def value_axis(findings: Findings, label: str) -> Axis:
    """The axis of an analysis's values, from 0: shares in percent, others with their unit."""
    percent = findings.unit == "share"
    text = f"{label} ({findings.unit})" if findings.unit and not percent else label
    return Axis(text, percent=percent, zero=True)
