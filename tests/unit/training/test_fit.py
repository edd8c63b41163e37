"""Training itself: with one's own Trainer, and what ends a run."""

import re
from pathlib import Path

import lightning.pytorch as L
import pytest
import torch

import vitlab
from vitlab.config import TrainConfig, compose
from vitlab.data.opening import open_data
from vitlab.tasks.images import Classification, update_class_metrics
from vitlab.training.callbacks import Diverged
from vitlab.training.run import Run, prepare
from vitlab.training.train import train

DOCS = Path(__file__).parents[3] / "docs" / "training.md"


@pytest.mark.filterwarnings("ignore::UserWarning:lightning")
def test_the_documented_trainer_and_loader_fill_the_metrics_that_callbacks_monitor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(snippet, names)
    trainer, module = names["trainer"], names["module"]
    assert trainer.global_step == 24
    assert set(trainer.callback_metrics) == {"train/loss", "validation/accuracy", "validation/loss"}
    assert trainer.callback_metrics["validation/accuracy"] == module.validation["accuracy"] > 0.9
    assert trainer.callback_metrics["train/loss"] == module.loss
    assert trainer.logged_metrics.keys() >= {"validation/accuracy"}
    best = trainer.checkpoint_callback
    assert best.monitor == "validation/accuracy"
    assert best.best_model_score == module.validation["accuracy"]
    report = vitlab.load_weights(
        names["models"].build(names["config"].model, **names["task"].shape), best.best_model_path
    )
    assert not report.missing


def prepare_run(folder, *words):
    tiny = ["data=digits", "model.depth=1", "budget.steps=4", "trainer.evaluations=2", "train_size=128", *words]
    config = compose(TrainConfig, tiny)
    return Run(prepare(config, open_data(config.data)), folder)


def test_a_held_out_value_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    def update(task, metrics, model, batch):
        images, labels = batch
        update_class_metrics(metrics, model(images).index_fill(0, torch.tensor([1]), torch.nan), labels)

    monkeypatch.setattr(Classification, "update", update)
    run = prepare_run(tmp_path / "run")
    with pytest.raises(Diverged, match=r"the validation loss is nan at step 2: try a lower recipe\.lr"):
        train(run)
    assert run.files.result() is None
    assert not any("validation/loss" in row for row in run.files.metrics())


def test_a_runs_callback_metrics_are_the_rows_that_it_logs(tmp_path, monkeypatch):
    trainers = []
    fit = L.Trainer.fit
    monkeypatch.setattr(L.Trainer, "fit", lambda self, *a, **k: (trainers.append(self), fit(self, *a, **k)))
    run = prepare_run(tmp_path / "run", "trainer.log_every=2")
    validation = train(run).validation
    found = {name: value.item() for name, value in trainers[0].callback_metrics.items()}
    assert found["validation/loss"] == pytest.approx(validation["loss"])
    assert found["validation/accuracy"] == pytest.approx(validation["accuracy"])
    assert all("epoch" not in row for row in run.files.metrics()), "each row is written once"
    assert [row["step"] for row in run.files.metrics()] == [2, 2, 4, 4]
