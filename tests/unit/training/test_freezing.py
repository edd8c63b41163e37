"""recipe.freeze and lora: what does not train does not move, is in no optimizer, and has no dropout or statistics."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitlab import models
from vitlab.config import DescribeConfig, TrainConfig, UserError, compose
from vitlab.models.base import before_head, evaluating
from vitlab.models.layers import merge_low_rank
from vitlab.training.optim import build_optimizer, freeze

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
    freeze(model, recipe("freeze=body", "optimizer=adamw"))
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
    freeze(model, recipe("freeze=body", "optimizer=adamw"))
    batch = inputs(model)
    of_body = model.text if hasattr(model, "text") else before_head(model)
    torch.testing.assert_close(of_body(batch), of_body(batch), rtol=0, atol=0)
    modes = [module.training for module in model.modules()]
    assert True in modes or not hasattr(model, "text"), "the dropout of a text's head stays"
    with evaluating(model):
        pass
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("name", ["vit_nano", "bert_nano", "gpt_nano", "timm:test_vit"])
def test_low_rank_products_start_at_zero_train_alone_and_merge(name):
    model = (build(name) if name in MODELS else models.build_model(name, num_classes=5, image_size=(16, 32))).eval()
    batch = inputs(model) if name in MODELS else torch.randn(3, 3, 16, 32)
    plain, before = copy.deepcopy(model), model(batch)
    freeze(model, recipe("lora.rank=2", "lora.on=[qkv,fc2]", "optimizer=adamw"))
    torch.testing.assert_close(model(batch), before, rtol=0, atol=0)
    start = copy.deepcopy(model.state_dict())
    optimizer = build_optimizer(model, recipe("lora.rank=2", "optimizer=adamw", "lr=0.1"))
    for _ in range(3):
        F.cross_entropy(model(batch), torch.tensor([0, 3, 4])).backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = {key for key, value in model.state_dict().items() if not torch.equal(value, start[key])}
    layers = {key.partition(".lora.")[0].rpartition(".")[2] for key in moved if ".lora." in key}
    assert layers == {"qkv", "fc2"}
    assert not {key for key in moved if "blocks." in key and ".lora." not in key}
    plain.load_state_dict(merge_low_rank(model.state_dict()))
    torch.testing.assert_close(plain(batch), model(batch), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(plain(batch), before, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "option", "says"),
    [
        ("vit_nano", "on=[q]", "recipe.lora.on=[q]: choices for this model: fc1, fc2, proj, qkv"),
        ("lstm_nano", "on=[]", "recipe.lora.rank=2: Classifier has no linear layers in blocks; give null"),
    ],
)
def test_layers_that_a_model_does_not_have_are_refused(name, option, says):
    with pytest.raises(UserError, match=re.escape(says)):
        freeze(build(name), recipe("lora.rank=2", f"lora.{option}", "optimizer=adamw"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("recipe.lora.rank=2 recipe.optimizer=muon", "trains whole matrices; give adamw or sgd"),
        ("recipe.lora.rank=2 recipe.freeze=body recipe.optimizer=adamw", "trains the head only; give one of them"),
        ("recipe.lora.on=[qkv]", "recipe.lora.on=[qkv]: has no effect without recipe.lora.rank; give for example 8"),
        ("recipe.freeze=body recipe.optimizer=muon", "which recipe.optimizer=muon cannot; give adamw"),
    ],
)
def test_what_freezing_does_not_go_with_is_refused(words, says):
    with pytest.raises(UserError) as caught:
        compose(TrainConfig, words.split())
    (line,) = caught.value.problems
    assert says in line
