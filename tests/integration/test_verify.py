"""`vitlab verify`: equal to the last bit, within rounding, or different, and what has changed since."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.integration import commands
from vitlab.commands.verify import compare
from vitlab.training.files import RunFiles

SHORT = ["budget.steps=9", "train_size=110", "trainer.threads=1", *commands.PLAIN]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "run"
    commands.succeed("train", "model=vit_nano", *SHORT, "model.dropout=0.1", "recipe.keep=best", "--out", folder)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def edit(path, old, new):
    text, count = re.subn(old, new, path.read_text(), count=1)
    assert count == 1
    path.write_text(text)


def verdict(*words):
    done = commands.vitlab("verify", *words, "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == (3 if answer["verdict"] in ("differs", "incomplete") else 0)
    return answer


def test_an_unchanged_run_is_equal_to_the_last_bit(run):
    assert verdict(run) == {
        "run": str(run),
        "steps": 9,
        "verdict": "equal",
        "from_step": None,
        "largest": 0.0,
        "compared": ["rows", "result", "weights", "test outcomes"],
        "missing": [],
        "left_out": [],
        "changes": [],
    }
    assert verdict(run, "--steps", "6")["verdict"] == "equal"
    assert "equal bit for bit (rows of 6 steps)" in commands.succeed("verify", run, "--steps", "6").stdout
    assert commands.vitlab("verify", run, "--steps", "2").stderr.endswith("are of step 3; give at least 3\n")


def test_another_rate_is_named_and_differs_from_its_first_row(run):
    edit(run / "config.yaml", r"\n  lr: .*", "\n  lr: 0.02")
    answer = verdict(run)
    assert (answer["verdict"], answer["from_step"], answer["differs"]) == ("differs", 3, "train/loss")
    assert answer["changes"] == ["config.yaml: is not the configuration that was trained"]
    edit(run / "config.yaml", r"\n  lr: .*", "\n  lr: 0.016001")  # by less than what counts as rounding
    assert verdict(run, "--steps", "6")["verdict"] == "differs"


def test_other_versions_are_named_and_a_last_digit_is_rounding(run):
    result = json.loads((run / "result.json").read_text())
    result["environment"]["torch"] = "2.0.0"
    (run / "result.json").write_text(json.dumps(result))
    edit(run / "packages.txt", "torchvision==.*", "torchvision==0.1")
    edit(run / "metrics.jsonl", r'("train/loss": [\d.]{8})\d+', r"\g<1>")
    answer = verdict(run)
    assert (answer["verdict"], answer["from_step"]) == ("rounding", 3)
    assert answer["changes"][0].startswith("torch 2.0.0 -> ")
    assert answer["changes"][1:] == ["1 installed package: torchvision"]


def test_a_planted_result_and_a_lost_file_are_no_equal_run(run):
    edit(run / "result.json", r'"accuracy": [\d.]+', '"accuracy": 0.95')
    (run / "heldout.npz").unlink()
    done = commands.vitlab("verify", run)
    assert (done.returncode, done.stdout.splitlines()[0]) == (3, f"{run}: differs from step 9 on")
    assert "  not compared: heldout.npz is gone\n  first difference at step 9: accuracy 0.95 then, 0." in done.stdout


def test_a_changed_picture_is_named(tmp_path):
    digits, root = load_digits(), tmp_path / "pictures"
    for number, (pixels, label) in enumerate(zip(digits.images[:120], digits.target, strict=False)):
        (root / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).save(root / str(label) / f"{number}.png")
    words = ["model=resnet_nano", *SHORT[2:], "budget.steps=6", "data=imagefolder", f"data.root={root}"]
    commands.succeed("train", *words, "data.image_size=8", "--out", tmp_path / "run")
    assert verdict(tmp_path / "run")["verdict"] == "equal"
    for path in root.glob("0/*.png"):
        Image.new("L", (8, 8), 255).save(path)
    answer = verdict(tmp_path / "run")
    assert (answer["verdict"], answer["changes"]) == ("differs", ["data=imagefolder: other contents"])


def test_a_run_without_rows_or_steps_has_nothing_to_compare(run):
    (run / "metrics.jsonl").write_text("")
    assert "has no rows" in commands.vitlab("verify", run).stderr
    edit(run / "result.json", r' "steps": 9,\n', "")
    assert "steps: " in commands.vitlab("verify", run).stderr


def test_training_ends_soon_after_the_steps_to_compare(tmp_path, monkeypatch):
    words = ["model=color_histogram", *SHORT[:2], *commands.PLAIN, "trainer.evaluations=5", "--out", tmp_path / "run"]
    commands.succeed("train", *words)
    trained = []

    def note(files, again, *args, **options):
        trained.append(again.metrics()[-1]["step"])
        return compare(files, again, *args, **options)

    monkeypatch.setattr("vitlab.commands.verify.compare", note)
    read, files = [], RunFiles.metrics
    monkeypatch.setattr(RunFiles, "metrics", lambda self: read.append(self) or files(self))
    answer = verdict(tmp_path / "run", "--steps", "4")
    assert (answer["verdict"], answer["compared"], trained) == ("equal", ["rows"], [4])
    assert len(read) < 6, "not at each step"
