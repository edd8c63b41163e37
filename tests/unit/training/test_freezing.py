"""recipe.freeze: what does not train does not move, is in no optimizer, and has neither dropout nor new statistics."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitlab import models
from vitlab.config import DescribeConfig, TrainConfig, UserError, compose
from vitlab.models.base import before_head, evaluating
from vitlab.training.optim import build_optimizer, freeze_body

IMAGES = {"image_size": (16, 24), "channels": 3, "num_classes": 5}
TEXT = {"length": 7, "vocabulary": 23, "num_classes": 5, "head": "sequence"}
SMALL = {"width": 24, "depth": 2, "dropout": 0.5}
MODELS = {
    "vit_nano": ({**SMALL, "heads": 3, "patch_size": 4}, {"head.weight", "head.bias"}),
    "resnet_nano": ({"widths": [5, 7, 11]}, {"head.weight", "head.bias"}),
    "timm:resnet18": ({"stem": "small"}, {"fc.weight", "fc.bias"}),
    "bert_nano": ({**SMALL, "heads": 3, "pool": "token"}, {"pooler.weight", "pooler.bias", "head.weight", "head.bias"}),
    "gpt_nano": ({**SMALL, "heads": 3}, {"head.weight", "head.bias"}),
    "lstm_nano": (SMALL, {"head.weight", "head.bias"}),
}


def build(name, **shape):
    config = compose(DescribeConfig, base={"model": {"name": name, **MODELS[name][0]}}).model
    shape = shape or (TEXT if config.modality == "text" else IMAGES)
    return models.build(config, **shape)


def inputs(model):
    return torch.randint(23, (3, 7)) if hasattr(model, "text") else torch.randn(3, 3, 16, 24)


def recipe(*overrides):
    return compose(TrainConfig, [f"recipe.{o}" for o in overrides]).recipe


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_only_the_head_moves(name, kind):
    model, head = build(name), MODELS[name][1]
    freeze_body(model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = build_optimizer(model, recipe(f"optimizer={kind}", "freeze=body", "weight_decay=0.5", "lr=0.1"))
    held = {id(p) for group in found.param_groups for p in group["params"]}
    assert held == {id(p) for key, p in model.named_parameters() if key in head}
    batch, labels = inputs(model), torch.tensor([0, 3, 4])
    for _ in range(2):
        F.cross_entropy(model(batch), labels).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert norm.isfinite()
        found.step()
        found.zero_grad()
    moved = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == head, "norms' statistics stay too"


@pytest.mark.parametrize("name", MODELS)
def test_the_body_has_no_dropout_and_comes_out_of_an_evaluation_as_it_was(name):
    model = build(name)
    freeze_body(model)
    batch = inputs(model)
    of_body = model.text if hasattr(model, "text") else before_head(model)
    torch.testing.assert_close(of_body(batch), of_body(batch), rtol=0, atol=0)
    modes = [module.training for module in model.modules()]
    assert True in modes or not hasattr(model, "text"), "the dropout of a text's head stays"
    with evaluating(model):
        pass
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("recipe.freeze=body recipe.optimizer=muon", "which recipe.optimizer=muon cannot; give adamw"),
        (
            "recipe.freeze=body recipe.optimizer=adamw recipe.layer_decay=0.9",
            "recipe.freeze=body trains the head only; give null",
        ),
    ],
)
def test_what_freezing_does_not_go_with_is_refused(words, says):
    with pytest.raises(UserError) as caught:
        compose(TrainConfig, words.split())
    (line,) = caught.value.problems
    assert says in line
