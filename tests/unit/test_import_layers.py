"""Data flows one way and OmegaConf stays in vitlab.config: the contracts of pyproject.toml, by import-linter."""

import ast
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

from importlinter.cli import lint_imports

import vitlab

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = ROOT / "pyproject.toml"


def contract():
    found, *_ = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    return found


def test_a_module_imports_only_from_the_layers_below_it(capsys):
    broken = lint_imports(str(PYPROJECT), no_cache=True)
    assert not broken, capsys.readouterr().out


def test_every_module_is_in_a_layer():
    package = Path(vitlab.__file__).parent
    modules = {p.stem for p in package.glob("*.py")} | {p.parent.name for p in package.glob("*/__init__.py")}
    assert {f"vitlab.{name}" for name in modules - {"__init__"}} == set(contract()["layers"])


def read_imports(path):
    """Yield what a module imports at its top, inside functions and by name in strings; not for types alone."""
    stack = [ast.parse(path.read_text())]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"vitlab(\.\w+)+", str(node.value)):
            yield node.value
        of_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        stack += node.orelse if of_types else ast.iter_child_nodes(node)


def read_graph():
    """Read which modules each module imports or names."""
    package = Path(vitlab.__file__).parent
    paths = {".".join(p.relative_to(package.parent).with_suffix("").parts): p for p in package.rglob("*.py")}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph = {name: {n if n in paths else n.rpartition(".")[0] for n in read_imports(p)} for name, p in paths.items()}
    return {name: (of & paths.keys()) - {name} for name, of in graph.items()}


def test_no_module_imports_itself_through_others():
    assert [*TopologicalSorter(read_graph()).static_order()]  # raises CycleError, which names the circle


def test_no_module_names_a_module_of_a_layer_above_in_a_string():
    """import-linter sees no strings; `vitlab` itself is in no layer, and hands on what it names."""
    places = {layer: place for place, layer in enumerate(contract()["layers"])}
    graph = {name: of for name, of in read_graph().items() if name != "vitlab"}
    of = {name: places[".".join(name.split(".")[:2])] for name in graph}
    assert [(name, other) for name in graph for other in graph[name] - {"vitlab"} if of[other] < of[name]] == []
