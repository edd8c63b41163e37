"""One run on several devices: two processes with gloo, which torchrun starts."""

import itertools
import re
import signal
import time

import numpy as np
import pytest
import torch

from tests.configurations import refused
from tests.integration.commands import Program, succeed, vitlab
from tests.runs import train_run
from vitlab.config import TrainConfig, UserError, compose
from vitlab.models import counting
from vitlab.studies.outcomes import read_outcomes
from vitlab.studies.store import StudyFiles
from vitlab.training.distributed import refuse_devices, refuse_parts
from vitlab.training.files import RunFiles
from vitlab.training.finished import read_checkpoint
from vitlab.training.launch import DeviceLost, launch
from vitlab.training.loop import Interrupted

FAST = ["train_size=128", "trainer.accelerator=cpu", "trainer.threads=1", "trainer.log_every=1"]
FAST += ["trainer.precision=32-true"]  # auto is bf16-mixed on some CPUs, whose sums depend on the parts
FAST += ["trainer.evaluations=2", "budget.steps=20", "recipe.batch_size=24", "analyses=[]", "wandb.mode=off"]
SMALL = ["model.width=24", "model.heads=3", "model.depth=1"]
TINY = [*FAST, *SMALL, "data=digits", "model=vit_nano"]
TEXTS = [*FAST, *SMALL, "data=numbers", "data.count=300", "trainer.evaluations=1", "task=translation"]
TEXTS += ["model=transformer_nano", "model.dropout=0"]
AUGMENTED = ["data.augment.flip=true", "data.augment.shift=1", "data.augment.crop_scale=[0.5,1]"]
AUGMENTED += ["recipe.mixup=0.3", "recipe.cutmix=1", "recipe.random_erasing=0.5", "model.dropout=0.1"]
TWO, ADAMW = "trainer.devices=2", "recipe.optimizer=adamw"


def configure(*words):
    return compose(TrainConfig, [*TINY, *words])


def curve(folder, key="train/loss"):
    return [row[key] for row in RunFiles(folder).metrics() if key in row]


def train(words, folder):
    succeed("train", *words, "--out", folder)
    return RunFiles(folder).finished_result()


def assert_same_losses(folder, alone):
    assert curve(folder) == pytest.approx(curve(alone), abs=1e-5)
    norms = [curve(path, "train/grad_norm") for path in (folder, alone)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3), "AdamW would hide a factor"
    shared, result = (RunFiles(path).finished_result() for path in (folder, alone))
    assert shared["id"] != result["id"]
    assert shared["loss"] == pytest.approx(result["loss"], rel=1e-4)
    ours, theirs = (read_outcomes(RunFiles(path).heldout_path) for path in (folder, alone))
    assert np.isclose(ours.means, theirs.means, atol=1e-3).mean() > 0.98, "in the order of the data"


def stop(words, run, at):
    program = Program("train", *words, "--out", run)
    program.wait_for(lambda: len(curve(run)) >= at)
    program.signal(signal.SIGINT)
    assert program.end().returncode == 130


@pytest.mark.slow
def test_a_run_on_two_devices_that_goes_on_and_is_stopped_has_the_losses_of_one(tmp_path):
    words, run, calls = [*TEXTS, ADAMW, "budget.steps=40"], tmp_path / "run", itertools.count(1)
    train_run(compose(TrainConfig, words), tmp_path / "alone")  # with targets of different lengths
    one, two = [*words, "trainer.accumulate=4"], [*words, TWO, "trainer.accumulate=2"]
    with pytest.raises(Interrupted):
        train_run(compose(TrainConfig, one), run, stop=lambda: next(calls) == 3)
    stop(two, run, at=6)
    assert 6 <= len(curve(run)) < 40
    train(one, run)
    assert_same_losses(run, tmp_path / "alone")


@pytest.mark.slow
def test_a_run_on_two_devices_that_is_stopped_resumes_bit_for_bit(tmp_path):
    words = [*TINY, *AUGMENTED, ADAMW, TWO, "recipe.ema=0.8", "recipe.keep=best", "budget.steps=60"]
    whole, run = train(words, tmp_path / "whole"), tmp_path / "run"
    stop(words, run, at=9)
    resumed = train(words, run)
    assert curve(run) == curve(tmp_path / "whole")
    assert [resumed[key] for key in ("id", "loss", "accuracy")] == [whole[key] for key in ("id", "loss", "accuracy")]
    ours, theirs = (read_checkpoint(RunFiles(folder).checkpoint_path) for folder in (run, tmp_path / "whole"))
    for name, weights in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], weights), name


def test_a_run_does_not_go_on_in_another_number_of_parts(tmp_path):
    run = tmp_path / "run"
    train([*TINY, "trainer.accumulate=2"], run)
    refused = vitlab("train", *TINY, "trainer.accumulate=4", "--out", run)
    assert refused.returncode == 2
    line = f"trainer.devices x nodes x accumulate = 4: the run in {run} began with 2; give numbers whose product is 2"
    assert refused.stderr.strip() == f"vitlab: {line}, or another --out, or delete that folder"


@pytest.mark.slow
def test_a_study_trains_its_runs_on_two_devices(tmp_path):
    words = ["models=[vit_nano]", "data=digits", "sizes=[64]", "seeds=[0]", "budget.steps=6", "analyses=[]"]
    words += [f"set=[{','.join([*SMALL, 'trainer.accelerator=cpu', TWO, 'recipe.batch_size=24'])}]"]
    succeed("scale", *words, "wandb.mode=off", "--out", tmp_path / "study")
    (row,) = StudyFiles(tmp_path / "study").finished_rows()
    assert (row["steps"], row["status"]) == (6, "finished")


@pytest.mark.parametrize(
    ("of_device_1", "of_device_0", "says"),
    [
        ("os.kill(os.getpid(), 9)", "time.sleep(60)", "device 1 of 2 was ended by SIGKILL: out of memory?"),
        ("sys.exit(5)", "time.sleep(60)", 5),
        ("sys.exit(0)", "sys.exit(0)", 0),
    ],
)
def test_a_device_that_ends_ends_the_others(of_device_1, of_device_0, says, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    device = f"import os, sys, time\nif os.environ['RANK'] == '1':\n    {of_device_1}\nelse:\n    {of_device_0}"
    (tmp_path / "device.py").write_text(device)
    start, handlers = time.monotonic(), [(one, signal.getsignal(one)) for one in (signal.SIGTERM, signal.SIGINT)]
    try:
        found = launch(2, "device", [])
    except DeviceLost as error:
        found = str(error)
    for number, handler in handlers:
        signal.signal(number, handler)
    assert found == says
    assert time.monotonic() - start < 55


@pytest.mark.parametrize(
    ("words", "problem"),
    [
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
    ],
)
def test_what_devices_cannot_share_is_refused(words, problem):
    words = [word for word in TINY if not (word.startswith("model") and "model=resnet_nano" in words)] + words
    config = compose(TrainConfig, words)
    model = counting.meta(config.model, num_classes=10, image_size=(8, 8), channels=1).train()
    (line,) = refused(refuse_parts, config, model, "cpu")
    assert re.search(problem, line)


def test_more_devices_than_there_are_cores_are_refused():
    with pytest.raises(UserError, match=r"trainer\.devices=64: this machine has \d+ cores, and torch uses no GPU"):
        refuse_devices(configure("trainer.devices=64").trainer, "cpu")
