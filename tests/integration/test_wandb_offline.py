"""What W&B's own reader finds in the offline files of a run: all of it, also after kill -9."""

import hashlib
import json
import signal
import time

import pytest
from PIL import Image

from tests.integration import commands
from tests.integration.commands import TINY
from vitlab.cli import main
from vitlab.training.files import RunFiles

FIGURE = "attention_distance"
WORDS = [*TINY, "budget.steps=60", "train_size=97", "trainer.checkpoint_every=0.2"]


def held(history, row):
    """Whether one logged item has every value of a row of metrics.jsonl."""
    values = {key: value for key, value in row.items() if key != "step"}
    return any(
        item.get("trainer/global_step") == row["step"]
        and all(item.get(key) == pytest.approx(value) for key, value in values.items())
        for item in history
    )


def missing(folder):
    """Rows of metrics.jsonl that the last offline attempt does not hold."""
    history = commands.wandb_history(folder)
    return [row for row in RunFiles(folder).metrics() if not held(history, row)]


def pictures(folder):
    """Step -> file of each picture that the last offline attempt names, each checked against its SHA-256."""
    found = {}
    for item in commands.wandb_history(folder):
        if f"{FIGURE}/picture._type" not in item:
            continue
        for kind in ("picture", "plot"):
            path = folder / "wandb" / "latest-run" / "files" / item[f"{FIGURE}/{kind}.path"]
            assert hashlib.sha256(path.read_bytes()).hexdigest() == item[f"{FIGURE}/{kind}.sha256"]
        picture = folder / "wandb" / "latest-run" / "files" / item[f"{FIGURE}/picture.path"]
        with Image.open(picture) as image:
            assert image.size == (item[f"{FIGURE}/picture.width"], item[f"{FIGURE}/picture.height"])
        assert json.loads(path.read_text())["data"], "the plot is one of plotly's, with traces"
        found[item["trainer/global_step"]] = picture
    return found


def summary(folder):
    found = {}
    for record in commands.wandb_records(folder):
        if record["type"] == "summary":
            found.update(record["summary"].get("update", {}))
    return found


def assert_whole(folder):
    """The last attempt alone holds every row, picture and plain value of the result."""
    assert len(RunFiles(folder).metrics()) > 1
    assert missing(folder) == []
    result = RunFiles(folder).finished_result()
    assert list(pictures(folder)) == [0, result["steps"]]
    plain = {key: value for key, value in result.items() if isinstance(value, str | int | float)}
    assert {"accuracy", "train_size", "train_flops", "family", "status", "loss"} <= plain.keys()
    kept = summary(folder)
    assert {key: kept.get(key) for key in plain} == plain


def test_a_run_is_held_whole(tmp_path):
    folder = tmp_path / "run"
    words = [*TINY, "budget.steps=12", "train_size=97", "probes=[knn]"]
    assert main(["train", *words, "--out", str(folder)]) == 0
    assert_whole(folder)
    assert summary(folder)["knn"] == RunFiles(folder).result()["knn"]


def test_a_killed_run_is_held_so_far_and_whole_once_it_has_ended(tmp_path):
    folder = tmp_path / "killed"
    run = RunFiles(folder)
    process = commands.start("train", *WORDS, "--out", folder)
    commands.wait_for(lambda: len(run.metrics()) >= 8, process)
    process.send_signal(signal.SIGSTOP)  # so that a fast machine does not finish the run meanwhile
    seen = run.metrics()[:6]
    time.sleep(1.5)  # W&B's own process writes its log twice a second
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run.result() is None
    history = commands.wandb_history(folder)
    assert [row for row in seen if not held(history, row)] == []
    assert list(pictures(folder)) == [0]
    first = next(folder.glob("wandb/offline-run-*"))
    assert main(["train", *WORDS, "--out", str(folder)]) == 0
    assert (folder / "wandb" / "latest-run").resolve() != first.resolve(), "an attempt of its own"
    assert_whole(folder)
