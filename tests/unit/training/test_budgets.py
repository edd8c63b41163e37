"""Budgets as numbers of steps, against their definition."""

import pytest

from vitlab.config import TrainConfig, UserError, compose
from vitlab.training import run as budgets
from vitlab.training.run import find_peak


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
