"""Budgets as numbers of steps, against their definition."""

from pathlib import Path

import numpy as np
import pytest
import torch

from vitlab import models
from vitlab.config import TrainConfig, UserError, compose
from vitlab.data.loader import train_loader
from vitlab.data.opening import open_data
from vitlab.models import counting
from vitlab.training import run as budgets
from vitlab.training.run import find_peak, plan_run


def budget(unit, value):
    return compose(TrainConfig, [f"budget.{unit}={value}"]).budget


@pytest.mark.parametrize(
    ("unit", "value", "steps"),
    [
        ("steps", 7, 7),
        ("examples", 13 * 7, 7),  # exactly 7 batches of 13
        ("examples", 13 * 7 + 1, 8),  # a part of a batch takes a step
        ("examples", 1, 1),
        ("epochs", 1, 8),  # 101 images in batches of 13
        ("epochs", 2.5, 20),  # 252.5 images
        ("epochs", 0.001, 1),
        ("flops", 13 * 1009 * 7, 7),
        ("flops", 13 * 1009 * 8 - 1, 7),  # a budget is not exceeded
    ],
)
def test_a_budget_is_a_number_of_steps(unit, value, steps):
    found = budgets.compute_steps(budget(unit, value), train_size=101, batch_size=13, flops_per_example=1009)
    assert found == steps
    assert isinstance(found, int)


def test_a_budget_of_operations_below_one_step_is_the_users_mistake():
    with pytest.raises(UserError, match=r"budget\.flops=13116: one step of 13 examples takes 1\.31e\+04"):
        budgets.compute_steps(budget("flops", 13 * 1009 - 1), train_size=101, batch_size=13, flops_per_example=1009)


# ---- the share of a GPU's peak


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989e12),
        ("NVIDIA H100 PCIe", "bf16-mixed", 756e12),
        ("NVIDIA A100-SXM4-80GB", "32-true", 156e12),
        ("NVIDIA L40S", "bf16-mixed", 362e12),
        ("NVIDIA L4", "bf16-mixed", 121e12),
        ("Tesla T4", "32-true", None),
        ("cpu", "bf16-mixed", None),
    ],
)
def test_the_peak_is_that_of_the_chip(device, precision, peak):
    assert find_peak(device, precision) == peak


@pytest.mark.parametrize(
    "words",
    [
        "data=numbers data.count=400",
        "data=numbers data.count=400 model=gpt_nano",
        "data=csv data.path=table.csv task=text_classification recipe.batch_size=8",
        "task=captioning data.train_images=60 data.test_images=9",
    ],
)
def test_operations_are_counted_at_the_lengths_of_batches(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("text,label\n" + "".join(f"{'so ' * (n % 17)}it is,{n % 2}\n" for n in range(200)))
    config = compose(TrainConfig, words.split())
    task, lengths = plan_run(config, open_data(config.data)).task, []
    is_tokens = lambda x: x is not None and x.dtype == torch.int64 and x.ndim == 2  # noqa: E731
    for model in (counting.meta(config.model, **task.shape), models.build(config.model, **task.shape).eval()):
        model.register_forward_pre_hook(lambda _, given: lengths.append([len(x[0]) for x in given if is_tokens(x)]))
        options = {"batch_size": config.recipe.batch_size, "steps": 4, "seed": 0}
        if next(model.parameters()).is_meta:
            task.loss(model, task.example())
            continue
        for batch in train_loader(task.train, np.arange(len(task.train)), **options):
            task.loss(model, task.prepare(batch, torch.Generator()))
    assert lengths[0] == pytest.approx(np.mean(lengths[1:], axis=0), abs=1.5)
