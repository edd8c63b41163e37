"""Training itself: with one's own Trainer, and what ends a run."""

import random
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import vitlab
from vitlab.config import TrainConfig, compose
from vitlab.data.opening import open_data
from vitlab.tasks import base
from vitlab.training.launch import Stopping
from vitlab.training.loop import Diverged
from vitlab.training.run import plan_run, start_run
from vitlab.training.train import keep_process_settings, train

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
    assert not vitlab.load_weights(names["run"].build_model(), best.best_model_path).missing


def prepare_run(folder, *words):
    tiny = ["data=digits", "model.depth=1", "budget.steps=4", "trainer.evaluations=2", "train_size=128", *words]
    config = compose(TrainConfig, tiny)
    return start_run(plan_run(config, open_data(config.data)), folder)


def test_with_a_rate_for_each_layer_the_last_layers_is_logged(tmp_path):
    words = ["recipe=adamw", "recipe.lr=0.004", "recipe.layer_decay=0.5", "recipe.schedule=constant", "recipe.warmup=0"]
    run = prepare_run(tmp_path / "run", *words, "trainer.log_every=1")
    train(run)
    assert {row["train/lr"] for row in run.files.metrics() if "train/lr" in row} == {0.004}


def test_a_run_leaves_the_random_numbers_of_its_process_alone():
    with keep_process_settings():
        first = torch.rand(1), np.random.random(), random.random()
    assert (torch.rand(1), np.random.random(), random.random()) == first


def test_a_held_out_value_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    def judge(of, logits, labels, scale, judge=base.judge):
        return judge(of, logits.index_fill(0, torch.tensor([1]), torch.nan), labels, scale)

    monkeypatch.setattr(base, "judge", judge)
    run = prepare_run(tmp_path / "run")
    with pytest.raises(Diverged, match=r"the validation loss is nan at step 2: try a lower recipe\.lr"):
        train(run)
    assert run.files.result() is None
    assert not any("validation/loss" in row for row in run.files.metrics())


# ---- the numbers of a step

TINY = ("recipe=adamw", "model.depth=1", "model.width=16", "model.heads=2", "recipe.batch_size=4")


def rows(folder, *words):
    run = prepare_run(folder, *TINY, "trainer.log_every=1", *words)
    train(run)
    return [{k: v for k, v in row.items() if not k.endswith(("_s", "per_s"))} for row in run.files.metrics()]


def test_rows_have_the_gradients_norm_with_and_without_clipping(tmp_path):
    plain = rows(tmp_path / "plain", "recipe.clip_norm=null")
    assert plain == rows(tmp_path / "loose", "recipe.clip_norm=1e6"), "which clips nothing"
    assert len({row["train/grad_norm"] for row in plain if "train/grad_norm" in row}) == 4
    clipped = rows(tmp_path / "clipped", "recipe.clip_norm=0.01")
    assert clipped[0]["train/grad_norm"] == plain[0]["train/grad_norm"], "the norm is that before clipping"
    assert clipped != plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_training_to_stop_and_handlers_are_set_back(number):
    before = signal.getsignal(number)
    with Stopping() as stopping:
        assert not stopping.asked()
        signal.raise_signal(number)
        assert stopping.asked()
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_at_once_and_leaves_no_scratch_behind(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    (tmp_path / "scratch" / "again").mkdir(parents=True)
    with Stopping(tmp_path / "scratch"):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert (ended, list(tmp_path.iterdir())) == ([130], [])
