"""The figures of a study: one module each, found by listing the folder.

A module has `draw(results)`, which gives figures with caption and links to their data, none where the study has no
data for them. They come in the order of their PLACE; the report, figures/ and W&B show all.
"""

from collections.abc import Iterator
from importlib import import_module

from vitlab.registry import list_modules
from vitlab.reports.figures.figure import Figure
from vitlab.studies.results import Results


def draw_study(results: Results) -> Iterator[Figure]:
    modules = [import_module(f"{__name__}.{name}") for name in list_modules(__name__)]
    for module in sorted(modules, key=lambda module: module.PLACE):
        yield from module.draw(results)
