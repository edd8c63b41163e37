"""A point per head against the layer; of more than two steps also a line per layer against the step."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.figure import Figure
from vitlab.reports.figures.heads import Measured, draw_heads, draw_layers
from vitlab.reports.urls import file_stem


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of rows with "step", "layer", "head" and "value"."""
    measured = Measured(found.to_dict())
    yield draw_heads(file_stem(found.name), title, [measured], "vit")
    if len(measured.steps) > 2:
        yield draw_layers(file_stem(f"{found.name}-by-step"), f"{title} while training", [measured])
