"""The project stays as light as it is: `[tool.weight]` of pyproject.toml is only ever lowered."""

import subprocess
import sys

from tests.conftest import ROOT


def test_the_project_is_within_its_weight():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "weight.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
