"""What all tests share."""

import os
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores; the models are tiny
ROOT = Path(__file__).resolve().parent.parent
forkserver.set_forkserver_preload(["vitlab.studies.worker"])  # once, not in each process that a test starts


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Decoded images and tokens go below the tests' own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers, alone or among others."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
