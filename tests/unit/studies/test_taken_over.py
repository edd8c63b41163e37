"""A run whose process was suspended is taken over, and what wakes up late writes nothing more. Real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.runs import train_run
from vitlab.commands.scale import find_missing
from vitlab.config import TrainConfig, compose
from vitlab.console import Console
from vitlab.studies import claims
from vitlab.studies.claims import hold, path_of
from vitlab.studies.grid import compose_study
from vitlab.studies.plan import plan_study
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

WORDS = ["model=resnet_nano", "data=digits", "train_size=60", "recipe.batch_size=8", "budget.steps=60"]
WORDS += ["wandb.mode=off", "analyses=[]", "trainer.threads=1", "trainer.evaluations=2", "trainer.log_every=1"]
WORDS += ["trainer.checkpoint_every=0"]
SLOW = f"""
import sys, time
from vitlab.commands.scale import find_missing
from vitlab.config import TrainConfig, compose
from vitlab.studies.claims import ClaimLost
from tests.runs import train_run

try:
    train_run(compose(TrainConfig, {WORDS}), sys.argv[1], stop=lambda: time.sleep(0.1))
except ClaimLost as error:
    sys.exit(str(error))
"""


def list_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_process_that_wakes_up_when_another_has_finished_its_run_leaves_it_alone(tmp_path):
    folder = tmp_path / "run"
    slow = subprocess.Popen([sys.executable, "-c", SLOW, str(folder)], stderr=subprocess.PIPE, text=True)
    try:
        files, end = RunFiles(folder), time.monotonic() + 300
        while not files.checkpoint_path.exists() or len(files.metrics()) < 5:
            assert slow.poll() is None, slow.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.05)
        slow.send_signal(signal.SIGSTOP)
        claim = path_of(folder, 1)  # as of another host, seen untouched for a while
        claim.write_text(json.dumps({**json.loads(claim.read_text()), "host": "elsewhere"}))
        claims.SEEN[claim] = (claim.stat().st_mtime, time.monotonic() - 100, True)
        result = train_run(compose(TrainConfig, WORDS), folder)
        (folder / "checkpoints" / ".last.ckpt.x.tmp").touch()  # as a process leaves it that is killed as it writes
        before = list_files(folder)
        slow.send_signal(signal.SIGCONT)
        _, said = slow.communicate(timeout=60)
    finally:
        slow.kill()
    assert slow.returncode == 1
    assert said.endswith("another vitlab has taken it over, after no heartbeat of this one\n")
    assert list_files(folder) == before
    whole = train_run(compose(TrainConfig, WORDS), tmp_path / "whole")
    for key in ("loss", "accuracy", "train_loss"):
        assert result[key] == whole[key]
    assert [row["step"] for row in files.metrics()] == [row["step"] for row in RunFiles(tmp_path / "whole").metrics()]


def test_what_killed_writers_leave_is_removed_by_who_goes_on(tmp_path):
    class Enough(Exception):
        pass

    def stop():
        raise Enough

    config = compose(TrainConfig, WORDS)
    with pytest.raises(Enough):
        train_run(config, tmp_path, stop=stop)
    left = [tmp_path / ".config.yaml.x.tmp", tmp_path / "checkpoints" / ".last.ckpt.x.tmp"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(9))
    with pytest.raises(Enough):
        train_run(config, tmp_path, stop=stop)
    assert not any(path.exists() for path in left)


def test_a_start_forgets_why_a_run_has_failed_but_not_of_one_that_another_start_holds(tmp_path):
    words = ["data=digits", "models=[resnet_nano]", "sizes=[40,60]", "seeds=[0]", "wandb.mode=off", "analyses=[]"]
    plan, files = plan_study(compose_study("quick", words), jobs=1, console=Console()), StudyFiles(tmp_path)
    failed, held = (files.run(spec.name) for spec in plan.specs)
    for run in (failed, held):
        run.write_error("ValueError: as it was there")
    with hold(held.folder):
        assert len(find_missing(files, plan, Console())) == 2
        assert (failed.error(), held.error()) == (None, "ValueError: as it was there")
    find_missing(files, plan, Console())
    assert (held.error(), list(held.folder.iterdir())) == (None, [])
