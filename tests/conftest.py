"""What all tests share."""

import os
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest
from filelock import FileLock

# of this process and those that it starts: they import torch, three times as fast from bytecode
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a test process on each core; the models are tiny
ROOT = Path(__file__).resolve().parent.parent
forkserver.set_forkserver_preload(["vitlab.studies.worker"])  # once, not in each process that a test starts

# the files that take longest come first; the many short ones fill the cores at the end
LONGEST = (
    "integration/test_matrix.py integration/test_gpu_rules.py integration/test_scale.py integration/test_resume.py"
)
LONGEST += " unit/studies/test_worker.py unit/test_docs.py regression/test_recorded.py unit/training/test_devices.py"
LONGEST_UNIT = 10  # seconds of processor time: 3 on a fast machine, and some are three times slower


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """A worker on each core that this process may use, up to 8: each of them imports torch."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


def pytest_collection_modifyitems(items):
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST.split())}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Fail an unmarked unit test that computes for long; the first that imports a library is let off."""
    modules, before = len(sys.modules), time.process_time()
    result = yield
    seconds = time.process_time() - before
    unmarked = ROOT / "tests/unit" in pyfuncitem.path.parents and not pyfuncitem.get_closest_marker("slow")
    if unmarked and seconds > LONGEST_UNIT and len(sys.modules) < modules + 100:
        pytest.fail(f"{seconds:.1f} s of processor time: make it smaller, or mark it slow")
    return result


@pytest.fixture(scope="session")
def made_once(tmp_path_factory, request):
    """Gives a folder that the first test process that asks for it makes, for all of them: made_once(name, make)."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if hasattr(request.config, "workerinput") else root

    def get(name, make):
        folder, done = root / name, root / f"{name}.made"
        with FileLock(root / f"{name}.lock"):
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return get


@pytest.fixture(autouse=True, scope="session")
def private_home(made_once):
    """Decoded images, tokens, HOME and logins lie below the tests' own folder; nobody's W&B or Hugging Face is set."""
    home = made_once("home", Path.mkdir)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("WANDB_", "HF_", "XDG_", "VITLAB_"))]:
            patch.delenv(name)
        patch.setenv("VITLAB_CACHE", str(made_once("cache", Path.mkdir)))
        patch.setenv("HOME", str(home))
        patch.setenv("NETRC", str(home / "netrc"))
        patch.chdir(home)
        yield


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test stands in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers, alone or among others."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
