"""What `auto` means, rule by rule, and what the user pins."""

import os
import signal
import warnings
from signal import SIGTERM

import pytest
import torch
from torch import nn

from tests.runs import train_run
from vitlab.config import TrainConfig, UserError, compose
from vitlab.hardware import count_cores
from vitlab.models import build_model
from vitlab.training import settings
from vitlab.training.loop import Interrupted
from vitlab.training.settings import LARGE, Machine, evaluation_context, resolve
from vitlab.training.train import PROCESS, VARIABLES

GPU = torch.cuda.is_available()


def resolved(model, *overrides, cached=True, **machine):
    config = compose(TrainConfig, ["trainer.accelerator=cpu", *(f"trainer.{o}" for o in overrides)])
    return resolve(config.trainer, model, cached=cached, machine=Machine(**machine))


def of_size(parameters):
    with torch.device("meta"):
        return nn.Linear(parameters, 1, bias=False)


def test_a_gpu_is_taken_where_there_is_one():
    config = compose(TrainConfig).trainer
    assert resolve(config, of_size(3), cached=True).accelerator == ("gpu" if GPU else "cpu")
    assert resolved(of_size(3)).accelerator == "cpu"


@pytest.mark.skipif(GPU, reason="this machine has one")
@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("accelerator=gpu", "trainer.accelerator=gpu: torch sees no GPU; choices: auto, cpu"),
        ("precision=16-mixed", "trainer.precision=16-mixed: needs a GPU; choices on a CPU: auto, 32-true"),
    ],
)
def test_a_gpu_that_is_not_there_is_the_users_mistake(word, says):
    with pytest.raises(UserError, match=says):
        resolved(of_size(3), word)


@pytest.mark.parametrize("has_bf16", [True, False])
def test_precision_on_a_cpu_depends_on_its_instructions_whatever_the_models_size(has_bf16, monkeypatch):
    monkeypatch.setattr(settings, "cpu_has_bf16", lambda: has_bf16)
    for parameters in (3, LARGE):
        assert resolved(of_size(parameters)).precision == ("bf16-mixed" if has_bf16 else "32-true")
    assert resolved(of_size(LARGE), "precision=32-true").precision == "32-true"
    assert resolved(of_size(3), "precision=bf16-mixed").precision == "bf16-mixed"


@pytest.mark.parametrize(
    ("name", "has", "fast"),
    [
        ("Intel Xeon", {"avx512_bf16": True, "amx_bf16": True}, True),
        ("Intel Xeon", {"avx512_bf16": True, "amx_bf16": False}, False),  # half the rate of float32
        ("AMD EPYC", {"avx512_bf16": True}, True),
        ("AMD EPYC", {"avx512_bf16": False}, False),
        ("Neoverse", {"bf16": True}, True),
    ],
)
def test_bf16_is_chosen_on_a_cpu_where_it_is_faster(name, has, fast, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name, **has})
    assert settings.cpu_has_bf16() == fast


@pytest.mark.parametrize("has_units", [True, False])
def test_bf16_that_a_gpu_only_emulates_is_not_chosen(has_units, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or has_units
    )
    config = compose(TrainConfig, ["trainer.accelerator=gpu"]).trainer
    assert resolve(config, of_size(3), cached=True).precision == ("bf16-mixed" if has_units else "32-true")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("32-true", torch.float32), ("16-mixed", torch.float32)]
)
def test_a_result_is_evaluated_in_the_precision_that_it_was_trained_in(precision, dtype):
    device, autocast = evaluation_context(precision, "cpu")
    layer = nn.Linear(3, 5).to(device)
    with autocast:
        assert layer(torch.ones(2, 3, device=device)).dtype == dtype
    assert layer(torch.ones(2, 3, device=device)).dtype == torch.float32


def test_memory_format_follows_the_convolutions():
    vit = build_model("vit_nano", image_size=8, num_classes=3)
    resnet = build_model("resnet_nano", image_size=8, num_classes=3)
    assert resolved(vit).memory_format == "contiguous", "its only convolution is the patch embedding"
    assert resolved(resnet).memory_format == "channels_last"
    assert resolved(resnet, "memory_format=contiguous").memory_format == "contiguous"
    assert resolved(vit, "memory_format=channels_last").memory_format == "channels_last"


def test_threads_are_one_for_small_models_and_a_share_of_the_cores_for_others(monkeypatch):
    monkeypatch.setattr(settings, "count_cores", lambda: 13)
    assert resolved(of_size(LARGE - 1)).threads == 1
    assert resolved(of_size(LARGE)).threads == 13
    assert resolved(of_size(LARGE), cores=4).threads == 4
    assert resolved(of_size(3), "threads=7", cores=4).threads == 7


def test_what_a_study_has_settled_is_not_chosen_again():
    settled = {"precision": "bf16-mixed", "threads": 5, "memory_format": "channels_last"}
    found = resolved(of_size(3), cores=2, settled=settled)
    assert (found.precision, found.threads, found.memory_format) == ("bf16-mixed", 5, "channels_last")


def test_settings_for_the_gpus_of_a_cluster_need_none_here():
    found = resolved(of_size(3), here=False, settled={"accelerator": "gpu"})
    assert (found.accelerator, found.precision) == ("gpu", "bf16-mixed")


def test_workers_are_for_images_that_are_not_cached(monkeypatch):
    monkeypatch.setattr(settings, "count_cores", lambda: 13)
    assert resolved(of_size(3), cached=True).workers == 0
    assert resolved(of_size(3), cached=False, cores=6).workers == 6
    assert resolved(of_size(3), "workers=0", cached=False).workers == 0
    assert resolved(of_size(3), "workers=5", cached=True).workers == 5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux binds processes to cores")
def test_the_cores_are_those_that_the_process_may_use():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert count_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert count_cores() == len(before)


def test_a_run_sets_back_what_it_changed_for_its_process(tmp_path, monkeypatch):
    """A notebook that trains once keeps its own flags, threads, random numbers and warnings."""

    def look():
        kept = [str(get()) for get, _ in PROCESS]
        return kept, [os.environ.get(name) for name in VARIABLES], list(warnings.filters), signal.getsignal(SIGTERM)

    monkeypatch.setenv("PL_GLOBAL_SEED", "5")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = look()
    words = [
        "data=digits",
        "budget.steps=3",
        "trainer.evaluations=1",
        "train_size=20",
        "recipe.warmup=0",
        "recipe.ema=null",
        "wandb.mode=off",
    ]
    train_run(compose(TrainConfig, [*words, "seed=3", "analyses=[]"]), tmp_path / "run")
    assert look() == before
    with pytest.raises(Interrupted):
        train_run(compose(TrainConfig, [*words, "analyses=[]"]), tmp_path / "other", stop=lambda: True)
    assert look() == before
