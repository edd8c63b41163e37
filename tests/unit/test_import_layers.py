"""Data flows one way and OmegaConf stays in vitlab.config: the contracts of pyproject.toml, by import-linter."""

import tomllib
from pathlib import Path

from importlinter.cli import lint_imports

import vitlab

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = ROOT / "pyproject.toml"


def contract():
    found, _ = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    return found


def test_a_module_imports_only_from_the_layers_below_it(capsys):
    broken = lint_imports(str(PYPROJECT), no_cache=True)
    assert not broken, capsys.readouterr().out


def test_every_module_is_in_a_layer():
    package = Path(vitlab.__file__).parent
    modules = {p.stem for p in package.glob("*.py")} | {p.parent.name for p in package.glob("*/__init__.py")}
    assert {f"vitlab.{name}" for name in modules - {"__init__"}} == set(contract()["layers"])
