"""A grid of small maps: at each place how alike it is to every place."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.cells import draw_tiles, shade_values
from vitlab.reports.figures.figure import Figure
from vitlab.reports.urls import file_stem

ENDS = (-1.0, 1.0)


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of an array (rows, columns, Y, X) of values in -1..1."""
    rows, columns = found.array.shape[:2]
    chart = draw_tiles(
        shade_values(found.array, ENDS),
        [str(row + 1) for row in range(rows)],
        [str(column + 1) for column in range(columns)],
        x="column of the patch",
        y="row of the patch",
        scale=found.unit,
        ends=ENDS,
    )
    yield Figure(file_stem(found.name), title, {"": chart})
