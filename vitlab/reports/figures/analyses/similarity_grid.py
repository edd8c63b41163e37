"""A grid of small maps: at each place how alike it is to every place."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.backends.image_grid import shaded
from vitlab.reports.figures.spec import Tiles
from vitlab.reports.urls import file_stem

ENDS = (-1.0, 1.0)


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Tiles]:
    """Of an array (rows, columns, Y, X) of values in -1..1."""
    rows, columns = found.array.shape[:2]
    yield Tiles(
        name=file_stem(found.name),
        title=title,
        images=shaded(found.array, ENDS),
        rows=[str(row + 1) for row in range(rows)],
        columns=[str(column + 1) for column in range(columns)],
        x="column of the patch",
        y="row of the patch",
        scale=found.unit,
        ends=ENDS,
    )
