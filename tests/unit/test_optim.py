"""Rates, parameter groups and budgets, against their formulas."""

import math

import pytest
import torch
from torch import nn

from vitlab.config import TrainConfig, UserError, compose
from vitlab.models import build_model
from vitlab.training import optim

STEPS, LR = 211, 0.37


def recipe(*overrides):
    return compose(TrainConfig, [f"recipe.{o}" for o in overrides]).recipe


def budget(unit, value):
    return compose(TrainConfig, [f"budget.{unit}={value}"]).budget


def formula(name, step, warmup):
    """The rate at a step, 0 the first, as the papers write it."""
    if step < warmup:
        return LR * (step + 1) / warmup
    t = (step - warmup) / (STEPS - warmup)
    return LR * {"cosine": (1 + math.cos(math.pi * t)) / 2, "linear": 1 - t, "constant": 1.0}[name]


def rates(options, steps=STEPS):
    """The rate of every optimizer step, from the optimizer itself."""
    weight = nn.Parameter(torch.zeros(3, 2))
    optimizer = optim.optimizer(nn.ParameterList([weight]), options)
    schedule = optim.schedule(optimizer, options, steps)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


# ---- schedules


@pytest.mark.parametrize("name", ["cosine", "linear", "constant"])
@pytest.mark.parametrize(
    ("warmup", "steps"), [("0", 0), ("17", 17), ("0.1", 21), ("0.5", 106), ("0.0001", 0), ("1", 1)]
)
def test_a_schedule_is_its_formula(name, warmup, steps):
    options = recipe(f"schedule={name}", f"warmup={warmup}", f"lr={LR}")
    assert optim.warmup_steps(options, STEPS) == steps
    found = rates(options)
    points = sorted({round(i * (STEPS - 1) / 19) for i in range(20)} | {0, max(0, steps - 1), steps})
    assert len(points) >= 20
    for step in points:
        assert found[step] == pytest.approx(formula(name, step, steps)), step
    assert max(found) == pytest.approx(LR), "the recipe's rate is reached, and not passed"
    assert min(found) > 0, "no step is wasted"


def test_the_first_step_has_a_rate_and_the_warm_up_ends_at_the_whole():
    found = rates(recipe("warmup=10", f"lr={LR}", "schedule=constant"))
    assert found[:10] == pytest.approx([LR * k / 10 for k in range(1, 11)])
    assert found[10:] == pytest.approx([LR] * (STEPS - 10))


def test_a_warm_up_longer_than_the_run_ends_with_it():
    found = rates(recipe("warmup=50", f"lr={LR}"), steps=20)
    assert found == pytest.approx([LR * k / 50 for k in range(1, 21)])


def test_the_rate_is_zero_only_past_the_end():
    for name, end in (("cosine", 0.0), ("linear", 0.0), ("constant", 1.0)):
        assert optim.rate(name, STEPS, STEPS, 5) == pytest.approx(end)
        assert optim.rate(name, STEPS + 99, STEPS, 5) == pytest.approx(end), "and it does not rise again"


# ---- optimizers


def groups(model, *overrides):
    """The optimizer's groups as {weight decay: names of the parameters}."""
    optimizer = optim.optimizer(model, recipe(*overrides))
    names = {id(p): name for name, p in model.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        found.setdefault(group["weight_decay"], set()).update(names[id(p)] for p in group["params"])
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(names), "every parameter once"
    return found


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_norms_biases_positions_and_class_tokens_are_not_decayed(optimizer):
    vit = build_model("vit_nano", image_size=8, patch_size=4, num_classes=3, depth=1, pool="token")
    found = groups(vit, f"optimizer={optimizer}", "weight_decay=0.25")
    assert found[0.25] == {
        "patch_embed.proj.weight",
        "encoder.blocks.0.mixer.qkv.weight",
        "encoder.blocks.0.mixer.proj.weight",
        "encoder.blocks.0.mlp.fc1.weight",
        "encoder.blocks.0.mlp.fc2.weight",
        "head.weight",
    }
    assert found[0.0] == {name for name, _ in vit.named_parameters()} - found[0.25]
    assert {"cls_token", "pos_embed", "encoder.norm.weight", "encoder.blocks.0.norm1.weight", "head.bias"} <= found[0.0]


def test_a_resnets_convolutions_are_decayed_and_its_norms_are_not():
    found = groups(build_model("resnet_nano", image_size=8, num_classes=3), "weight_decay=0.25")
    assert {"stem.0.weight", "stages.1.0.conv1.weight", "stages.1.0.downsample.0.weight", "head.weight"} <= found[0.25]
    assert {"stem.1.weight", "stem.1.bias", "stages.1.0.bn2.weight", "stages.1.0.downsample.1.weight"} <= found[0.0]


def test_timms_models_say_themselves_what_is_not_decayed():
    options = {"depth": 1, "embed_dim": 12, "num_heads": 3, "patch_size": 4}
    found = groups(build_model("timm:vit_tiny_patch16_224", image_size=8, options=options), "weight_decay=0.25")
    assert {"pos_embed", "cls_token", "norm.weight", "head.bias"} <= found[0.0]
    assert {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.weight"} <= found[0.25]


def test_without_decay_nothing_is_decayed():
    model = build_model("resnet_nano", image_size=8, num_classes=3)
    assert groups(model, "weight_decay=0") == {0.0: {name for name, _ in model.named_parameters()}}


def test_the_optimizer_is_the_recipes():
    model = nn.Linear(3, 2)
    adamw = optim.optimizer(model, recipe("optimizer=adamw", "betas=[0.8,0.7]", f"lr={LR}"))
    assert isinstance(adamw, torch.optim.AdamW)
    assert {(g["betas"], g["lr"]) for g in adamw.param_groups} == {((0.8, 0.7), LR)}
    sgd = optim.optimizer(model, recipe("optimizer=sgd", "momentum=0.6", "nesterov=true", f"lr={LR}"))
    assert isinstance(sgd, torch.optim.SGD)
    assert {(g["momentum"], g["nesterov"], g["lr"]) for g in sgd.param_groups} == {(0.6, True, LR)}


# ---- budgets


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
    found = optim.steps_of(budget(unit, value), train_size=101, batch_size=13, flops_per_example=1009)
    assert found == steps
    assert isinstance(found, int)


def test_a_budget_of_operations_below_one_step_is_the_users_mistake():
    with pytest.raises(UserError, match=r"budget\.flops=13116: one step of 13 examples takes 1\.31e\+04"):
        optim.steps_of(budget("flops", 13 * 1009 - 1), train_size=101, batch_size=13, flops_per_example=1009)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("steps", 1000, "steps=1000"),
        ("steps", 1234567, "steps=1234567"),
        ("examples", 10000000, "examples=10000000"),
        ("epochs", 90, "epochs=90"),
        ("epochs", 0.5, "epochs=0.5"),
        ("flops", 1e15, "flops=1e+15"),
    ],
)
def test_a_budget_in_words_is_the_unit_that_was_given(unit, value, text):
    assert optim.budget_text(budget(unit, value)) == text
