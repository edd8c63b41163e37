"""Early stopping and the best weights: by hand, over an interruption, and as every reader of the run finds them."""

import pytest
import torch

import vitlab as api
from tests.runs import train_run
from vitlab.config import TrainConfig, compose
from vitlab.training.files import RunFiles
from vitlab.training.loop import Interrupted
from vitlab.training.module import TrainingModule

LOSSES = [3.0, 2.0, 1.0, 1.5, 1.2, 0.5]  # of the evaluations, every second step


@pytest.fixture(autouse=True)
def evaluated(monkeypatch):
    """The weights that were evaluated, by their step; evaluations say LOSSES, whatever the model is worth."""
    step, end, found = TrainingModule.validation_step, TrainingModule.on_validation_epoch_end, {}

    def look(module, batch, number):
        found[module.global_step] = {key: value.clone() for key, value in module.run.model.state_dict().items()}
        step(module, batch, number)

    def say(module):
        end(module)
        module.validation = {"accuracy": 0.5, "loss": LOSSES[module.global_step // 2 - 1]}

    monkeypatch.setattr(TrainingModule, "validation_step", look)
    monkeypatch.setattr(TrainingModule, "on_validation_epoch_end", say)
    return found


def config(*words):
    tiny = ["data=digits", "model=resnet_nano", "train_size=40", "recipe.batch_size=16", "wandb.mode=off"]
    return compose(TrainConfig, [*tiny, "analyses=[]", "budget.steps=12", "trainer.evaluations=6", *words])


def same(one, other):
    return all(torch.equal(one[key], other[key]) for key in one)


def evaluations(folder):
    return [row["step"] for row in RunFiles(folder).metrics() if "validation/loss" in row]


def test_training_stops_after_evaluations_without_a_better_one(tmp_path, evaluated):
    result = train_run(config("recipe.patience=2"), tmp_path / "run")
    assert (result["steps"], result["examples_seen"]) == (10, 160)
    assert evaluations(tmp_path / "run") == [2, 4, 6, 8, 10]
    assert [row["step"] for row in RunFiles(tmp_path / "run").metrics() if "train/loss" in row] == [10]
    assert same(api.load_run(tmp_path / "run").model.state_dict(), evaluated[10]), "the last weights count"
    whole = train_run(config(), tmp_path / "whole")
    assert (whole["steps"], whole["train_flops"] * 10) == (12, result["train_flops"] * 12)


@pytest.mark.parametrize(("stopped", "seen"), [(5, [2, 4]), (8, [2, 4, 6, 8])])
def test_the_best_weights_count_and_an_interrupted_run_has_the_same(tmp_path, evaluated, stopped, seen):
    best = config("recipe.patience=2", "recipe.keep=best", "recipe.ema=0.5")
    result = train_run(best, tmp_path / "whole")
    assert (result["steps"], result["kept_step"]) == (10, 6)
    weights = api.load_run(tmp_path / "whole").model.state_dict()
    assert same(weights, evaluated[6])
    assert not same(weights, evaluated[10])

    asked = iter([*[False] * (stopped - 1), True])  # at step 8 behind its evaluation
    with pytest.raises(Interrupted):
        train_run(best, tmp_path / "cut", stop=lambda: next(asked))
    assert evaluations(tmp_path / "cut") == seen
    for _ in ("resumed", "killed after training"):
        again = train_run(best, tmp_path / "cut")
        for key in ("steps", "kept_step", "loss", "accuracy", "train_loss"):
            assert again[key] == result[key]
        assert same(api.load_run(tmp_path / "cut").model.state_dict(), weights)
        assert evaluations(tmp_path / "cut") == [2, 4, 6, 8, 10]
        (tmp_path / "cut" / "result.json").unlink()
