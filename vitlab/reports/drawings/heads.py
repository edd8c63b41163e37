"""A point per head against the layer."""

from collections.abc import Iterator

from omegaconf import DictConfig

from vitlab.analysis.findings import Findings
from vitlab.reports import figures as of_studies
from vitlab.reports.figure import Figure


def figures(found: Findings, config: DictConfig, title: str) -> Iterator[Figure]:
    """Of rows with "step", "layer", "head" and "value"."""
    yield of_studies.by_head({"name": found.name, "unit": found.unit, "rows": found.rows}, title)
