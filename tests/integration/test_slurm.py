"""`vitlab scale --executor slurm` on a real SLURM of one node: submit, leave, look, collect."""

import json
import time

import pytest

from tests.conftest import ROOT
from tests.integration import commands
from tests.integration.test_scale import table
from tests.slurm import one_node

STUDY = ["quick", "data=digits", "sizes=[60,150]", "seeds=[0]", "budget.steps=20", "trainer.evaluations=1"]
STUDY += ["analyses=[]", "wandb.mode=off", "trainer.threads=1"]


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    with one_node(tmp_path_factory.mktemp("slurm")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


def status(folder):
    done = commands.succeed("status", folder, "--json")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_submit_leave_look_and_collect_gives_what_this_machine_gives(tmp_path):
    folder, here = tmp_path / "slurm", tmp_path / "here"
    words = ["scale", *STUDY, "--executor", "slurm", "--out", folder]
    done = commands.succeed(*words, "--detach")
    assert done.stdout.startswith("Started 4 workers")
    assert status(folder)["failed"] == 0
    end = time.monotonic() + 300
    while status(folder)["finished"] < 4:
        assert time.monotonic() < end, status(folder)
        time.sleep(1)
    assert not (folder / "results.csv").exists()
    commands.succeed(*words)
    assert (folder / "report.html").is_file()
    commands.succeed("scale", *STUDY, "--jobs", "2", "--out", here)
    assert table(folder) == table(here)
