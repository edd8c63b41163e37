"""A table of values as shaded cells: a row and a column per layer."""

from collections.abc import Iterator

from omegaconf import DictConfig

from vitlab.analysis.findings import Findings
from vitlab.reports.figure import HeatMap
from vitlab.reports.links import file_stem


def figures(found: Findings, config: DictConfig, title: str) -> Iterator[HeatMap]:
    """Of rows with "layer", "other" and "value" in 0..1; a value that is None has no shade."""
    cells = {(row["layer"], row["other"]): row["value"] for row in found.rows}
    rows, columns = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    values = [[cells.get((row, column)) for column in columns] for row in rows]
    yield HeatMap(
        name=file_stem(found.name),
        title=title,
        x="layer",
        y="layer",
        rows=[str(row) for row in rows],
        columns=[str(column) for column in columns],
        values=values,
        texts=[["" if value is None else f"{value:.2f}" for value in line] for line in values],
        scale=found.unit,
        ends=(0.0, 1.0),
    )
