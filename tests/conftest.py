"""What all tests share."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores; the models are tiny
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers, alone or among others."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
