"""One run on several devices: two processes with gloo, of which the first leads."""

import math
import multiprocessing

import numpy as np
import pytest
import torch

from tests.integration.commands import vitlab
from vitlab.config import TrainConfig, UserError, compose
from vitlab.studies.experiment import train_run
from vitlab.studies.outcomes import read_outcomes
from vitlab.training.callbacks import Interrupted
from vitlab.training.checkpoint import read_checkpoint
from vitlab.training.devices.group import DeviceLost
from vitlab.training.devices.sharding import ShardedStrategy
from vitlab.training.files import RunFiles

FAST = ["train_size=128", "trainer.accelerator=cpu", "trainer.threads=1", "trainer.log_every=1"]
FAST += ["trainer.evaluations=2", "budget.steps=20", "recipe.batch_size=24", "analyses=[]", "wandb.mode=off"]
SMALL = ["model.width=24", "model.heads=3", "model.depth=1"]
TINY = [*FAST, *SMALL, "data=digits", "model=vit_nano"]
TEXTS = [*FAST, *SMALL, "data=numbers", "task=translation", "model=transformer_nano", "model.dropout=0"]
AUGMENTED = ["data.augment.flip=true", "data.augment.shift=1", "data.augment.crop_scale=[0.5,1]"]
AUGMENTED += ["recipe.mixup=0.3", "recipe.cutmix=1", "recipe.random_erasing=0.5", "model.dropout=0.1"]
TWO, ADAMW = "trainer.devices=2", "recipe.optimizer=adamw"


def configure(*words):
    return compose(TrainConfig, [*TINY, *words])


def curve(folder, key="train/loss"):
    return [row[key] for row in RunFiles(folder).metrics() if key in row]


def stop_at(folder, step):
    return lambda: any(row["step"] >= step for row in RunFiles(folder).metrics())


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (TINY, [TWO]),
        (TINY, ["trainer.accumulate=4"]),
        (TEXTS, [TWO, "trainer.accumulate=2"]),
        (TEXTS, ["trainer.accumulate=4"]),
        pytest.param(TINY, [TWO, "trainer.strategy=fsdp"], marks=pytest.mark.slow),
        pytest.param(TEXTS, [TWO, "trainer.strategy=fsdp", "trainer.accumulate=2"], marks=pytest.mark.slow),
    ],
)
def test_where_nothing_is_drawn_a_run_in_parts_has_the_losses_of_one_device(tmp_path, words, others):
    alone = train_run(compose(TrainConfig, [*words, ADAMW]), tmp_path / "alone")
    shared = train_run(compose(TrainConfig, [*words, ADAMW, *others]), tmp_path / "shared")
    assert curve(tmp_path / "shared") == pytest.approx(curve(tmp_path / "alone"), abs=1e-5)
    norms = [curve(tmp_path / name, "train/grad_norm") for name in ("shared", "alone")]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3), "AdamW would hide a factor"
    assert shared["id"] != alone["id"]
    assert shared["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    ours, theirs = (read_outcomes(RunFiles(tmp_path / name).heldout_path) for name in ("shared", "alone"))
    assert np.isclose(ours.means, theirs.means, atol=1e-3).mean() > 0.98, "in the order of the data"


@pytest.mark.parametrize(
    "words",
    [
        ["recipe.ema=0.8", "recipe.keep=best"],
        pytest.param(
            ["trainer.strategy=fsdp", "trainer.accumulate=3", "trainer.checkpoint_activations=true"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_on_two_devices_resumes_bit_for_bit(tmp_path, words):
    config = configure(*AUGMENTED, ADAMW, TWO, *words)
    whole, run = train_run(config, tmp_path / "whole"), tmp_path / "run"
    with pytest.raises(Interrupted):
        train_run(config, run, stop=stop_at(run, 9))
    assert len(curve(run)) == 9
    resumed = train_run(config, run)
    assert curve(run) == curve(tmp_path / "whole")
    assert [resumed[key] for key in ("id", "loss", "accuracy")] == [whole[key] for key in ("id", "loss", "accuracy")]
    ours, theirs = (read_checkpoint(RunFiles(folder).checkpoint_path) for folder in (run, tmp_path / "whole"))
    for name, weights in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], weights), name


def test_a_run_does_not_go_on_in_another_number_of_parts(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train_run(configure("trainer.accumulate=2"), run, stop=stop_at(run, 3))
    line = f"trainer.devices x nodes x accumulate = 4: the run in {run} began with 2; give numbers whose product is 2"
    with pytest.raises(UserError, match=line):
        train_run(configure(TWO, "trainer.accumulate=2"), run)
    refused = vitlab("train", *TINY, "trainer.accumulate=4", "--out", run)
    assert refused.returncode == 2
    assert refused.stderr.strip() == f"vitlab: {line}, or another --out, or delete that folder"
    train_run(configure(TWO), run)
    assert len(curve(run)) == 20


def test_sharded_weights_and_states_are_half_on_each_device(tmp_path, monkeypatch):
    parameters = []

    def keep(strategy, optimizer):
        parameters.extend(p for group in optimizer.param_groups for p in group["params"])
        parameters.extend(optimizer.state[p]["exp_avg"] for p in [*parameters])
        return optimizer_state(strategy, optimizer)

    optimizer_state = ShardedStrategy.optimizer_state
    monkeypatch.setattr(ShardedStrategy, "optimizer_state", keep)
    train_run(configure(ADAMW, TWO, "trainer.strategy=fsdp", "budget.steps=2"), tmp_path)
    assert parameters
    for whole in parameters:
        assert whole.to_local().numel() == whole.shape[1:].numel() * math.ceil(len(whole) / 2)


def test_a_device_that_dies_ends_the_run_in_a_line(tmp_path):
    def kill(progress):
        if progress.step >= 3:
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(DeviceLost, match=r"^device 1 of 2 was ended by SIGKILL: out of memory\?$") as caught:
        train_run(configure(TWO, "budget.steps=100000"), tmp_path / "run", progress=kill)
    assert caught.value.killed


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["trainer.devices=64"], r"trainer\.devices=64: this machine has \d+ cores, and torch uses no GPU"),
        (
            ["trainer.devices=2", "recipe.batch_size=25"],
            r"recipe\.batch_size=25: trainer\.devices=2 shares a batch in 2",
        ),
        (["trainer.accumulate=5"], r"recipe\.batch_size=24: .* 5 equal parts; give a multiple of 5, such as 25$"),
        ([TWO, "model=resnet_nano"], r"model=resnet_nano has BatchNorm, which torch synchronises on GPUs"),
        (
            ["trainer.accumulate=2", "model=resnet_nano"],
            r"trainer\.accumulate=2: model=resnet_nano has BatchNorm, whose",
        ),
        ([TWO, "trainer.strategy=fsdp", "recipe.optimizer=muon"], r"recipe\.optimizer=muon: needs whole weights"),
        ([TWO, "trainer.strategy=fsdp", ADAMW, "recipe.ema=0.5"], r"recipe\.ema=0\.5: needs whole"),
        (["trainer.nodes=2"], r"trainer\.nodes=2: start a process for each device with torchrun, or with srun"),
    ],
)
def test_what_devices_cannot_share_is_refused(tmp_path, words, problem):
    words = [word for word in TINY if not (word.startswith("model") and "model=resnet_nano" in words)] + words
    with pytest.raises(UserError, match=problem) as caught:
        train_run(compose(TrainConfig, words), tmp_path / "run")
    assert len(caught.value.problems) == 1
    assert not (tmp_path / "run").exists()
