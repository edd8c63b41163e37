"""recipe.freeze and lora: what does not train does not move, is in no optimizer, and has no dropout or statistics.

On kept features the head trains as on those of the body, and each picture is computed once.
"""

import copy
import re
from contextlib import nullcontext, suppress

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from tests.configurations import problem, recipe
from tests.runs import train_run
from vitlab import models
from vitlab.config import DescribeConfig, TrainConfig, UserError, compose, load
from vitlab.data.cache import read_kept
from vitlab.data.opening import open_data
from vitlab.models import counting
from vitlab.models.base import before_head, evaluating
from vitlab.models.export import export_weights
from vitlab.models.layers import merge_low_rank
from vitlab.training import run as running
from vitlab.training.finished import load_run
from vitlab.training.optim import build_optimizer, freeze

IMAGES = {"image_size": (16, 24), "channels": 3, "num_classes": 5}
TEXT = {"length": 7, "vocabulary": 23, "num_classes": 5, "head": "classes"}
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


IDLE = {"beit": "qkv", "eva": "qkv", "swin_transformer_v2": "qkv"}  # modules of timm that read the weights themselves
SMALL_ONES = ("test_", "nano", "tiny", "_ti", "xxs", "xs", "small", "_s", "050", "18", "10", "b0", "26")


@pytest.mark.slow
@pytest.mark.parametrize("module", timm.list_modules())
def test_products_that_a_family_of_timm_does_not_use_are_refused(module):
    order = lambda name: (next((n for n, part in enumerate(SMALL_ONES) if part in name), 99), name)  # noqa: E731
    name = min(timm.list_models(module=module), key=order)
    size = timm.models.get_pretrained_cfg(name).input_size[-2:]
    model = counting.meta(load("model", f"timm:{name}"), image_size=size, channels=3, num_classes=2).eval()
    with suppress(UserError):  # of convolutions alone
        freeze(model, recipe("lora.rank=2", "optimizer=adamw"))
        model(torch.zeros(1, 3, *size, device="meta")).sum().backward()
        with pytest.raises(UserError, match=f"no effect on {IDLE[module]} of") if module in IDLE else nullcontext():
            running.refuse_idle_products(model)


def test_products_without_effect_are_refused_before_training_with_the_layers_that_work():
    words = [
        "model=timm:beit_base_patch16_224",
        "data=digits",
        "recipe=lora",
        "data.image_size=16",
        "trainer.threads=1",
    ]
    words.append("model.options={depth: 1, embed_dim: 24, num_heads: 2}")
    data = open_data(compose(TrainConfig, words).data)
    with pytest.raises(
        UserError, match=re.escape("recipe.lora: has no effect on qkv of Beit; give recipe.lora.on=[fc1,")
    ):
        running.plan_run(compose(TrainConfig, words), data)
    running.plan_run(compose(TrainConfig, [*words, "recipe.lora.on=[fc1,fc2,proj]"]), data)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("recipe.lora.rank=2 recipe.optimizer=muon", "trains whole matrices; give adamw or sgd"),
        ("recipe.lora.rank=2 recipe.freeze=body recipe.optimizer=adamw", "trains the head only; give one of them"),
        ("recipe.freeze=body recipe.optimizer=muon", "which recipe.optimizer=muon cannot; give adamw"),
        ("recipe=linear_probe recipe.repeats=2", "recipe.repeats=2: needs recipe.freeze=body, since"),
    ],
)
def test_what_freezing_does_not_go_with_is_refused(words, says):
    assert says in problem(*words.split())


@pytest.mark.parametrize("name", ["vit_nano", "resnet_nano"])
def test_on_kept_features_a_head_trains_as_on_the_body_and_each_picture_is_computed_once(name, tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    computed, read_by_head = [], running.read_by_head

    def count(model, head, images):
        computed.append(len(images) if images.device.type == "cpu" else 0)
        return read_by_head(model, head, images)

    monkeypatch.setattr(running, "read_by_head", count)
    source = models.build_model(name, num_classes=10, image_size=8, channels=1)
    save_file(export_weights(source), tmp_path / "source.safetensors")
    words = [f"model={name}", "data=digits", f"init={tmp_path / 'source.safetensors'}", "init.head=new", "analyses=[]"]
    words += ["recipe=linear_probe", "budget.steps=12", "recipe.ema=0.5", "trainer.evaluations=2", "wandb.mode=off"]
    words += ["trainer.precision=32-true"]  # in bf16 the two ways round differently

    def run(folder, *more):
        return train_run(compose(TrainConfig, [*words, *more]), tmp_path / folder)

    fast = run("fast", "data.augment.shift=2", "train_size=60")
    before, pictures = sum(computed), 60 + len(open_data(compose(TrainConfig, words).data).validation)
    slow = run("slow", "data.augment.shift=0", "data.augment.flip=false", "train_size=60", "recipe.freeze=body")
    assert sum(computed) == before
    for key in ("loss", "accuracy", "validation_loss", "train_loss", "train_sample_loss"):
        assert fast[key] == pytest.approx(slow[key], rel=1e-4), key
    mine, other = (load_run(tmp_path / folder).model.state_dict() for folder in ("fast", "slow"))
    for key, value in mine.items():
        torch.testing.assert_close(value, other[key], rtol=1e-4, atol=1e-5, msg=key)
    assert fast["train_flops"] < slow["train_flops"] / 2
    run("again", "train_size=60", "recipe.lr=0.02")
    assert sum(computed) == before, "of other rates, sizes and seeds too"
    run("larger", "train_size=100")
    (place,) = (tmp_path / "cache").glob("features-*.safetensors")
    assert len(read_kept(place)) == pictures + 40 + fast["test_items"]
    assert sum(computed) - before == 64


@pytest.mark.parametrize(
    "words",
    [
        ["model=deit_ti16_distilled", "data=digits", "data.image_size=32"],  # two heads read two tokens
        ["task=text_classification", "model=gpt_nano", "data=docstrings"],
    ],
)
def test_models_that_do_not_end_with_one_head_on_pictures_have_no_kept_features(words):
    config = compose(TrainConfig, [*words, "recipe=linear_probe"])
    with pytest.raises(UserError, match="is for models of images that end with one head"):
        running.plan_run(config, open_data(config.data))
