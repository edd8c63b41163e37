"""One run on several devices: two processes with gloo, of which the first leads."""

import math
import multiprocessing

import pytest

from vitlab.config import TrainConfig, UserError, compose
from vitlab.studies.experiment import train_run
from vitlab.studies.outcomes import read_outcomes
from vitlab.training.callbacks import Interrupted
from vitlab.training.devices.group import DeviceLost
from vitlab.training.devices.sharding import ShardedStrategy
from vitlab.training.files import RunFiles

TINY = ["data=digits", "model=vit_nano", "model.width=24", "model.heads=3", "model.depth=1", "train_size=128"]
TINY += ["trainer.accelerator=cpu", "trainer.threads=1", "trainer.log_every=1", "trainer.evaluations=2"]
TINY += ["budget.steps=20", "recipe.batch_size=24", "analyses=[]", "wandb.mode=off"]
AUGMENTED = ["data.augment.flip=true", "data.augment.shift=1", "data.augment.crop_scale=[0.5,1]"]
AUGMENTED += ["recipe.mixup=0.3", "recipe.cutmix=1", "recipe.random_erasing=0.5"]
TWO, ADAMW = "trainer.devices=2", "recipe.optimizer=adamw"


def configure(*words):
    return compose(TrainConfig, [*TINY, *words])


def curve(folder):
    return [row["train/loss"] for row in RunFiles(folder).metrics() if "train/loss" in row]


def stop_at(folder, step):
    return lambda: any(row["step"] >= step for row in RunFiles(folder).metrics())


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("ddp", ["recipe.ema=0.8", "recipe.keep=best"]),
        pytest.param("fsdp", ["trainer.checkpoint_activations=true"], marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_with_any_number_of_devices_as_if_on_one(tmp_path, strategy, words):
    words = [*AUGMENTED, ADAMW, f"trainer.strategy={strategy}", *words]
    alone = train_run(configure(*words), tmp_path / "alone")
    run = tmp_path / "run"
    for step, others in ((9, [TWO]), (13, [])):
        with pytest.raises(Interrupted):
            train_run(configure(*words, *others), run, stop=stop_at(run, step))
        assert len(curve(run)) == step
    shared = train_run(configure(*words, TWO, "trainer.accumulate=3"), run)
    assert curve(run) == pytest.approx(curve(tmp_path / "alone"), abs=1e-5)
    assert shared["id"] == alone["id"]
    for key in ("loss", "accuracy", "calibration_error", "macro_f1"):
        assert shared[key] == pytest.approx(alone[key], rel=1e-4), key
    assert shared.get("kept_step") == alone.get("kept_step")
    ours, theirs = (read_outcomes(RunFiles(folder).heldout_path) for folder in (run, tmp_path / "alone"))
    assert (ours.means == theirs.means).mean() > 0.98, "in the order of the data"


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
        ([TWO, "trainer.strategy=fsdp", "recipe.optimizer=muon"], r"recipe\.optimizer=muon: Muon needs"),
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
