"""A point per head against the layer; of more than two steps also a line per layer against the step."""

from collections.abc import Iterator

from omegaconf import DictConfig

from vitlab.analysis.findings import Findings
from vitlab.reports import figures as of_studies
from vitlab.reports import layers_by_step
from vitlab.reports.figure import Figure


def figures(found: Findings, config: DictConfig, title: str) -> Iterator[Figure]:
    """Of rows with "step", "layer", "head" and "value"."""
    analysis = {"name": found.name, "unit": found.unit, "rows": found.rows}
    yield of_studies.by_head(analysis, title)
    if layers_by_step.between(analysis):
        yield layers_by_step.figure(layers_by_step.named(found.name), f"{title} while training", [(analysis, "", "")])
