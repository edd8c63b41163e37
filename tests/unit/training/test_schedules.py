"""Every schedule at 20 points and more, against its formula as the paper writes it."""

import math

import pytest
import torch
from torch import nn

from vitlab.config import TrainConfig, UserError, compose
from vitlab.training.optim import build_optimizer as build
from vitlab.training.optim import build_schedule, compute_rate, find_fork, refuse_endless_warmup, to_steps

STEPS, LR, WIDTH = 211, 0.37, 53


def recipe(*overrides):
    return compose(TrainConfig, ["recipe.optimizer=adamw", *(f"recipe.{o}" for o in overrides)]).recipe


def rates(options, steps=STEPS):
    """The rate of every optimizer step, from the optimizer itself."""
    optimizer = build(nn.ParameterList([nn.Parameter(torch.zeros(3, 2))]), options)
    plan = build_schedule(optimizer, options, steps, WIDTH)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        plan.step()
    return found


def points(*more):
    found = {round(i * (STEPS - 1) / 19) for i in range(20)} | set(more)
    assert len(found) >= 20
    return sorted(found)


def after_warmup(name, step, warmup, low=0.0):
    """The rate at a step, 0 the first, as the papers write it; `low` is the share of the rate that is left."""
    if step < warmup:
        return LR * (step + 1) / warmup
    t = (step - warmup) / (STEPS - warmup)
    return {
        "cosine": LR * (low + (1 - low) * (1 + math.cos(math.pi * t)) / 2),
        "linear": LR * (low + (1 - low) * (1 - t)),
        "constant": LR,
    }[name]


@pytest.mark.parametrize("name", ["cosine", "linear", "constant"])
@pytest.mark.parametrize(("warmup", "steps"), [("17", 17), ("0.1", 21), ("0.0001", 0)])
def test_a_schedule_is_its_formula(name, warmup, steps):
    options = recipe(f"schedule={name}", f"warmup={warmup}", f"lr={LR}")
    assert to_steps(options.warmup, STEPS) == steps
    found = rates(options)
    for step in points(0, max(0, steps - 1), steps):
        assert found[step] == pytest.approx(after_warmup(name, step, steps)), step
    assert max(found) == pytest.approx(LR), "the recipe's rate is reached, and not passed"
    assert min(found) > 0, "no step is wasted"


@pytest.mark.parametrize("warmup", [1, 40, 400])
def test_noam_is_the_papers_formula(warmup):
    found = rates(recipe("schedule=noam", f"warmup={warmup}", f"lr={LR}"))
    for step in points(warmup - 1) if warmup < STEPS else points():
        n = step + 1  # the paper's step_num
        expected = LR / math.sqrt(WIDTH) * min(1 / math.sqrt(n), n / warmup**1.5)
        assert found[step] == pytest.approx(expected), step
    if warmup == 40:
        assert found.index(max(found)) == 39
        assert max(found) == pytest.approx(LR * (WIDTH * 40) ** -0.5)


@pytest.mark.parametrize(("warmup", "factor"), [(0, 0.1), (17, 0.1), (17, 0.5)])
def test_multistep_falls_at_its_milestones(warmup, factor):
    """BiT-HyperRule's staircase: 30, 60 and 90% of 211 steps are 63, 127 and 190."""
    options = ["schedule=multistep", "milestones=[0.3,0.6,0.9]", f"decay_factor={factor}"]
    found = rates(recipe(*options, f"warmup={warmup}", f"lr={LR}"))
    for step in points(62, 63, 126, 127, 189, 190):
        falls = (step >= 63) + (step >= 127) + (step >= 190)
        expected = LR * (step + 1) / warmup if step < warmup else LR * factor**falls
        assert found[step] == pytest.approx(expected), step


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_a_final_rate_is_where_the_schedule_ends(name):
    found = rates(recipe(f"schedule={name}", "warmup=17", f"lr={LR}", "final_lr=0.25"))
    for step in points(16, 17):
        assert found[step] == pytest.approx(after_warmup(name, step, 17, low=0.25)), step
    assert compute_rate(recipe(f"schedule={name}", "final_lr=0.25"), STEPS, STEPS) == pytest.approx(0.25)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_cooldown_falls_to_0_in_the_last_share_of_the_steps(share):
    found = rates(options := recipe("schedule=constant", f"cooldown={share}", "warmup=7", f"lr={LR}"))
    fork = STEPS - round(share * STEPS)
    assert find_fork(options, STEPS) == fork
    for step in points(fork - 1, fork, fork + 1):
        falls = LR * (STEPS - step) / (STEPS - fork)
        assert found[step] == pytest.approx(min(falls, LR * min(1, (step + 1) / 7))), step
    longer = rates(options, 2 * STEPS)
    assert longer[: fork + 1] == found[: fork + 1], "to the bit: runs of both budgets are alike so far"
    with pytest.raises(UserError, match=r"recipe.cooldown=0.2: only recipe.schedule=constant uses it, not linear"):
        recipe("schedule=linear", "cooldown=0.2")


@pytest.mark.parametrize(("warmup", "steps", "fits"), [(20, 20, False), (19, 20, True), (0.9, 1, True), (0, 1, True)])
def test_a_warm_up_that_the_run_would_not_end_is_refused(warmup, steps, fits):
    options = recipe(f"warmup={warmup}")
    if fits:
        refuse_endless_warmup(options, steps)
        return
    with pytest.raises(UserError, match=f"recipe.warmup=20: the run has only {steps} steps; give recipe.warmup=0.1"):
        refuse_endless_warmup(options, steps)


def test_a_rate_for_another_batch_is_scaled():
    assert max(rates(recipe(f"lr={LR}", "lr_batch=64", "batch_size=96"))) == pytest.approx(1.5 * LR)
