"""What `import vitlab` offers: to the program, to a type checker, to `help`."""

import ast
import importlib
from pathlib import Path

import pytest
from mypy import api

import vitlab

CONFIG = """
[mypy]
follow_imports = skip
[mypy-vitlab.*]
follow_imports = silent
"""  # without torch's own types, which take a minute
PROGRAM = """\
import torch
import vitlab

model = vitlab.build_model("vit_nano", num_classes=10, image_size=24)
for layer, maps in vitlab.attention_maps(model, torch.rand(2, 3, 24, 24)):
    print(layer + 1, vitlab.attention_distance(maps, grid_size=(4, 4), patch_size=6, prefix_tokens=0))
sizes, errors = [1000, 2000, 4000, 8000], ([0.42, 0.31, 0.23, 0.17], [0.60, 0.39, 0.25, 0.16])
small, large = (vitlab.fit_scaling_law(sizes, of_model) for of_model in errors)
print(small.interval(32000), vitlab.crossover(small, large), vitlab.load_results("runs/arrow").cells)
encoder = vitlab.TransformerEncoder(64, depth=2, mixer=torch.nn.Identity, mlp=torch.nn.Identity)
"""
WRONG = """\
vitlab.fit_scaling_laws
vitlab.attention_distance(maps, grid=(4, 4), patch_size=6, prefix_tokens=0)
vitlab.load_results("runs/arrow").cell
vitlab.ViT(width="64")
"""


def test_a_type_checker_sees_what_a_program_imports(tmp_path):
    (tmp_path / "mypy.ini").write_text(CONFIG)
    (tmp_path / "program.py").write_text(PROGRAM + WRONG)
    options = "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")
    said, failed, _ = api.run([*options, "--no-error-summary", str(tmp_path / "program.py")])
    assert not failed
    wrong = {int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line}
    first = PROGRAM.count("\n") + 1
    assert wrong == {*range(first, first + WRONG.count("\n"))}, said


def test_types_names_and_help_are_of_the_same_things():
    block = next(node for node in ast.parse(Path(vitlab.__file__).read_text()).body if isinstance(node, ast.If))
    typed = {alias.asname: node.module for node in block.body for alias in node.names}
    assert typed == vitlab._HOME
    assert [name for name in typed if f"`{name}`" not in vitlab.__doc__] == []
    for name, home in typed.items():
        assert getattr(vitlab, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="module 'vitlab' has no attribute 'fit'"):
        _ = vitlab.fit
