"""Settings chosen per run on validation data: the best one, its columns, no look at test, nothing trained twice."""

import json
from pathlib import Path

import lightning.pytorch as L
import pytest

import vitlab as api
from tests.runs import train_run
from vitlab.config import TrainConfig, compose
from vitlab.data.opening import open_data
from vitlab.training.files import RunFiles
from vitlab.training.loop import Interrupted

RATES = [1e-6, 0.05, 0.01]


def config(*words, tune=f"{{recipe.lr: {RATES}}}"):
    tiny = ["data=digits", "model=resnet_nano", "train_size=200", "recipe.batch_size=32", "wandb.mode=off"]
    steps = ["analyses=[]", "budget.steps=16", "trainer.evaluations=2", f"tune={tune}"]
    return compose(TrainConfig, [*tiny, *steps, *words])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder and the result of a run that has chosen its rate."""
    out = tmp_path_factory.mktemp("tuned") / "run"
    return out, train_run(config(), out)


@pytest.fixture
def fitted(monkeypatch):
    """The folders that were trained in, in order."""
    folders, fit = [], L.Trainer.fit

    def note(trainer, *parts, **options):
        folders.append(Path(trainer.default_root_dir).name)
        return fit(trainer, *parts, **options)

    monkeypatch.setattr(L.Trainer, "fit", note)
    return folders


def test_the_best_trial_is_the_run_and_the_others_are_its_cost(whole, tmp_path, fitted):
    out, result = whole
    trials = {RunFiles(path).config()["recipe"]["lr"]: RunFiles(path).result() for path in (out / "tune").iterdir()}
    assert {*trials} == {*RATES}
    found = {rate: trial["validation"] for rate, trial in trials.items()}
    best = max(found, key=lambda rate: (found[rate]["accuracy"], -found[rate]["loss"]))
    assert result["recipe.lr"] == best != RATES[0]
    assert result["tune_flops"] == 2 * result["train_flops"] > 0
    alone = train_run(config(f"recipe.lr={result['recipe.lr']}", tune="{}"), tmp_path / "alone")
    for key in ("accuracy", "loss", "train_loss", "steps"):
        assert result[key] == alone[key], "as if it had been trained with this rate alone"
    assert api.load_run(out).config.recipe.lr == result["recipe.lr"]
    evaluated = [row["step"] for row in RunFiles(out).metrics() if "validation/loss" in row]
    assert evaluated == [8, 16]
    before = len(fitted)
    assert train_run(config(), out) == result
    assert len(fitted) == before, "nothing is trained again"


class TestIsRead(Exception):
    __test__ = False


def test_no_choice_reads_the_test_data(whole, tmp_path, monkeypatch):
    chosen = config()
    data = open_data(chosen.data)

    def refuse(indices):
        raise TestIsRead

    monkeypatch.setitem(vars(data.test), "read", refuse)
    monkeypatch.setitem(vars(data.test), "labels", data.test.labels[::-1].copy())
    with pytest.raises(TestIsRead):  # by the run's own test, when it has chosen
        train_run(chosen, tmp_path / "run")
    monkeypatch.undo()
    assert RunFiles(tmp_path / "run").config()["recipe"]["lr"] == whole[1]["recipe.lr"]


def test_an_interrupted_tuning_goes_on_where_it_was(whole, tmp_path, fitted):
    asked = iter([False] * 20 + [True])
    reported = []
    with pytest.raises(Interrupted):
        train_run(config(), tmp_path / "run", stop=lambda: next(asked), progress=reported.append)
    assert reported[-1].steps == 48
    assert reported[-1].note == "1 of 3 settings tried"
    first, second = (f"recipe.lr-{rate}" for rate in RATES[:2])
    assert fitted == [first, second]
    result = train_run(config(), tmp_path / "run")
    assert fitted[2:] == [second, f"recipe.lr-{RATES[2]}", "run"]
    assert result == {**whole[1], **{k: result[k] for k in DIFFERENT}}


DIFFERENT = ("run", "images_per_s", "wall_s", "environment", "finished_at", "settings")


def test_a_setting_that_diverges_is_not_chosen(tmp_path):
    result = train_run(config(tune="{recipe.lr: [1.0e+25, 0.01]}"), tmp_path / "run")
    assert result["recipe.lr"] == 0.01
    trial = json.loads((tmp_path / "run" / "tune" / "recipe.lr-1e+25" / "result.json").read_text())
    assert trial["status"] == "diverged"
