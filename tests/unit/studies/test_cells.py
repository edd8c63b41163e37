"""What the files of a run say of it."""

import os
import signal
import subprocess
import sys
import time

from vitlab.files import create_json
from vitlab.studies.cells import CellReader
from vitlab.training import lease as leases
from vitlab.training.files import RunFiles
from vitlab.training.lease import hold

HOLDER = (
    "import sys, time\nfrom vitlab.training.lease import hold\nwith hold(sys.argv[1]):\n    print()\n    time.sleep(99)"
)

RESULT = {"study": "s", "run": "a", "model": "m", "train_size": 7, "seed": 0, "accuracy": 0.5}


def test_a_run_waits_runs_fails_runs_again_is_finished_and_is_added_to(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.05)
    cells, files = CellReader(tmp_path), RunFiles(tmp_path / "a")
    assert cells.read("a").state == "waiting"
    with hold(files.folder) as lease:
        assert (cells.read("a").state, cells.read("a").where) == ("running", lease.claim.holder)
        lease.progress = {"step": 3, "steps": 7}
        end = time.monotonic() + 30
        while cells.read("a").progress is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        files.write_error("the loss is nan")
    failed = cells.read("a")
    assert (failed.state, failed.error, failed.progress.step) == ("failed", "the loss is nan", 3)
    with hold(files.folder):
        assert cells.read("a").state == "running"
        files.error_path.unlink()
        create_json(files.result_path, RESULT)
        assert cells.read("a").state == "running", "while something is added"
    assert (cells.read("a").state, cells.read("a").result) == ("finished", RESULT)


def test_a_run_whose_process_was_killed_waits_for_who_has_seen_it(tmp_path):
    holder = subprocess.Popen([sys.executable, "-uc", HOLDER, str(tmp_path / "a")], stdout=subprocess.PIPE)
    holder.stdout.readline()
    cells = CellReader(tmp_path)
    assert cells.read("a").state == "running"
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    cell = cells.read("a")
    assert cell.state == "waiting"
    with hold(tmp_path / "a", expired=cell.expired) as lease:
        assert lease.claim.generation == 2
