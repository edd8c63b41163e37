"""A point per head against the layer; of more than two steps also a line per layer against the step."""

from collections.abc import Iterator

from omegaconf import DictConfig

from vitlab.analysis.capture.findings import Findings
from vitlab.reports.figures import by_step
from vitlab.reports.figures import scaling_curve as of_studies
from vitlab.reports.figures.spec import Figure


def figures(found: Findings, config: DictConfig, title: str) -> Iterator[Figure]:
    """Of rows with "step", "layer", "head" and "value"."""
    analysis = {"name": found.name, "unit": found.unit, "rows": found.rows}
    yield of_studies.by_head(analysis, title)
    if by_step.between(analysis):
        yield by_step.figure(by_step.named(found.name), f"{title} while training", [(analysis, "", "")])
