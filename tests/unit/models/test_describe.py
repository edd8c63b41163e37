"""`vitlab describe`: layers, operations and memory, against formulas that are written out here."""

import json

import pytest
import torch
from torch import nn

from vitlab.commands.describe import describe, show
from vitlab.models import build_model, counting

SIZE, CHANNELS, CLASSES, DEPTH, WIDTH, HEADS, HIDDEN, TOKENS = (10, 21), 2, 11, 3, 20, 5, 28, 7
VIT = {"patch_size": [5, 7], "depth": DEPTH, "width": WIDTH, "heads": HEADS, "mlp_width": HIDDEN, "pool": "token"}
IMAGES = {"image_size": SIZE, "channels": CHANNELS}


def vit(device="cpu", **changes):
    with torch.device(device):
        return build_model("vit_nano", **IMAGES, num_classes=CLASSES, **{**VIT, **changes})


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("vit_h14", {"encoder.blocks": 32}),
        ("transformer_base", {"text.encoder.blocks": 6, "decoder.encoder.blocks": 6}),
        ("timm:vit_tiny_patch16_224", {"blocks": 12}),
        ("timm:swin_tiny_patch4_window7_224", {f"layers.{i}.blocks": n for i, n in enumerate((2, 2, 6, 2))}),
        ("timm:albert_like", {}),
        ("resnet18", {}),
    ],
)
def test_layers_and_what_is_outside_them_make_up_the_whole(name, layers):
    if name == "timm:albert_like":  # one layer that is used three times is no stack of three
        model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(3, 5)] * 3), "head": nn.Linear(5, 7)})
    else:
        with torch.device("meta"):
            model = build_model(name)
    found = counting.stacks(model)
    assert {stack.name: stack.layers for stack in found} == layers
    inside = sum(stack.layers * stack.params_per_layer for stack in found)
    assert inside + sum(counting.outside(model, found).values()) == counting.parameters(model)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_operations_by_part_are_their_formulas(pool):
    model = vit("meta", pool=pool)
    tokens = TOKENS if pool == "token" else TOKENS - 1
    assert counting.flops(model, IMAGES)[0] == {
        "embedding": 2 * 6 * 5 * 7 * CHANNELS * WIDTH,
        "attention": DEPTH * (2 * tokens * 4 * WIDTH * WIDTH + 2 * 2 * tokens * tokens * WIDTH),
        "mlp": DEPTH * 2 * tokens * 2 * WIDTH * HIDDEN,
        "head": 2 * WIDTH * CLASSES,
    }


def described(*words, capsys):
    assert describe([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_layers_operations_and_memory(capsys):
    found = described("model=vit_b16", capsys=capsys)
    [stack] = found["stacks"]
    assert (stack["layers"], stack["width"], stack["params_per_layer"]) == (12, 768, 7_087_872)
    assert stack["weights"][1] == {"name": "mixer.qkv", "shapes": [[768, 2304], [2304]], "params": 1_771_776}
    assert found["params_outside_stacks"] == {
        "embedding": 591_360,
        "positions": 151_296,
        "norms": 1536,
        "head": 769_000,
    }
    assert sum(found["forward_flops_by_part"].values()) == found["forward_flops"]
    assert found["weight_bytes"] == 4 * 86_567_656
    assert (found["optimizer"], found["train_state_bytes"]) == ("adamw", 16 * 86_567_656)
    sgd = described("model=resnet18", capsys=capsys)
    assert (sgd["optimizer"], sgd["train_state_bytes"], sgd["stacks"]) == ("sgd", 12 * sgd["params"], [])


@pytest.mark.parametrize(
    ("words", "writes"),
    [
        (["model=gpt_nano", "length=12", "model.depth=1"], True),
        (["model=transformer_nano", "data=numbers", "data.count=200"], False),
        (["model=vit_nano", "image_size=24"], False),
    ],
)
def test_a_step_is_measured_where_it_is_asked_for(words, writes, capsys):
    found = described(*words, "--time", capsys=capsys)
    assert 0 < found["train_seconds"] < 10
    assert (found["write_seconds"] is not None) == writes
    show(found)
    shown = capsys.readouterr().out
    assert "Measured in fp32 on " in shown
    assert ("to write a token" in shown) == writes


def test_fused_attention_keeps_no_weights_of_all_pairs(capsys):
    kept = [
        described("model=gpt_nano", f"length={length}", "vocabulary=11", "--time", capsys=capsys)["activation_bytes"]
        for length in (64, 256)
    ]
    assert kept[1] == pytest.approx(4 * kept[0], rel=0.02)
