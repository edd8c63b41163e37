"""Optimizers: which parameters are decayed, the rate of each layer, what Muon takes, what survives a checkpoint."""

import copy
import re
from functools import partial

import pytest
import torch
from timm.optim import muon as timm_muon
from torch import nn

from tests.configurations import recipe
from vitlab.config import DescribeConfig, UserError, compose, load, names
from vitlab.models import build as build_text
from vitlab.models import build_model
from vitlab.models.resnet import ResNet
from vitlab.training.optim import build_optimizer as build
from vitlab.training.optim import find_hidden_matrices

LR = 0.37


def tiny_vit(**options):
    return build_model("vit_nano", **{"image_size": 8, "patch_size": 4, "num_classes": 3, "pool": "token", **options})


def names_in(model, groups):
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for group in groups for p in group["params"]}


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_norms_biases_positions_and_class_tokens_are_not_decayed(optimizer):
    vit = build_model("vit_nano", image_size=8, patch_size=4, num_classes=3, depth=1, pool="token")
    groups = build(vit, recipe(f"optimizer={optimizer}", "weight_decay=0.25")).param_groups
    assert sum(len(group["params"]) for group in groups) == len([*vit.parameters()]), "every parameter once"
    decayed, kept = (names_in(vit, [g for g in groups if g["weight_decay"] == decay]) for decay in (0.25, 0.0))
    matrices = {f"encoder.blocks.0.{part}.weight" for part in ("mixer.qkv", "mixer.proj", "mlp.fc1", "mlp.fc2")}
    assert decayed == matrices | {"patch_embed.proj.weight", "head.weight"}
    assert kept == {name for name, _ in vit.named_parameters()} - decayed
    assert {"cls_token", "pos_embed", "encoder.norm.weight", "encoder.blocks.0.norm1.weight", "head.bias"} <= kept


# ---- layer-wise decay


def rates_of(model, optimizer):
    """The rate of every parameter."""
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rates.keys() == {*names.values()}
    return rates


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_each_layer_has_its_share_of_the_rate_of_the_next(optimizer):
    vit, depth, share = tiny_vit(depth=3), 3, 0.5
    options = recipe(f"optimizer={optimizer}", f"lr={LR}", f"layer_decay={share}", "weight_decay=0.25")
    found = build(vit, options)
    for name, rate in rates_of(vit, found).items():
        if name.startswith(("patch_embed", "cls_token", "pos_embed")):
            layer = 0
        elif name.startswith("encoder.blocks."):
            layer = 1 + int(name.split(".")[2])
        else:
            layer = depth if name.startswith("encoder.norm") else depth + 1
        assert rate == pytest.approx(LR * share ** (depth + 1 - layer)), name
    matrices = {name for name, p in vit.named_parameters() if p.ndim > 1} - {"cls_token", "pos_embed"}
    assert names_in(vit, [g for g in found.param_groups if g["weight_decay"]]) == matrices


TEXT = {"length": 7, "vocabulary": 23, "num_classes": 3}
BODIES = {
    "gpt_nano": {"depth": 3, "positions": "learned"},
    "bert_nano": {"depth": 3},
    "bert_base": {"depth": 3},  # post-norm, with a norm of the embeddings
    "lstm_nano": {"depth": 3},
    "lstm_nano both ways": {"depth": 3, "causal": False},
}


@pytest.mark.parametrize("head", ["classes", "tags", "next_token", "masked"])
@pytest.mark.parametrize("body", BODIES)
def test_each_layer_of_a_text_model_has_its_share_of_the_rate_of_the_next(body, head):
    sizes = {"width": 24, **({} if "lstm" in body else {"heads": 3}), **BODIES[body]}
    config = compose(DescribeConfig, base={"model": {"name": body.split()[0], **sizes}}).model
    if head in ("next_token", "masked") and config.causal != (head == "next_token"):
        pytest.skip("not for this body")
    model = build_text(config, **{**TEXT, "head": head})
    found = build(model, recipe("optimizer=adamw", f"lr={LR}", "layer_decay=0.5", "weight_decay=0.25"))
    for name, rate in rates_of(model, found).items():
        if name.startswith("text.embed"):
            layer = 0
        elif place := re.match(r"text\.encoder\.blocks\.(\d)|text\.lstm\.\w+?_l(\d)", name):
            layer = 1 + int(place[1] or place[2])
        else:
            layer = 3 if name.startswith("text.") else 4
        layers = 4 if len(model.state_dict()) > len(model.text.state_dict()) else 3  # a tied head is no layer
        assert rate == pytest.approx(LR * 0.5 ** (layers - layer)), name
    kept = names_in(model, [g for g in found.param_groups if not g["weight_decay"]])
    assert kept == {n for n, p in model.named_parameters() if p.ndim == 1 or n == "text.embed.positions"}


# ---- Muon


@pytest.mark.parametrize("name", names("model"))
def test_muon_takes_the_matrices_of_all_blocks_of_every_model(name):
    config = load("model", name)
    text = {"length": 11, "vocabulary": 29} if config.modality == "text" or config.kind == "captioner" else {}
    pictures = {} if config.modality == "text" else {"image_size": (672, 672), "channels": 3}
    with torch.device("meta"):
        model = build_model(name, **text, **pictures)
    block = re.compile(r"(?:(?:text|decoder|image)\.)?(?:encoder\.blocks\.|stages\.|layer)\d+\..*weight")
    matrices = {name for name, p in model.named_parameters() if p.ndim > 1 and block.fullmatch(name)}
    assert find_hidden_matrices(model) == matrices
    assert bool(matrices) != (config.family in ("lstm", "gru", "rnn", "histogram"))  # torch's own layers, or none


def test_muon_takes_the_stages_before_the_patches_too():
    stem = {"stem": [1, 2], "stem_widths": [6, 10], "patch_size": 4}
    model = build_model("vit_nano", image_size=(16, 24), num_classes=3, **stem)
    assert model.patch_embed(torch.zeros(2, 3, 16, 24)).shape == (2, 24, 64)
    convolutions = {name for name in find_hidden_matrices(model) if name.startswith("patch_embed")}
    stages = "patch_embed.backbone.1.{}.weight"  # a layer of two convolutions, then two; halved once
    blocks = [f"{block}.conv{n}" for block in ("0.0", "1.0", "1.1") for n in (1, 2)]
    assert convolutions == {stages.format(name) for name in [*blocks, "1.0.downsample.0"]}
    with pytest.raises(UserError, match=r"model.stem=\[1\] and model.stem_widths=\[6, 10\]"):
        build_model("vit_nano", stem=[1], stem_widths=[6, 10])


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_three_steps_are_those_of_timm_s_muon(model, nesterov, monkeypatch):
    exact = partial(timm_muon.zeropower_via_newtonschulz, dtype=torch.float32)  # it multiplies in bf16
    monkeypatch.setattr(timm_muon, "zeropower_via_newtonschulz", exact)
    torch.manual_seed(0)
    ours = tiny_vit() if model == "vit" else ResNet(channels=3, num_classes=3, layers=[1, 2], widths=[4, 8])
    theirs = copy.deepcopy(ours)
    chosen = recipe("optimizer=muon", f"nesterov={nesterov}", "momentum=0.8", "lr=0.01", "weight_decay=0.3", "eps=1e-5")
    own = build(ours, chosen, fused=True)
    keys = ("params", "lr", "weight_decay", "use_fallback")
    groups = [{key: group[key] for key in keys} for group in own.param_groups]
    parameters = dict(zip(ours.parameters(), theirs.parameters(), strict=True))
    for group in groups:
        group["params"] = [parameters[parameter] for parameter in group["params"]]
        group |= {"nesterov": False, "eps": 1e-5} if group["use_fallback"] else {"use_muon": True}
    options = {"momentum": 0.8, "nesterov": nesterov, "betas": tuple(chosen.betas), "ns_coefficients": "original"}
    other = timm_muon.Muon(groups, **options)
    images = torch.randn(7, 3, 8, 8)
    before = copy.deepcopy(ours.state_dict())
    for net, optimizer in ((ours, own), (theirs, other)) * 3:
        nn.functional.cross_entropy(net(images), torch.arange(7) % 3).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, parameter in ours.named_parameters():
        moved = parameter - before[name]
        assert moved.abs().max() > 1e-3, name
        torch.testing.assert_close(moved, theirs.get_parameter(name) - before[name], atol=1e-4, rtol=1e-2, msg=name)
