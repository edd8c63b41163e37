"""`vitlab train` and what can be done with a run."""

import json
import shutil
import signal

import numpy as np
import pytest
import torch

import vitlab as api
from tests.integration.commands import FINISHED, TINY, rows, succeed
from tests.runs import train_run
from vitlab.cli import main
from vitlab.config import TrainConfig, compose, names, resolved
from vitlab.config.identity import subset_seed
from vitlab.data.opening import open_data
from vitlab.data.split import training_items

RANDOM = ["model.dropout=0.2", "model.drop_path=0.2", "data.augment.shift=2", "data.augment.flip=true"]
EVERYTHING = [  # that a recipe can turn on, at once
    *("data.augment.crop_scale=[0.5,1]", "recipe.rand_augment.layers=2", "recipe.rand_augment.std=0.5"),
    *("recipe.random_erasing=0.5", "recipe.mixup=0.8", "recipe.cutmix=1", "recipe.label_smoothing=0.1"),
    *("recipe.repeats=3", "recipe.ema=0.9", "recipe.optimizer=muon", "recipe.layer_decay=0.8"),
    *("recipe.schedule=constant", "recipe.batch_size=64"),
]

OWN_ANALYSIS = """
UNIT, NEEDS = "images", "nothing"

def applies(model):
    return True

def run(model, inputs, config):
    return [{"value": len(inputs) * config.scale}]
"""


def test_a_run_leaves_the_files_of_the_contract(finished):
    result = json.loads((finished / "result.json").read_text())
    assert (finished / "config.yaml").is_file()
    assert (finished / "checkpoints" / "last.ckpt").is_file()
    assert result["status"] == "finished"
    assert (result["steps"], result["examples_seen"], result["train_size"]) == (60, 60 * 64, 110)
    assert result["error"] == pytest.approx(1 - result["accuracy"], abs=1e-6)
    assert result["params"] == sum(p.numel() for p in api.load_run(finished).model.parameters())
    assert torch.__version__.startswith(result["environment"]["torch"])
    found = rows(finished)
    assert all("step" in row for row in found)
    assert [row["step"] for row in found if "train/loss" in row] == [*range(3, 61, 3)]
    assert [row["step"] for row in found if "validation/accuracy" in row] == [30, 60]


def test_given_again_a_finished_run_is_not_trained_again(finished, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    assert main(["train", *FINISHED, "--out", str(finished)]) == 0
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()} == before
    assert "accuracy" in capsys.readouterr().out


def test_a_damaged_checkpoint_is_named(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "checkpoints" / "last.ckpt").write_bytes(b"not a checkpoint")
    assert main(["train", *FINISHED, "--out", str(tmp_path / "run")]) == 2
    assert "last.ckpt" in capsys.readouterr().err


def test_another_configuration_is_refused_in_the_same_folder(finished, capsys):
    before = (finished / "result.json").read_bytes()
    assert main(["train", *FINISHED, "budget.steps=13", "--out", str(finished)]) == 2
    assert "budget.steps 60 -> 13" in capsys.readouterr().err
    assert (finished / "result.json").read_bytes() == before


def test_every_analysis_that_applies_leaves_its_numbers_and_pictures(finished, tmp_path):
    few = [f"{name}.examples=9" for name in names("analysis") if name != "attention_distance"]
    output = succeed("analyze", finished, *few, "robustness.examples=60", "cka.batch=4", "--out", tmp_path / "out")
    assert output.stderr == ""
    written = {path.name for path in (tmp_path / "out").glob("[!.]*")}
    *lines, last = output.stdout.splitlines()
    assert {name for line in lines for name in line.rpartition("/")[2].split(", ")} == written
    assert last.endswith(str(tmp_path / "out"))
    expected = set(names("analysis")) - {"head_patterns", "alignment", "token_reach"}  # of text
    assert {name.removesuffix(".json") for name in written if name.endswith(".json")} == expected
    assert {name.removesuffix(".npz") for name in written if name.endswith(".npz")} == {
        *("attention_maps", "rollout", "position_similarity", "rgb_filters", "receptive_field", "embedding"),
        "explanation",
    }
    trained, again = (
        json.loads((folder / "attention_distance.json").read_text())["rows"]
        for folder in (finished / "analysis", tmp_path / "out")
    )
    assert [r["value"] for r in again] == pytest.approx([r["value"] for r in trained if r["step"] == 60], abs=1e-4)
    assert (tmp_path / "out" / "attention_distance.png").stat().st_size > 1000
    with np.load(tmp_path / "out" / "embedding.npz", allow_pickle=False) as arrays:
        assert arrays["points"].shape == (9, 2)
    kept = json.loads((tmp_path / "out" / "robustness.json").read_text())["rows"]
    whole = [row["value"] for row in kept if (row["kind"], row["strength"]) in {("shuffle", 1), ("occlusion", 0)}]
    assert len(whole) == 2
    assert whole[0] == whole[1] < 1, "its accuracy, not its own answers"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("cka.bach=4", "did you mean 'batch'"),
        ("cka=4", "give cka.KEY=VALUE"),
        ("cka.examples=0", "must be at least 1"),
        (f"cka.examples={10**22}", "must be at most 1000000"),
    ],
)
def test_an_option_that_an_analysis_does_not_have_is_refused(finished, tmp_path, capsys, word, said):
    assert main(["analyze", str(finished), "cka", word, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_an_own_analysis_is_chosen_by_the_path_of_its_file(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mylab").mkdir()
    (tmp_path / "mylab" / "__init__.py").touch()
    (tmp_path / "mylab" / "spread.py").write_text(OWN_ANALYSIS)
    (tmp_path / "mylab" / "lacking.py").write_text("def run(model, inputs, config): ...")
    text = "title: spread\nexamples: 4\ndrawings: []\nscale: 1.0\n"
    (tmp_path / "own.yaml").write_text(f"kind: mylab.spread\n{text}")
    (tmp_path / "lacking.yaml").write_text(f"kind: mylab.lacking\n{text}")
    words = [*TINY, "model=resnet_nano", "budget.steps=2", "train_size=100", "wandb.mode=off"]
    assert main(["train", *words, "analyses=[./own.yaml]", "--out", "run"]) == 0
    kept = json.loads((tmp_path / "run" / "analysis" / "own.json").read_text())["rows"]
    assert [(row["step"], row["value"]) for row in kept] == [(0, 4), (2, 4)]
    assert main(["analyze", "run", "./own.yaml", "own.scale=2.5", "--out", "out"]) == 0
    (row,) = json.loads((tmp_path / "out" / "own.json").read_text())["rows"]
    assert row["value"] == 10
    capsys.readouterr()
    assert main(["analyze", "run", "./lacking.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "it lacks UNIT, NEEDS, applies" in line
    (tmp_path / "own.yaml").unlink()
    assert main(["analyze", "run", "embedding", "embedding.examples=9"]) == 0, "a run is read without its analyses"


@pytest.fixture
def read_of_test(monkeypatch):
    """Notes what is read of the test data of a configuration: the number of the item, and what `when` says then."""

    def note(config, when=lambda: None):
        split, found = open_data(config.data).test, []
        read = split.read
        monkeypatch.setitem(
            vars(split), "read", lambda items: found.extend((int(i), when()) for i in items) or read(items)
        )
        return found

    return note


def test_test_data_are_read_once_by_the_trained_model(tmp_path, read_of_test):
    looks = ["analyses=[robustness,attention_distance]", "trainer.analyze_every=3", "recipe.keep=best"]
    config = compose(TrainConfig, [*TINY, "budget.steps=8", "train_size=60", "wandb.mode=off", *looks])

    def last_step():
        return max((row["step"] for row in rows(tmp_path / "run")), default=0)

    found, handlers = read_of_test(config, last_step), []
    train_run(config, tmp_path / "run", progress=lambda _: handlers.append(signal.getsignal(signal.SIGTERM)))
    assert {*handlers} == {signal.getsignal(signal.SIGTERM)}, "Lightning's own would end an evaluation with exit code 0"
    assert sorted(found) == [(item, 8) for item in range(len(open_data(config.data).test))]
    looked = json.loads((tmp_path / "run" / "analysis" / "robustness.json").read_text())["rows"]
    assert {row["step"] for row in looked} == {0, 3, 6, 8}


def test_analyze_reads_no_test_data(finished, tmp_path, read_of_test):
    found = read_of_test(api.load_run(finished).config)
    assert main(["analyze", str(finished), "robustness", "cka", "--out", str(tmp_path / "out")]) == 0
    assert found == []


def test_a_loss_that_is_not_finite_ends_the_run_with_one_line(tmp_path, capsys):
    words = [*TINY, "recipe.lr=1e30", "recipe.clip_norm=null", "budget.steps=40", "wandb.mode=off"]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 1
    assert "the loss is nan at step 3: try a lower recipe.lr (now 1e+30)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "result.json").exists()


def test_wrong_labels_of_a_long_tail_train_a_run_and_shifted_test_data_measure_it_also_later(tmp_path, capsys):
    words = ["train", *TINY, "data.label_noise=0.5", "data.imbalance=4", "train_size=200", "budget.steps=20"]
    words += ["analyses=[]", "wandb.mode=off", "--out", tmp_path / "run"]
    assert main([*map(str, words), "eval_on=[cifar,digits]"]) == 2
    assert "eval_on=cifar: unknown data; did you mean 'cifar10'?" in capsys.readouterr().err
    for entry, said in (
        ("glyphs@train_images=400@test_images=36", "has other classes than data=digits"),
        ("digits@blur=x", "blur=x: expected a number above 0"),
        ("digits@blr=2", "data.blr: no key 'blr' in 'data'"),
    ):
        assert main([*map(str, words), f"eval_on=[{entry}]"]) == 2
        assert f"vitlab: eval_on={entry}: {said}" in capsys.readouterr().err
    succeed(*words, "eval_on=[digits@rotate=0]")
    first = json.loads((tmp_path / "run" / "result.json").read_text())
    assert first["accuracy@digits@rotate=0"] == first["accuracy"]
    assert 70 < first["wrong_labels"] < 130
    at = (tmp_path / "run" / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    succeed(*words, "eval_on=[digits@rotate=0,digits@contrast=0.1]")
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").stat().st_mtime_ns == at
    second = json.loads((tmp_path / "run" / "result.json").read_text())
    assert second["loss@digits@contrast=0.1"] > second["loss"] == first["loss"]


def test_a_run_is_measured_on_validation_and_on_its_own_training_items(tmp_path):
    words = [*TINY, "budget.steps=8", "train_size=60", "wandb.mode=off", "trainer.evaluations=8", "recipe.keep=best"]
    words += ["data.augment.shift=2", "analyses=[]", "trainer.precision=32-true"]  # as the model is asked below
    config = compose(TrainConfig, words)
    result = train_run(config, tmp_path / "run")
    logged = [row for row in rows(tmp_path / "run") if "validation/accuracy" in row]
    kept = next(row for row in logged if row["step"] == result["kept_step"])
    assert result["validation_accuracy"] == pytest.approx(kept["validation/accuracy"], abs=1e-4)
    assert result["validation_loss"] == pytest.approx(kept["validation/loss"], rel=1e-4)

    run, data = api.load_run(tmp_path / "run"), open_data(config.data)
    chosen = training_items(data.train, 60, subset_seed(resolved(config)))
    images = torch.from_numpy(data.train.read(chosen)).float() / 255
    inputs = (images - config.data.mean[0]) / config.data.std[0]
    right = run.model(inputs).argmax(1) == torch.from_numpy(data.train.labels[chosen])
    assert result["train_sample_accuracy"] == pytest.approx(float(right.float().mean()), abs=1e-4)
