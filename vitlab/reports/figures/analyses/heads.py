"""A point per head against the layer; of more than two steps also a line per layer against the step."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures import layers_by_step
from vitlab.reports.figures.heads_by_layer import plot_heads
from vitlab.reports.figures.spec import Figure


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of rows with "step", "layer", "head" and "value"."""
    analysis = found.to_dict()
    yield plot_heads(analysis, title)
    if layers_by_step.has_steps_between(analysis):
        yield layers_by_step.plot_layers(
            layers_by_step.name_figure(found.name), f"{title} while training", [(analysis, "", "")]
        )
