"""`vitlab sync`: real offline runs, W&B's own uploader, and a server on this machine at the other end."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from PIL import Image

from tests.integration.commands import wandb_history
from tests.unit.reports.fake_wandb import KEY, wandb_server
from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.commands import study as commands
from vitlab.config import TrainConfig, compose
from vitlab.files import write_json
from vitlab.reports.wandb import SETTINGS, Tracker
from vitlab.studies.store import StudyFiles
from vitlab.training.files import RunFiles

RUNS = ["vit_nano-n53-s0", "vit_nano-n59-s0", "resnet_nano-n53-s0", "resnet_nano-n59-s0"]  # as in results.csv


def track(run, rows, result=None, replayed=()):
    """One attempt of a run, offline; gives where it is, as for result.json."""
    config = compose(TrainConfig, ["wandb.mode=offline", "study=quick", "data=digits"])
    tracker = Tracker(config, run, family="vit", params=7)
    tracker.replay(list(replayed), last_step=max((row["step"] for row in replayed), default=0))
    for row in rows:
        tracker.log({"step": row["step"], "train/loss": row["train/loss"]})
    return tracker.finish(result or {"status": "failed"}, exit_code=0 if result else 1)


def test_a_failure_is_a_warning_and_leaves_the_training_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "wandb").touch()  # where W&B's folder would be
    config = compose(TrainConfig, ["wandb.mode=offline", "data=digits"])
    with pytest.warns(UserWarning, match="W&B logging stopped"):
        tracker = Tracker(config, RunFiles(tmp_path / "run"), family="vit", params=7)
    tracker.replay([{"step": 1, "train/loss": 2.0}], last_step=1)
    tracker.log_picture(tmp_path / "none.png", 1)
    assert (tracker.log({"step": 2}), tracker.finish({"accuracy": 0.5})) == (None, None)


@pytest.mark.parametrize(
    ("mode", "key", "expected"), [("disabled", KEY, "off"), ("", KEY, "online"), ("", "", "offline")]
)
def test_auto_is_wandbs_own_mode_else_online_for_who_is_logged_in(mode, key, expected, tmp_path):
    given = {**os.environ, "WANDB_MODE": mode, "WANDB_API_KEY": key, "HOME": str(tmp_path), "NETRC": ""}
    given = {name: value for name, value in given.items() if value}
    code = "from vitlab.reports.wandb import default_mode; print(default_mode())"  # W&B reads its variables once
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n"


def test_without_a_server_a_run_that_is_to_be_online_is_logged_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setitem(SETTINGS, "init_timeout", 2)
    run = RunFiles(tmp_path / "run")
    run.folder.mkdir()
    with pytest.warns(UserWarning, match="cannot reach W&B"):
        tracker = Tracker(compose(TrainConfig, ["wandb.mode=online", "data=digits"]), run, family="vit", params=7)
    tracker.log({"step": 1, "train/loss": 2.0})
    where = tracker.finish({"accuracy": 0.5})
    assert where["mode"] == "offline"
    assert list((run.folder / where["path"]).parent.glob("*.wandb"))


def test_an_attempt_that_goes_on_has_the_pictures_of_the_one_before_up_to_its_checkpoint(tmp_path):
    config, run = compose(TrainConfig, ["wandb.mode=offline", "data=digits"]), RunFiles(tmp_path / "run")
    run.folder.mkdir()
    Image.new("L", (9, 9)).save(tmp_path / "maps.png")
    for steps, last, kept in (((3, 5, 7), 0, 3), ((), 5, 2)):
        tracker = Tracker(config, run, family="vit", params=7)
        tracker.replay([], last)
        for step in steps:
            tracker.log_picture(tmp_path / "maps.png", step)
        tracker.log_reach([{"step": last, "reach": 2.0}])  # of a text
        folder = run.folder / tracker.finish({}, exit_code=1)["path"]
        assert len(list(folder.rglob("*.png"))) == kept
        assert wandb_history(run.folder)[-1]["reach"] == 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study of four offline runs. The second was interrupted: it has two attempts."""
    study = make_study(tmp_path_factory.mktemp("sync") / "quick", sizes=(53, 59), seeds=(0,), failed=0)
    for name in RUNS:
        run = study.run(name)
        rows = [row for row in run.metrics() if "train/loss" in row][:11]
        if name == RUNS[1]:
            track(run, rows[:5])
        where = track(run, rows[5:], run.result(), rows[:5])
        write_json(run.result_path, {**run.result(), "wandb": where})
    return study.folder


@pytest.fixture
def study(finished, tmp_path):
    return StudyFiles(shutil.copytree(finished, tmp_path / "quick", symlinks=True))


@pytest.fixture
def server(monkeypatch, tmp_path):
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        monkeypatch.setenv("WANDB__GRAPHQL_RETRY_MAX", "1")
        monkeypatch.setenv("WANDB_MODE", "offline")  # of training; an upload is asked for
        yield server


def ids(study, names=RUNS):
    return [study.run(name).result()["wandb"]["id"] for name in names]


def test_every_run_is_uploaded_once(study, server, capfd):
    assert len(list(study.run(RUNS[1]).folder.glob("wandb/offline-run-*"))) == 2
    assert main(["sync", str(study.folder)]) == 0
    assert sorted(server.order) == sorted(ids(study))
    for name, key in zip(RUNS, ids(study), strict=True):
        logged = [row for row in study.run(name).metrics() if "train/loss" in row][:11]
        kept = [(row["trainer/global_step"], row["train/loss"]) for row in server.history[key]]
        assert kept == [(row["step"], pytest.approx(row["train/loss"])) for row in logged], "the last attempt alone"
        assert server.summary[key]["accuracy"] == study.run(name).result()["accuracy"]
    out, err = capfd.readouterr()
    assert out.splitlines() == [*(f"{name}  uploaded" for name in RUNS), "4 runs uploaded"]
    assert all(f"{server.url}/someone/vitlab/runs/{key}" in err for key in server.order)
    asked = len(server.operations)
    assert main(["sync", str(study.folder)]) == 0
    assert len(server.operations) == asked, "the second call asks nothing of W&B"
    assert capfd.readouterr().out.splitlines() == [*(f"{name}  uploaded before" for name in RUNS), "0 runs uploaded"]


def test_a_run_that_fails_holds_no_other_up_and_the_next_call_uploads_it(study, server, monkeypatch, capfd):
    monkeypatch.setattr(commands, "BATCH", 2)
    first, second, *rest = ids(study)
    server.refused = {second}
    assert main(["sync", str(study.folder), "--json"]) == 1
    out, err = capfd.readouterr()
    states = ["uploaded", "not uploaded yet", *["uploaded"] * 2]
    assert json.loads(out) == [{"run": run, "state": state} for run, state in zip(RUNS, states, strict=True)]
    assert "403" in err or "permission denied" in err
    assert err.splitlines()[-1].startswith(f"vitlab: 1 run left to upload: {RUNS[1]}; ")
    assert {*server.order} - {second} == {first, *rest}
    server.refused, server.order = set(), []
    assert main(["sync", str(study.folder)]) == 0
    assert server.order == [second]


def test_one_run_is_called_by_its_folder(study, monkeypatch, capsys):
    monkeypatch.setattr(commands.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    assert main(["sync", str(study.folder / RUNS[0])]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{RUNS[0]}  not uploaded yet\n")
    assert f"1 run left to upload: {RUNS[0]}; run" in err


def test_who_is_not_logged_in_is_told_how_to(study, server, monkeypatch, capfd):
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["sync", str(study.folder)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "not logged in to W&B: run `wandb login`" in err
    assert server.operations == []
