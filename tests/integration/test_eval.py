"""`vitlab eval`: in detail, with probes, on other data and of timm's models."""

import csv
import json
from dataclasses import replace

import pytest
import yaml

from tests.integration.commands import PLAIN, succeed, vitlab
from vitlab.studies import experiment

PROBED = {"knn", "linear_probe", "fewshot_1", "fewshot_5", "fewshot_10", "fewshot_25"}


def test_a_runs_probes_are_in_its_result_and_eval_gives_the_same(finished):
    result = json.loads((finished / "result.json").read_text())
    found = json.loads(vitlab("eval", finished, "--json").stdout)
    assert 0.3 < result["knn"] <= 1
    assert {key: found[key] for key in ("knn", "train_size")} == {key: result[key] for key in ("knn", "train_size")}
    for key in ("accuracy", "loss"):
        assert found[key] == pytest.approx(result[key])
    assert result["accuracy"] < found["top5_accuracy"] < 1


def test_a_study_is_about_a_probe_on_other_data(tmp_path):
    words = "models=[resnet_nano] data=glyphs data.train_images=400 data.image_size=16 sizes=[50] seeds=[0] "
    words += "data.test_images=100 budget.steps=5 analyses=[] wandb.mode=off probes=[fewshot@digits,knn@digits]"
    missing = vitlab("scale", *words.split(), "task.metric=fewshot_5@glyphs", "--out", tmp_path / "study")
    assert (missing.returncode, "give probes=[fewshot@glyphs]" in missing.stderr) == (2, True)
    done = succeed("scale", *words.split(), "task.metric=fewshot_5@digits", "--out", tmp_path / "study")
    assert "5-shot accuracy on digits" in done.stdout
    with (tmp_path / "study" / "results.csv").open() as file:
        for row in csv.DictReader(file):
            assert 0.2 < float(row["fewshot_5@digits"]) < 1
            assert 0.2 < float(row["knn@digits"]) < 1


GLYPHS = "data=glyphs data.train_images=400 data.image_size=16 data.test_images=100"
TEXTS = "model=gpt_nano model.width=24 model.depth=1 data=textfile data.path={} data.length=32 data.vocabulary=300"


@pytest.mark.parametrize(("words", "other"), [(GLYPHS, "digits"), (TEXTS, "docstrings")])
def test_a_run_is_fine_tuned_on_classes_of_other_data(words, other, tmp_path, monkeypatch):
    load, rate = experiment.load, experiment.load("probe", "finetune").rate  # fewer labels and steps
    monkeypatch.setattr(experiment, "load", lambda *asked: replace(load(*asked), labels=[40, 90], steps=8))
    probes = [f"probes=[finetune@{other}]", "budget.steps=3", "analyses=[]", "wandb.mode=off", "recipe.lr=0.02"]
    (tmp_path / "text.txt").write_text("\n".join(f"the {n % 7} cats see {n % 11} dogs" for n in range(300)))
    succeed("train", *words.format(tmp_path / "text.txt").split(), *probes, "--out", tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for labels in (40, 90):
        assert 0 < result[f"finetune_{labels}@{other}"] < 1
        child = yaml.safe_load((tmp_path / "run" / f"finetuned/{other}/n{labels}/config.yaml").read_text())
        assert (child["init"]["weights"], child["train_size"]) == (str(tmp_path / "run"), labels)
        assert child["recipe"]["lr"] == pytest.approx(rate * 0.02), "a share of the run's own"
    assert result["finetune_flops"] > result["train_flops"]
    refused = vitlab("eval", tmp_path / "run", f"probes=[finetune@{other}]")
    assert (refused.returncode, "trains; give it to vitlab train or vitlab scale" in refused.stderr) == (2, True)


def test_eval_of_a_bf16_run_gives_the_numbers_of_its_result(tmp_path):
    words = [*PLAIN, "model=resnet_nano", "budget.steps=30", "trainer.precision=bf16-mixed"]
    succeed("train", *words, "--out", tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    evaluated = json.loads(vitlab("eval", tmp_path / "run", "--json").stdout)
    assert result["precision"] == "bf16-mixed"
    for key in ("accuracy", "loss"):
        assert evaluated[key] == pytest.approx(result[key], rel=1e-6)


def test_eval_leaves_numbers_and_pictures(finished, tmp_path):
    words = ["eval", finished, "probes=[fewshot,linear,knn]", "--out", tmp_path / "out"]
    done = vitlab(*words)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "eval.json").read_text())
    assert found.keys() >= PROBED
    assert found["fewshot_10"] > found["fewshot_1"]
    assert found["fewshot_25"] is None, "110 images are 11 of each class"
    with (tmp_path / "out" / "confusion_matrix.csv").open() as file:
        counts = {(row["true"], row["predicted"]): int(row["count"]) for row in csv.DictReader(file)}
    assert sum(counts.values()) == found["images"] == 359
    assert sum(counts[digit, digit] for digit in "0123456789") == round(359 * found["accuracy"])
    pair = found["most_confused"][0]
    assert counts[pair["true"], pair["predicted"]] == pair["images"]
    pictures = {path.name for path in (tmp_path / "out").glob("[!.]*")}
    assert pictures == {
        *("eval.json", "confusion_matrix.csv", "confusion_matrix.svg", "confusion_matrix.png"),
        *("calibration.svg", "calibration.png"),
    }
    printed = done.stdout.splitlines()
    assert [line for line in printed if line.endswith("too few training images")] == [
        "  fewshot_25        too few training images"
    ]
    assert f"  {pair['true']} taken for {pair['predicted']}: {pair['images']} images" in done.stdout
    assert printed[-1].endswith("calibration.png")
    as_json = vitlab(*words, "--json")
    assert json.loads(as_json.stdout) == found, "one document, the files are listed on stderr"


def test_probes_take_data_of_other_classes_and_nothing_else_does(finished):
    other = ["data=glyphs", "data.image_size=16", "data.train_images=200", "data.test_images=60"]
    refused = vitlab("eval", finished, *other, "probes=[]")
    assert refused.returncode == 2
    assert "the run's model was trained with 10; ask for probes=[NAME], choices: fewshot, knn, linear" in refused.stderr
    done = vitlab("eval", finished, *other, "probes=[knn]", "--json")
    found = json.loads(done.stdout)
    assert (found["data"], found["images"], found["train_size"]) == ("glyphs", 60, 200)  # all, not the run's 110
    assert "accuracy" not in found
    assert 1 / 62 < found["knn"] < 1
    shown = vitlab("eval", finished, *other, "probes=[knn]", "train_size=100").stdout
    assert "no accuracy and no loss: data=glyphs: has num_classes=" in shown
    assert "(probes: 100 training images)" in shown


def test_a_model_of_timm_is_probed(tmp_path):
    words = ["timm:vit_tiny_patch16_224", "data=digits", "data.image_size=16", "model.pretrained=false"]
    words += ["model.options={depth: 1, patch_size: 4}", "train_size=200"]
    done = succeed("eval", *words, "probes=[knn]", "--json", "--out", tmp_path / "out")
    found = json.loads(done.stdout)
    assert 0.3 < found["knn"] < 1, "digits are near in pixels, and so they are through random weights"
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["eval.json"]
    succeed("analyze", *words[:-1], "attention_distance", "--out", tmp_path / "looked")
    assert (tmp_path / "looked" / "attention_distance.json").exists()
    refused = vitlab("eval", *words)
    assert refused.returncode == 2
    assert "was not trained on the classes of digits; ask for probes=[NAME]" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["recipe.lr=1"],
            "recipe.lr: cannot be changed for a finished run; choices: data, train_size, probes, task.test_items",
        ),
        (["train_size=100000"], "train_size=100000: digits has 1294 training images; give at most 1294 or all"),
        (["train_size=3"], "train_size=3: digits has 10 classes; give at least 10"),
        (["--out", "/dev/null/x"], "--out /dev/null/x: cannot write there"),
    ],
)
def test_wrong_input_is_one_line(finished, words, says):
    done = vitlab("eval", finished, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_probes_of_a_model_without_features_are_refused_before_training(tmp_path, monkeypatch):
    (tmp_path / "bare_models").mkdir()
    (tmp_path / "bare_models" / "bare.py").write_text(
        "from torch import nn\n\n"
        "def build(config, *, num_classes, image_size, channels):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size[0] * image_size[1], num_classes))\n"
    )
    (tmp_path / "bare.yaml").write_text("kind: bare_models.bare\n")
    monkeypatch.syspath_prepend(tmp_path)
    asked = [f"models=[{tmp_path}/bare.yaml]", "data=digits", "probes=[knn]", "wandb.mode=off"]
    for words in (["scale", *asked], ["train", f"model={tmp_path}/bare.yaml", *asked[1:]]):
        done = vitlab(*words, "--out", tmp_path / "out")
        assert done.returncode == 2
        assert "Sequential has no method features(inputs)" in done.stderr
        assert not (tmp_path / "out" / "results.csv").exists()
        assert not list(tmp_path.glob("out/**/metrics.jsonl"))
