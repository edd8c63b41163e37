"""How the findings of an analysis are drawn: each drawing is a function, chosen by name by `drawings` in its YAML.

A module lists its functions in `DRAWINGS`. A drawing takes (findings, config, title) and gives figures, each with a
name of its own; a user's own module has it as `figures`. The module of an analysis knows nothing of them; what they
draw is its rows, or the first of its arrays.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from vitlab.analysis.capture.findings import Findings
from vitlab.config import UserError
from vitlab.config.schema import AnalysisConfig
from vitlab.registry import implementation, list_modules
from vitlab.reports.figures.figure import Figure


@cache
def list_drawings() -> dict[str, Callable[..., Iterator[Figure]]]:
    modules = [import_module(f"{__name__}.{name}") for name in list_modules(__name__)]
    return {drawing.__name__: drawing for module in modules for drawing in module.DRAWINGS}


def draw_findings(findings: Findings, config: AnalysisConfig, source: str) -> Iterator[Figure]:
    """Every figure of what an analysis found in a model; the title names the `source`. Raises UserError."""
    for kind in config.drawings:
        drawing: Any = list_drawings().get(kind)
        if drawing is None and "." not in kind:
            raise UserError(
                f"drawings: {kind}: choose from {', '.join(sorted(list_drawings()))}, or your own as PACKAGE.MODULE"
            )
        drawing = drawing or implementation("", kind, "figures").figures
        yield from drawing(findings, config, f"{source}: {config.title}")
