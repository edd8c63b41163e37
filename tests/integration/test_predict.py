"""`vitlab predict`: the decisions of `vitlab eval`, calibrated, of pictures and of texts."""

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from tests.integration.commands import succeed, vitlab
from vitlab.config import TrainConfig, compose
from vitlab.data.opening import open_data
from vitlab.files import read_json, write_json
from vitlab.studies.outcomes import read_outcomes
from vitlab.training.files import RunFiles
from vitlab.training.finished import load_run

TRAINER = ["trainer.evaluations=2", "wandb.mode=off", "analyses=[]"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Noisy squares and discs in two folders, train/ and test/, as JPEG, grey PNG and with alpha."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    y, x = np.mgrid[:20, :26]
    for part, count in (("train", 60), ("test", 30)):
        for number in range(count):
            disc = number % 2
            inside = (np.hypot(y - 10, x - 13) < 7) if disc else (abs(y - 10) < 6) & (abs(x - 13) < 6)
            pixels = (inside[..., None] * 120 + rng.integers(0, 110, (20, 26, 3))).astype(np.uint8)
            folder = root / part / ("disc" if disc else "square")
            folder.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(pixels)
            if number % 5 == 0:
                image.convert("L").save(folder / f"{number}.png")
            elif number % 5 == 1:
                image.convert("RGBA").save(folder / f"{number}.png")
            else:
                image.save(folder / f"{number}.jpg", quality=92)
    return root


@pytest.fixture(scope="module")
def run(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("predict") / "run"
    words = ["data=imagefolder", f"data.root={pictures}", "data.image_size=16", "budget.steps=12", *TRAINER]
    words += ["trainer.precision=32-true"]  # as exported files are
    assert "data.augment.flip=false" in succeed("train", *words, "--out", out).stderr
    return out


def test_pictures_are_decided_as_in_eval(run, pictures):
    found = json.loads(vitlab("predict", run, pictures / "test", "--json").stdout)
    assert found["calibrated"]
    decided = {item["input"].removeprefix(f"{pictures}/"): item for item in found["items"]}
    test = open_data(compose(TrainConfig, base=RunFiles(run).config()).data).test
    right = read_outcomes(run / "heldout.npz").means
    for name, label, was_right in zip(test.names, test.labels, right, strict=True):
        item = decided[name]
        assert (item["prediction"] == found["classes"][label]) == bool(was_right), name
        assert sum(item["probabilities"].values()) == pytest.approx(1)
        assert item["probability"] == max(item["probabilities"].values())
    calibration = read_json(run / "calibration.json")
    assert calibration["temperature"] == found["temperature"]
    assert calibration["after"]["loss"] <= calibration["before"]["loss"] + 1e-6
    table = list(csv.DictReader(io.StringIO(vitlab("predict", run, pictures / "test", "--csv").stdout)))
    assert [row["prediction"] for row in table] == [item["prediction"] for item in found["items"]]


def test_a_corrupt_picture_is_a_line_and_not_the_end(run, pictures, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff no picture")
    good = next((pictures / "test" / "disc").iterdir())
    done = vitlab("predict", run, tmp_path / "broken.jpg", good)
    assert done.returncode == 1, "some were read"
    assert "broken.jpg: it is not an image" in done.stderr
    assert done.stdout.startswith(str(good))
    alone = vitlab("predict", run, tmp_path / "broken.jpg", "--json")
    assert alone.returncode == 2
    assert json.loads(alone.stdout)["items"][0]["error"]


def test_an_exported_file_gives_the_same_probabilities_with_nothing_of_vitlab(run, pictures, tmp_path):
    """By the code that docs/your_pictures.md shows."""
    run = shutil.copytree(run, tmp_path / "run")
    vitlab("predict", run, pictures / "test")  # the first one calibrates
    write_json(run / "calibration.json", read_json(run / "calibration.json") | {"temperature": 1.5})
    found = json.loads(vitlab("predict", run, pictures / "test", "--json").stdout)
    assert found["temperature"] == 1.5
    succeed("export", run, tmp_path / "photos.onnx")
    shown = (Path(__file__).parents[2] / "docs" / "your_pictures.md").read_text()
    exec(shown.partition("```python\n")[2].partition("```")[0], names := {})
    for item in found["items"][::3]:
        shares = names["classify"](tmp_path / "photos.onnx", item["input"])
        assert shares == pytest.approx(item["probabilities"], abs=0.02)


def test_it_starts_without_what_trains(run, pictures):
    """Those take 10 of the 14 seconds that the start of a training takes."""
    picture = str(next((pictures / "test" / "disc").iterdir()))
    assert vitlab("predict", run, picture).returncode == 0  # the first start fits the temperature, by scipy
    start = "import sys; from vitlab.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    words = [sys.executable, "-c", start, "predict", run, picture]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    heavy = {"lightning", "timm", "torchvision", "torchmetrics", "transformers", "scipy", "pandas", "wandb"}
    assert "torch" in done.stdout.split(), done.stderr
    assert not heavy & set(done.stdout.split())


def test_without_its_data_it_says_that_it_is_not_calibrated(run, pictures, tmp_path):
    calibration = run / "calibration.json"
    calibration.unlink(missing_ok=True)
    hidden = pictures.rename(pictures.with_name("hidden"))
    try:
        done = vitlab("predict", run, hidden / "test", "--json")
        broken = tmp_path / "broken.png"
        broken.write_text("no picture")
        refused, mixed = vitlab("predict", run, broken), vitlab("predict", run, broken, hidden / "test")
    finally:
        hidden.rename(pictures)
    assert "not calibrated: data.root=" in done.stderr
    assert json.loads(done.stdout)["temperature"] == 1
    assert not calibration.exists()
    assert (refused.returncode, mixed.returncode) == (2, 1)
    assert refused.stderr == f"vitlab: {broken}: it is not an image; replace or delete it\n", "nothing else matters yet"
    assert mixed.stderr.startswith(refused.stderr + "vitlab: not calibrated: data.root=")


def test_texts_are_decided_as_in_eval(tmp_path):
    rng = np.random.default_rng(0)
    words = {"good": ["fine", "great", "nice"], "bad": ["poor", "awful", "dull"]}
    lines = []
    for number in range(160):
        label = ("good", "bad")[number % 2]
        other = words["bad" if rng.random() < 0.25 else label]
        lines.append(f"{' '.join([*rng.choice(words[label], 2), *rng.choice(other, 2)])} item {number}\t{label}")
    (tmp_path / "texts.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    data = ["data=tsv", f"data.path={tmp_path / 'texts.tsv'}", "data.label=label", "data.length=16"]
    out = tmp_path / "run"
    data += ["data.vocabulary=400", "task=text_classification"]
    succeed("train", *data, "budget.steps=8", *TRAINER, "--out", out)
    task_data = open_data(compose(TrainConfig, base=RunFiles(out).config()).data)
    right = read_outcomes(out / "heldout.npz").means
    tokens = {tuple(task_data.test.parts[0][row].tolist()): row for row in range(len(task_data.test))}
    texts = [line.partition("\t")[0] for line in lines]
    rows = {text: tokens.get(tuple(task_data.tokenizer.ids(text))) for text in texts}
    tested = {text: row for text, row in rows.items() if row is not None}
    assert len(tested) == len(right)
    (tmp_path / "input.txt").write_text("\n".join(tested) + "\n\n")
    found = json.loads(vitlab("predict", out, tmp_path / "input.txt", "--json").stdout)
    for item in found["items"][:-1]:
        row = tested[item["input"]]
        assert (item["prediction"] == found["classes"][task_data.test.labels[row]]) == bool(right[row])
    assert found["items"][-1] == {"input": "", "error": "it has no tokens"}
    assert f"{tmp_path}/none.txt: no such file" in vitlab("predict", out, tmp_path / "none.txt").stderr
    assert list(load_run(out).predict([]).columns) == ["prediction", "probability", "bad", "good"]


def test_several_labels(tmp_path):
    out = tmp_path / "run"
    succeed("train", "task=multilabel", "budget.steps=6", *TRAINER, "--out", out)
    Image.new("L", (8, 8), 40).save(tmp_path / "one.png")
    item = json.loads(vitlab("predict", out, tmp_path / "one.png", "--json").stdout)["items"][0]
    assert set(item["probabilities"]) == {"even", "prime", "above 4", "loop"}
    assert all(0 <= share <= 1 for share in item["probabilities"].values())


def test_a_run_of_numbers_needs_no_training_data(tmp_path):
    """They were standardised by those: by their mean and deviation, also where it is measured on others."""
    rng = np.random.default_rng(0)
    for name, height in (("houses", 40.0), ("towers", 400.0)):
        (tmp_path / name).mkdir()
        for i in range(40):
            pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
        rows = [f"{i}.png,{height + rng.normal()}" for i in range(40)]
        (tmp_path / name / "heights.csv").write_text("\n".join(["file,height", *rows]))

    def data(name):
        return [f"data.root={tmp_path / name}", f"data.path={tmp_path / name / 'heights.csv'}"]

    words = ["data=imagenumbers", *data("houses"), "data.label=height", "data.image_size=8"]
    succeed("train", "model=resnet_nano", *words, "budget.steps=2", *TRAINER, "--out", tmp_path / "run")
    assert json.loads(vitlab("eval", tmp_path / "run", *data("towers"), "--json").stdout)["mae"] > 300
    predict = ("predict", tmp_path / "run", tmp_path / "towers" / "3.png", "--json")
    before = vitlab(*predict).stdout
    shutil.rmtree(tmp_path / "houses")
    assert vitlab(*predict).stdout == before
    assert 30 < json.loads(before)["items"][0]["prediction"] < 50
    succeed("export", tmp_path / "run", tmp_path / "model.safetensors", "--names", "own")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        about = file.metadata()
    assert (round(float(about["target_mean"])), round(float(about["target_std"]))) == (40, 1)


def test_a_masked_language_model_fills_in_and_others_do_not(tmp_path):
    nouns = ("value", "name", "list", "length", "object")
    lines = [f"Return the {nouns[n % 5]} of the {nouns[n % 3]} {n}. It is the same." for n in range(300)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    out, words = tmp_path / "run", ["data=textfile", f"data.path={tmp_path / 'text.txt'}", "data.length=32"]
    words += ["data.vocabulary=300", "model.width=24", "model.heads=3", "model.depth=1", "budget.steps=4", *TRAINER]
    succeed("train", "task=masked_lm", *words, "--out", out)
    texts = ["Return the [MASK] of [MASK].", "Return it.", "the " * 40 + "[MASK]"]
    first, second, whole, long = json.loads(vitlab("predict", out, *texts, "--json").stdout)["items"]
    for item in (first, second):
        shares = list(item["probabilities"].values())
        assert (item["input"], len(shares), sorted(shares, reverse=True)) == (texts[0], 5, shares)
    assert "has no [MASK]" in whole["error"]
    assert "the run reads 32" in long["error"]
    succeed("train", "task=causal_lm", *words, "--out", tmp_path / "next")
    refused = vitlab("predict", tmp_path / "next", "text")
    assert refused.returncode == 2
    assert "is a run of task=causal_lm; predict is for classification" in refused.stderr


def test_a_question_is_answered_from_its_text(tmp_path):
    out, words = tmp_path / "run", ["task=span_extraction", "data.count=200"]
    succeed("train", *words, "budget.steps=4", *TRAINER, "--out", out)
    passage = "The red box holds ten pens. The blue box holds two keys."
    texts = [f"What does the red box hold? [SEP] {passage}", passage]
    answered, whole = json.loads(vitlab("predict", out, *texts, "--json").stdout)["items"]
    assert answered["probabilities"]
    assert all(answer == "(no answer)" or answer in passage for answer in answered["probabilities"])
    assert "write QUESTION [SEP] TEXT" in whole["error"]
