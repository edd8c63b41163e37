"""`vitlab verify`: equal to the last bit, within rounding, or different, and what has changed."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.integration import commands

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
    assert done.returncode == (3 if answer["verdict"] == "differs" else 0)
    return answer


def test_an_unchanged_run_is_equal_to_the_last_bit(run):
    assert verdict(run) == {
        "run": str(run),
        "steps": 9,
        "verdict": "equal",
        "from_step": None,
        "largest": 0.0,
        "compared": ["rows", "weights", "test outcomes"],
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


def test_weights_are_compared_where_all_rows_are_equal(run, tmp_path):
    other = tmp_path / "other"
    commands.succeed("train", "model=vit_nano", *SHORT, "model.dropout=0.1", "seed=1", "--out", other)
    shutil.copy(other / "checkpoints" / "last.ckpt", run / "checkpoints" / "best.ckpt")
    answer = verdict(run)
    assert answer["verdict"] == "differs"
    assert re.fullmatch(r"\d+ tensors of the weights", answer["differs"])


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


def test_other_weights_or_missing_rows_are_no_rounding(run):
    (run / "heldout.npz").unlink()
    assert verdict(run)["compared"] == ["rows", "weights"]
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(rows[:-1]))
    assert verdict(run)["differs"] == f"{len(rows)} rows in place of {len(rows) - 1}"
    assert verdict(run, "--steps", "4")["verdict"] == "equal"
    edit(run / "metrics.jsonl", r'"train/loss": [\d.]+', '"train/loss": null')
    assert (verdict(run)["verdict"], verdict(run)["largest"]) == ("differs", None)
    (run / "metrics.jsonl").write_text("")
    assert "has no rows" in commands.vitlab("verify", run).stderr
