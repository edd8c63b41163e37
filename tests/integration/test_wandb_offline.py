"""What W&B's own reader finds in the offline files of a run: all of it, once, also after kill -9."""

import hashlib
import json
import os
import signal
import time

import numpy as np
import pytest
from PIL import Image

from tests.integration import commands
from tests.integration.commands import TINY
from vitlab.cli import main
from vitlab.reports.wandb import WAITING, find_upload
from vitlab.studies.results import RunResults
from vitlab.training.files import RunFiles

ANALYSES = ("attention_distance", "cka")  # one with a plot, one without
WORDS = [*TINY, f"analyses=[{','.join(ANALYSES)}]", "train_size=97"]
LONG = [*WORDS, "budget.steps=30", "trainer.checkpoint_every=0.2"]


class Attempt:
    """One offline run, as W&B's reader gives it."""

    def __init__(self, folder):
        self.files = folder / "files"
        (log,) = folder.glob("*.wandb")
        self.records = commands.wandb_file(log)
        self.history = self.of("history", "item")
        (self.run,) = [record["run"] for record in self.records if record["type"] == "run"]

    def of(self, kind, part):
        return [record[kind][part] for record in self.records if record["type"] == kind and part in record[kind]]

    @property
    def rows(self):
        """The history as rows of metrics.jsonl, in W&B's order; what is of pictures, tables or W&B itself left out."""
        found = []
        for item in self.history:
            own = {key: value for key, value in item.items() if key[0] != "_" and key != "trainer/global_step"}
            if not any(part in key for key in own for part in ("/picture", "/rows", "/layer")):
                found.append({"step": item["trainer/global_step"], **own})
        return found

    @property
    def summary(self):
        return {key: value for update in self.of("summary", "update") for key, value in update.items()}

    @property
    def config(self):
        found = dict(self.run["config"]["update"])
        del found["_wandb"]
        return found

    def pictures(self):
        """(analysis, step) -> pixels of every picture; checks each file's SHA-256 and that it is a PNG of its size."""
        found, named = {}, set()
        for item in self.history:
            for analysis in (key.removesuffix("/picture._type") for key in item if key.endswith("/picture._type")):
                path = self.files / item[f"{analysis}/picture.path"]
                assert hashlib.sha256(path.read_bytes()).hexdigest() == item[f"{analysis}/picture.sha256"]
                assert path.stat().st_size == item[f"{analysis}/picture.size"] > 0
                named.add(path)
                with Image.open(path) as image:
                    assert image.format == "PNG"
                    assert image.size == (item[f"{analysis}/picture.width"], item[f"{analysis}/picture.height"])
                    found[analysis, item["trainer/global_step"]] = np.asarray(image.convert("RGB"))
        assert named == {path for path in (self.files / "media" / "images").rglob("*") if path.is_file()}, (
            "no more, no fewer"
        )
        return found

    def tables(self):
        """Analysis -> the rows of its table."""
        found = {}
        for item in self.history:
            for name in (key.removesuffix("/rows._type") for key in item if key.endswith("/rows._type")):
                document = json.loads((self.files / item[f"{name}/rows.path"]).read_text())
                found[name] = [dict(zip(document["columns"], row, strict=True)) for row in document["data"]]
        return found


def attempts(folder):
    """Every attempt of a run, oldest first."""
    latest = (folder / "wandb" / "latest-run").resolve()
    return [
        *(Attempt(path) for path in folder.glob("wandb/offline-run-*") if path.resolve() != latest),
        Attempt(latest),
    ]


def assert_pictures(attempt, run, steps):
    """One of each analysis at each step; the last ones are, pixel by pixel, those that the run keeps."""
    found = attempt.pictures()
    assert set(found) == {(analysis, step) for analysis in ANALYSES for step in steps}
    for analysis in ANALYSES:
        last = found[analysis, steps[-1]]
        assert last.std() > 5, "not an empty page"
        with Image.open(run.analysis_folder / f"{analysis}.png") as kept:
            np.testing.assert_array_equal(last, np.asarray(kept.convert("RGB")))


def assert_whole(attempt, run):
    """An attempt holds every row of metrics.jsonl once and in order, the result, the configuration, every picture."""
    result, config = run.finished_result(), attempt.config
    assert len(run.metrics()) > 2
    assert attempt.rows == run.metrics()
    assert {key: config.pop(key) for key in ("params", "family")} == {key: result[key] for key in ("params", "family")}
    assert config == run.config()
    plain = {key: value for key, value in result.items() if isinstance(value, str | int | float)}
    assert {"accuracy", "train_size", "train_flops", "family", "status", "loss", "params", "seed"} <= plain.keys()
    assert {key: attempt.summary.get(key) for key in plain} == plain
    logged = {key.partition(".")[0] for item in attempt.history for key in item}
    others = {key.partition(".")[0] for key in attempt.summary} - plain.keys()
    assert others <= {*logged, "_wandb"}, "beside the result the summary has what was logged last"
    assert_pictures(attempt, run, (0, result["steps"]))
    rows = run.analysis("attention_distance")["rows"]
    assert attempt.tables()["attention_distance"] == rows
    charted = {
        item["trainer/global_step"]: item for item in attempt.history if "attention_distance/layer1/mean" in item
    }
    assert set(charted) == {0, result["steps"]}
    for step, item in charted.items():
        heads = [row["value"] for row in rows if (row["step"], row["layer"]) == (step, 1)]
        found = [item[f"attention_distance/layer1/{key}"] for key in ("min", "mean", "max")]
        assert found == pytest.approx([min(heads), np.mean(heads), max(heads)])


def test_a_run_is_held_whole(finished):
    (only,) = attempts(finished)
    assert_whole(only, RunFiles(finished))
    assert only.summary["knn"] == RunFiles(finished).result()["knn"]


def test_a_killed_run_is_held_so_far_and_whole_and_once_when_it_has_ended(tmp_path):
    run = RunFiles(tmp_path / "killed")
    program = commands.Program("train", *LONG, "--out", run.folder)
    program.wait_for(lambda: len(run.metrics()) >= 6)
    os.kill(program.process.pid, signal.SIGSTOP)  # so that a fast machine does not finish the run meanwhile
    seen = run.metrics()
    time.sleep(1.5)  # W&B's own process writes its log twice a second
    program.kill()
    assert run.result() is None
    (first,) = attempts(run.folder)
    assert len(first.rows) >= len(seen) - 2, "the last may have been on its way to W&B"
    assert first.rows[: len(seen)] == seen[: len(first.rows)], "each once, in order, and none that is not there"
    pictures = first.pictures()
    assert set(pictures) == {(analysis, 0) for analysis in ANALYSES}
    assert all(picture.std() > 5 for picture in pictures.values())
    assert main(["train", *LONG, "--out", str(run.folder)]) == 0
    first, second = attempts(run.folder)
    assert first.run["run_id"] == second.run["run_id"], "one run in W&B"
    assert_whole(second, run)
    # W&B keeps lines of history by their place, an offline run's begin at 0: what the second holds replaces the first
    merged = [*second.rows, *first.rows[len(second.rows) :]]
    assert merged == run.metrics()
    state, file = find_upload(RunResults(run))
    assert (state, file.resolve().parent) == (WAITING, second.files.parent), "only the whole one is uploaded"


def test_a_trial_has_its_number_and_wandbs_variables_do_what_they_say(tmp_path, monkeypatch):
    words = ["analyses=[]", "train_size=97", "budget.steps=4", "study=mine", "trial=3"]
    for key, value in {"TAGS": "first,second", "NOTES": "why", "NAME": "mine", "ENTITY": "lab"}.items():
        monkeypatch.setenv(f"WANDB_{key}", value)
    done = commands.Program("train", *TINY, *words, "--out", tmp_path / "tuned").end()  # W&B reads its variables once
    assert done.returncode == 0, done.stderr
    (run,) = attempts(tmp_path / "tuned")
    assert [run.run[key] for key in ("run_group", "job_type", "display_name")] == ["mine", "train", "mine tuned"]
    assert {"first", "second", "trial=3"} <= {*run.run["tags"]}
    assert (run.run["notes"], run.run["entity"]) == ("why", "lab")
