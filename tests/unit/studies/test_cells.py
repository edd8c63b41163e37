"""What the files of a run say of it."""

import json
import os
import signal
import subprocess
import sys

from vitlab.files import create_json, write_json
from vitlab.studies.claims import hold
from vitlab.studies.status import StatusReader
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

HOLDER = (
    "import sys, time\nfrom vitlab.studies.claims import hold\nwith hold(sys.argv[1]):\n    print()\n    time.sleep(99)"
)

NAME = "a-n7-s0"
RESULT = {"study": "s", "run": NAME, "model": "m", "train_size": 7, "seed": 0, "accuracy": 0.5}


def read_state(folder):
    return StatusReader(StudyFiles(folder)).read_run("a", 7, 0)


def test_a_run_waits_runs_fails_runs_again_is_finished_and_is_added_to(tmp_path):
    files = RunFiles(tmp_path / NAME)
    assert read_state(tmp_path).state == "waiting"
    with hold(files.folder) as held:
        cell = read_state(tmp_path)
        assert (cell.state, cell.claim.holder, cell.progress) == ("running", str(held.owner), None)
        write_json(files.data_path, {"sha256": "", "steps": 7})
        rows = [{"step": 2, "wall_s": 1.0, "train/loss": 2.5}, {"step": 3, "wall_s": 1.5, "train/loss": 2.0}]
        rows += [{"step": 3, "validation/accuracy": 0.5}]
        files.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        progress = read_state(tmp_path).progress
        assert (progress.step, progress.steps, progress.seconds_left, progress.loss) == (3, 7, 2.0, 2.0)
        assert progress.validation == {"accuracy": 0.5}
        files.write_error("the loss is nan")
    failed = read_state(tmp_path)
    assert (failed.state, failed.error, failed.progress.step) == ("failed", "the loss is nan", 3)
    with hold(files.folder):
        assert read_state(tmp_path).state == "running"
        files.error_path.unlink()
        create_json(files.result_path, RESULT)
        assert read_state(tmp_path).state == "running", "while something is added"
    finished = read_state(tmp_path)
    assert (finished.state, finished.result) == ("finished", RESULT)


def test_a_run_whose_process_was_killed_waits(tmp_path):
    owner = subprocess.Popen([sys.executable, "-uc", HOLDER, str(tmp_path / NAME)], stdout=subprocess.PIPE)
    owner.stdout.readline()
    assert read_state(tmp_path).state == "running"
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert read_state(tmp_path).state == "waiting"
    with hold(tmp_path / NAME) as held:
        assert held.number == 2
