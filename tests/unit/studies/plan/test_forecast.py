"""A study on a described machine: operations by hand, what fits, what is packed, data that are not here."""

from dataclasses import replace

import pytest
from rich.console import Console

from vitlab.cli import main
from vitlab.models.counting.memory import Activations
from vitlab.studies.grid import compose_study
from vitlab.studies.plan.forecast import UTILISATION, Needs, forecast
from vitlab.studies.plan.machine import Machine
from vitlab.studies.plan.study import plan_study

GB = 10**9
EXPECTED = "data.expected={train: 1000000, test: 1000, classes: 10, bytes: 5e9}"
WORDS = ["data=webdataset", EXPECTED, "data.image_size=32", "seeds=[0]", "wandb.mode=off"]


def find(machine, *words):
    plan = plan_study(compose_study("quick", [*WORDS, *words]), jobs=None, console=Console(), elsewhere=True)
    return forecast(plan, machine)


def test_time_and_memory_of_a_study_are_those_by_hand():
    words = ["models={small: {model: vit_nano, model.patch_size: 8}, large: {model: vit_s16, model.patch_size: 8}}"]
    words += [
        "sizes=[10000,100000]",
        "budget.epochs=2",
        "trainer.evaluations=1",
        "recipe=adamw",
        "set=[recipe.batch_size=100]",
    ]
    found = find(Machine(1, 80 * GB, 1e14, 0.5), *words)
    large = found.plan.by_variant["large"]
    assert found.needs["large"].weights == 4 * large.params
    assert found.needs["large"].states == 2 * 4 * large.params
    [spec] = [spec for spec in found.plan.specs if spec.name == "large-n100000-s0"]
    # two epochs; 5,000 held-out images once and 1,000 at the end, a third of a step's operations each
    examples = 2 * 100_000 + (5000 + 1000) / 3
    assert found.seconds(spec) == pytest.approx(examples * large.flops_per_example / (1e14 * 0.5))
    assert found.wall == pytest.approx(found.device_seconds)
    slow = replace(found, machine=replace(found.machine, read=100.0))
    assert slow.seconds(spec) == pytest.approx(examples / 100), "the loaders are slower than the GPU"
    assert found.fits["large"].describe() == "one device"
    assert found.checkpoint_bytes == sum(2 * 3 * 4 * one.params for one in found.plan.by_variant.values())


def test_a_long_run_takes_more_devices_rather_than_let_the_others_wait():
    words = ["models={vit: {model: vit_nano, model.patch_size: 8}, resnet: resnet_nano}", "sizes=[1000,all]"]
    words += ["budget.epochs=1", "recipe=adamw", "set=[recipe.batch_size=256]"]
    few, many = (find(Machine(devices, 80 * GB, 1e14), *words) for devices in (1, 64))
    assert few.utilisation("vit") == UTILISATION["transformer"]
    assert few.utilisation("resnet") == UTILISATION["convolutions"]
    assert few.fits["vit"].devices == 1
    longest = max(few.runs)
    assert many.fits[longest[2]].devices == 8, "32 examples on each, no fewer"
    assert many.wall == pytest.approx(longest[0] / 8)
    assert many.wall > 2 * many.device_seconds / 64, "a run does not divide further: devices wait"


def test_what_fits_where():
    activations = Activations(fixed=2 * GB, per_example=1 * GB, checkpointed=0.1 * GB)
    needs = Needs(4 * GB, 4 * GB, 8 * GB, GB // 2, activations, False, True, False)  # a billion weights
    fits = {room: needs.fit(64, 1, room * GB) for room in (100, 40, 20, 15)}
    assert fits[100].describe() == "one device", "64 examples and 18 GB"
    assert fits[40].describe() == "one device / 4", "a batch in parts of 16, for 22 fit"
    assert fits[40].bytes == (18 + 16) * GB
    assert fits[20].describe() == "one device / 4 again", "2 examples at a time would keep a GPU waiting"
    assert fits[15] is None
    assert needs.fit(64, 8, 24 * GB).describe() == "ddp x 8 again", "buckets of gradients take 4 GB more"
    assert needs.fit(64, 8, 14 * GB).describe() == "fsdp x 8", "2 + 2 + 1 GB and 8 examples"
    whole = Needs(4 * GB, 4 * GB, 8 * GB, GB // 2, activations, False, False, False)  # Muon's matrices
    assert whole.fit(64, 8, 14 * GB) is None
    batchnorm = replace(whole, batchnorm=True)
    assert batchnorm.fit(64, 1, 100 * GB).describe() == "one device"
    assert batchnorm.fit(64, 1, 40 * GB) is None, "not in parts"


def test_the_command_prints_a_forecast_of_data_that_are_not_here(capsys, tmp_path):
    words = [*WORDS, "models=[vit_nano]", "set=[model.patch_size=8]", "sizes=[0.5]", "budget.epochs=1"]
    words += ["--dry-run", "--on", "gpu:2,memory=80,flops=1e15", "--out", str(tmp_path / "study")]
    assert main(["scale", "quick", *words]) == 0
    out = capsys.readouterr().out
    assert "2 GPUs of 80 GB and 1,000 TFLOP/s" in out or "2 GPUs of 80 GB and 1.00 PFLOP/s" in out
    assert "GPU-hours" in out
    assert "5.00 GB of data" in out
    assert "its numbers are those of data.expected" in out
    assert not (tmp_path / "study").exists()
