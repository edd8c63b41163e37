"""`vitlab describe`: layers, operations and memory, against formulas that are written out here."""

import json

import pytest
import torch
from torch import nn

from vitlab.commands.describe import describe, draw_positions, show
from vitlab.config import DescribeConfig, UserError, compose
from vitlab.models import build_model, counting
from vitlab.models.encoder import TransformerEncoder, feed_forward
from vitlab.models.mixers.attention import Attention

SIZE, CHANNELS, CLASSES, DEPTH, WIDTH, HEADS, HIDDEN, TOKENS = (10, 21), 2, 11, 3, 20, 5, 28, 7
VIT = {"patch_size": [5, 7], "depth": DEPTH, "width": WIDTH, "heads": HEADS, "mlp_width": HIDDEN, "pool": "token"}
IMAGES = {"image_size": SIZE, "channels": CHANNELS}


def vit(device="cpu", **changes):
    with torch.device(device):
        return build_model("vit_nano", **IMAGES, num_classes=CLASSES, **{**VIT, **changes})


def transformer(width, depth, hidden, cross=False):
    """Of Vaswani et al.'s sizes: an encoder, or with cross-attention a decoder."""
    with torch.device("meta"):
        return TransformerEncoder(
            width,
            depth,
            mixer=lambda: Attention(width, 8),
            mlp=lambda: feed_forward(width, hidden),
            cross=(lambda: Attention(width, 8)) if cross else None,
            norm_last=False,
        )


def test_the_textbooks_layers_are_counted_as_the_textbooks_do():
    """3.15M per encoder layer, 4.2M per decoder layer at 512 wide (Vaswani et al., 2017, base)."""
    [encoder], [decoder] = (counting.stacks(transformer(512, 6, 2048, cross)) for cross in (False, True))
    assert (encoder.name, encoder.layers, encoder.width, encoder.cross) == ("blocks", 6, 512, False)
    assert encoder.params_per_layer == 4 * (512 * 512 + 512) + 2 * 512 * 2048 + 2048 + 512 + 2 * 2 * 512 == 3_152_384
    assert [(w.name, w.shapes, w.params) for w in encoder.weights] == [
        ("norm1", ((512,), (512,)), 1024),
        ("mixer.qkv", ((512, 1536), (1536,)), 787_968),
        ("mixer.proj", ((512, 512), (512,)), 262_656),
        ("norm2", ((512,), (512,)), 1024),
        ("mlp.fc1", ((512, 2048), (2048,)), 1_050_624),
        ("mlp.fc2", ((2048, 512), (512,)), 1_049_088),
    ]
    assert decoder.cross
    assert decoder.params_per_layer == 3_152_384 + 4 * (512 * 512 + 512) + 2 * 512 == 4_204_032
    added = {w.name: w.params for w in decoder.weights if w not in encoder.weights}
    assert added == {"norm_cross": 1024, "cross.qkv": 787_968, "cross.proj": 262_656}


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("vit_h14", {"encoder.blocks": 32}),
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


def test_norms_of_queries_and_keys_count_as_norms():
    plain, normed = (counting.parts(vit("meta", mixer={"name": "attention", "qk_norm": on})) for on in (False, True))
    assert normed == {**plain, "norms": plain["norms"] + DEPTH * 2 * 2 * (WIDTH // HEADS)}


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


def test_people_see_each_weight_of_a_layer_in_80_columns(capsys):
    assert describe(["model=vit_h14", "model.depth=2", "num_classes=21843"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "encoder.blocks: 19.7M per encoder layer at 1280 wide" in shown
    assert any(line.startswith("mlp.fc1 ") and "1280 x 5120 + 5120" in line and "6,558,720" in line for line in shown)
    assert shown[-1].startswith("68,422,483 = 2 x 19,677,440 + ")
    rows = [line for line in shown if line.split()[0:1] and line.split()[0] in ("part", "mlp", "mlp.fc1", "layer")]
    assert len(rows) == 4
    assert all(len(line) <= 80 for line in rows)


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


def test_position_embeddings_are_drawn_before_any_training(tmp_path):
    paths = draw_positions(
        compose(DescribeConfig, ["model=transformer_nano", "model.positions=sincos", "length=9"]), tmp_path
    )
    assert {path.stem for path in paths} == {"position_table", "position_distance", "position_similarity"}
    assert all(path.stat().st_size > 1000 for path in paths)
    with pytest.raises(UserError, match="model=gpt_nano adds no position embeddings"):
        draw_positions(compose(DescribeConfig, ["model=gpt_nano"]), tmp_path / "other")
