"""Training itself: what ends a run, and the numbers of a step."""

import signal

import pytest
import torch

from vitlab.config import TrainConfig, compose
from vitlab.data.opening import open_data
from vitlab.tasks import base
from vitlab.training.launch import Stopping
from vitlab.training.loop import Diverged
from vitlab.training.run import plan_run, start_run
from vitlab.training.train import train


def prepare_run(folder, *words):
    tiny = ["data=digits", "model.depth=1", "budget.steps=4", "trainer.evaluations=2", "train_size=128", *words]
    config = compose(TrainConfig, tiny)
    return start_run(plan_run(config, open_data(config.data)), folder)


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


def test_a_second_signal_ends_at_once_and_leaves_no_scratch_behind(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    (tmp_path / "scratch" / "again").mkdir(parents=True)
    with Stopping(tmp_path / "scratch"):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert (ended, list(tmp_path.iterdir())) == ([130], [])
