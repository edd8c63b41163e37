"""The wheel in an environment of its own: what it holds, and that it runs away from the checkout."""

import os
import subprocess
import tomllib
from zipfile import ZipFile

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_a_wheel_installs_and_runs_in_an_empty_environment(tmp_path):
    def run(*words):
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run(words, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True).stdout

    run("uv", "build", "--wheel", "--out-dir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as file:
        held = set(file.namelist())
    shipped = {f"vitlab/{path.relative_to(ROOT)}" for path in ROOT.glob("configs/**/*.yaml")}
    assert {"vitlab/py.typed", *shipped} <= held

    def vitlab(*words):
        return run("uv", "run", "--isolated", "--no-project", "--with", str(wheel), "vitlab", *words)

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert vitlab("--version") == f"{version}\n"
    assert "vit_nano" in vitlab("list", "models")
    vitlab("train", "model=vit_nano", "data=digits", "budget.steps=2", "wandb.mode=off", "analyses=[]", "--out", "run")
    assert (tmp_path / "run" / "result.json").is_file()
