"""A table of values as shaded cells: a row and a column per layer, named where the names are short."""

from collections.abc import Iterator
from pathlib import Path

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.cells import LETTERS, draw_cells
from vitlab.reports.figures.figure import Figure
from vitlab.reports.urls import file_stem


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of rows with "layer", "other" and "value" in 0..1, perhaps "name" and "other_name" of the two.

    With `config.other` the columns are the layers of that run. A value that is None has no shade.
    """
    cells = {(row["layer"], row["other"]): row["value"] for row in found.rows}
    rows, columns = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    against = vars(config).get("other")
    values = [[cells.get((row, column)) for column in columns] for row in rows]
    chart = draw_cells(
        values,
        labels({row["layer"]: row.get("name", "") for row in found.rows}),
        labels({row["other"]: row.get("other_name", "") for row in found.rows}),
        x=f"layer of {Path(against).name}" if against else "layer",
        y="layer",
        texts=[["" if value is None else f"{value:.2f}" for value in line] for line in values],
        scale=found.unit,
        ends=(0.0, 1.0),
    )
    yield Figure(file_stem(found.name), title, {"": chart})


def labels(names: dict[int, str]) -> list[str]:
    """The names of layers in their order; their numbers where one has no name, or one that would be cut."""
    readable = all(name and len(name) <= LETTERS for name in names.values())
    return [names[layer] if readable else str(layer) for layer in sorted(names)]
