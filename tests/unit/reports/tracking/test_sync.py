"""`vitlab sync`: real offline runs, W&B's own uploader, and a server on this machine at the other end."""

import json
import shutil

import pytest

from tests.unit.reports.tracking.fake_wandb import KEY, wandb_server
from tests.unit.reports.written_study import make_study
from vitlab.cli import main
from vitlab.config import TrainConfig, compose
from vitlab.files import write_json
from vitlab.reports.tracking.wandb_logger import Tracker
from vitlab.studies.store import StudyFiles

RUNS = ["vit_nano-n53-s0", "vit_nano-n59-s0", "resnet_nano-n53-s0", "resnet_nano-n59-s0"]  # as in results.csv


def track(run, rows, result=None, replayed=()):
    """One attempt of a run, offline; gives where it is, as for result.json."""
    config = compose(TrainConfig, ["wandb.mode=offline", "study=quick", "data=digits"])
    tracker = Tracker(config, run, family="vit", params=7)
    tracker.replay(list(replayed), last_step=max((row["step"] for row in replayed), default=0))
    for row in rows:
        tracker.run.log({"train/loss": row["train/loss"], "trainer/global_step": row["step"]})
    return tracker.finish(result or {"status": "failed"}, exit_code=0 if result else 1)


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


def test_every_run_is_uploaded_once_in_the_order_of_the_results(study, server, capsys):
    assert len(list(study.run(RUNS[1]).folder.glob("wandb/offline-run-*"))) == 2
    assert main(["sync", str(study.folder)]) == 0
    assert server.order == ids(study)
    for name, key in zip(RUNS, server.order, strict=True):
        logged = [row for row in study.run(name).metrics() if "train/loss" in row][:11]
        kept = [(row["trainer/global_step"], row["train/loss"]) for row in server.history[key]]
        assert kept == [(row["step"], pytest.approx(row["train/loss"])) for row in logged], "the last attempt alone"
        assert server.summary[key]["accuracy"] == study.run(name).result()["accuracy"]
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [[name, "uploaded"] for name in RUNS]
    assert all(f"/runs/{key}" in line for key, line in zip(server.order, lines, strict=False))
    assert (lines[-1], err) == ("4 runs uploaded", "")
    asked = len(server.operations)
    assert main(["sync", str(study.folder)]) == 0
    assert len(server.operations) == asked, "the second call asks nothing of W&B"
    assert capsys.readouterr().out.splitlines() == [*(f"{name}  uploaded before" for name in RUNS), "0 runs uploaded"]


def test_a_failure_stops_the_uploads_and_the_next_call_goes_on(study, server, capsys):
    first, second, *rest = ids(study)
    server.refused = {second}
    assert main(["sync", str(study.folder), "--json"]) == 1
    out, err = capsys.readouterr()
    assert [one["state"] for one in json.loads(out)] == ["uploaded", "failed", "waiting", "waiting"]
    assert f"{RUNS[1]}  failed  " in err
    assert "403" in err or "permission denied" in err
    assert err.splitlines()[-1].startswith(f"vitlab: 3 runs left to upload: {', '.join(RUNS[1:])}; ")
    assert server.order == [first, second]
    server.refused, server.order = set(), []
    assert main(["sync", str(study.folder)]) == 0
    assert server.order == [second, *rest]


def test_a_server_that_is_not_there_is_one_line_for_the_first_run(study, server, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert main(["sync", str(study.folder)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith(f"{RUNS[0]}  failed  ")
    assert "connection refused" in out
    assert len(err.splitlines()) == 1
    assert "4 runs left" in err


def test_who_is_not_logged_in_is_told_how_to(study, server, monkeypatch, capsys):
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["sync", str(study.folder)]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "vitlab: not logged in to W&B; run `wandb login`, or set WANDB_API_KEY\n")
    assert server.operations == []
