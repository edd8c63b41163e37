"""Loading weights: names, sizes, channels, classes; nothing silent, nothing unpickled, all or nothing."""

import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed
from torch import nn

from tests.configurations import refused
from tests.learning import randomized
from vitlab.config.errors import UserError
from vitlab.config.schema.models import timm_model as describe_timm
from vitlab.models import build_model
from vitlab.models.export import export_weights
from vitlab.models.weights import Weights, describe_weights, load_into
from vitlab.training.load import load_weights

TINY = {"depth": 2, "width": 24, "heads": 3, "mlp_width": 20}


def vit(image_size=(20, 28), patch_size=4, num_classes=7, channels=3, seed=1, **changes):
    torch.manual_seed(seed)
    model = build_model(
        "vit_ti16", image_size=image_size, patch_size=patch_size, num_classes=num_classes, channels=channels,
        **TINY | changes,
    )  # fmt: skip
    return randomized(model, 0.3)


def timm_model(name):
    """A model of timm with the sizes of `vit` and random weights."""
    theirs = timm.create_model(
        name, img_size=(20, 28), patch_size=4, num_classes=7, embed_dim=24, depth=2, num_heads=3, mlp_ratio=20 / 24
    )
    return randomized(theirs, 0.3)


def same(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("format", ["own", "timm"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"mlp": "swiglu", "norm": "rmsnorm"}, {"pre_logits": True}, {"stem": [1], "patch_size": 4},
     {"stem": [1, 2], "stem_widths": [5, 8], "patch_size": 4}],
    ids=str,
)  # fmt: skip
def test_a_state_dict_in_own_or_timms_names_loads_whole(format, changes):
    source, target = vit(**changes), vit(seed=2, **changes)
    report = load_weights(target, export_weights(source, format))
    assert same(source, target)
    assert len(report.loaded) == len(source.state_dict())
    assert str(report) == f"state dict: {len(report.loaded)} of {len(report.loaded)} loaded"


def test_the_small_resnet_is_timms_with_a_small_stem():
    from timm.models.resnet import BasicBlock, ResNet

    mine = build_model("resnet_nano", image_size=17, num_classes=5, layers=[1, 2, 1, 1], widths=[64, 128, 256, 512])
    theirs = ResNet(BasicBlock, [1, 2, 1, 1], num_classes=5)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    randomized(theirs, 0.05)
    assert not load_weights(mine, theirs.state_dict()).missing
    images = torch.randn(2, 3, 17, 23)
    torch.testing.assert_close(mine.eval()(images), theirs.eval()(images))
    theirs.load_state_dict(export_weights(mine))


@pytest.mark.parametrize(
    ("head", "classes", "kept"),
    [("auto", "abcdefg", True), ("auto", "gfedcba", False), ("auto", None, True), ("new", "abcdefg", False),
     ("keep", "gfedcba", True)],
)  # fmt: skip
def test_auto_keeps_the_head_only_for_the_same_classes(head, classes, kept):
    source, target = vit(), vit(seed=2)
    report = load_into(target, Weights(source.state_dict(), "x", (5, 7), tuple("abcdefg")), head, classes)
    assert torch.equal(target.head.weight, source.head.weight) is kept
    assert bool(report.new) is not kept


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit_base_patch16_clip_224", {"norm_pre": True, "norm_eps": 1e-5}),
        ("vit_base_patch16_clip_quickgelu_224", {"norm_pre": True, "norm_eps": 1e-5, "mlp": "quick_gelu"}),
        ("vit_base_patch16_siglip_gap_224", {"pool": "mean"}),
    ],
)
def test_clip_and_siglip_weights_give_timms_logits(name, changes):
    theirs = timm_model(name)
    mine = vit(**changes)
    report = load_into(mine, describe_weights(theirs, theirs.state_dict(), name))
    assert not [*report.new, *report.missing, *report.unused, *report.resized], report
    images = torch.randn(2, 3, 20, 28)
    torch.testing.assert_close(mine(images), theirs(images), rtol=1e-5, atol=1e-5)
    theirs.load_state_dict(export_weights(mine))


@pytest.mark.parametrize(
    ("name", "changes", "lacks", "advice"),
    [
        ("clip_224", {}, "the model has no norm_pre.weight", "; give model.norm_pre=true"),
        ("siglip_224", {"pool": "mean"}, "the model has no attn_pool.latent", "; give model=timm:NAME"),
        ("clip_quickgelu_224", {"norm_pre": True}, "mlp=quick_gelu norm_eps=1e-05, this one mlp=gelu norm_eps=1e-06",
         "; give model.mlp=quick_gelu model.norm_eps=1e-05"),
        ("224", {"depth": 3}, "the weights have no encoder.blocks.2.norm1.weight", "; give model.depth=2"),
        ("224", {"layer_scale": 0.1}, "the weights have no encoder.blocks.0.ls1.gamma, ", ""),
        ("deit3", {"prefix_positions": False}, "the model has no ", "; give model.layer_scale=1e-5"),
    ],
)  # fmt: skip
def test_weights_of_another_model_are_an_error_and_change_nothing(name, changes, lacks, advice):
    name = "deit3_base_patch16_224" if name == "deit3" else f"vit_base_patch16_{name}"
    theirs, target = timm_model(name), vit(**changes)
    before = {key: value.clone() for key, value in target.state_dict().items()}
    (line,) = refused(load_into, target, describe_weights(theirs, theirs.state_dict(), name))
    assert lacks in line
    assert advice in line
    assert all(torch.equal(value, before[key]) for key, value in target.state_dict().items())


def test_what_does_not_fit_is_refused_and_changes_nothing():
    target = vit(width=36, seed=2)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(
        UserError, match=r"init=state dict: cls_token 1x1x24 does not fit into 1x1x36; .* \(and \d+ more\)"
    ):
        load_weights(target, vit().state_dict())
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())
    with pytest.raises(
        UserError, match=r"none of its parameters is one of the model's: it has a .*, the model cls_token"
    ):
        load_weights(target, {"a": torch.zeros(3)})


def test_weights_of_another_mixer_are_refused():
    source, target = (vit(pool="mean", mixer=mixer) for mixer in ("fourier", "pooling"))
    with pytest.raises(UserError, match=r"give model\.mixer=fourier$"):
        load_into(target, describe_weights(source, source.state_dict(), "x"))


def test_positions_of_another_image_size_are_timms_resampling():
    """A 224 px checkpoint in a 384 px model, at a fifth of the pixels; and in a model with patches of 8."""
    theirs = timm.models.vision_transformer.VisionTransformer(
        img_size=48, patch_size=16, embed_dim=24, depth=2, num_heads=3, mlp_ratio=20 / 24, num_classes=7
    )
    source = {name: value.clone() for name, value in theirs.state_dict().items()}
    for size, patch in ((80, 16), (48, 8)):
        mine = vit(image_size=(size, size), patch_size=patch)
        report = load_weights(mine, source)
        other = timm.models.vision_transformer.VisionTransformer(
            img_size=48, patch_size=16, embed_dim=24, depth=2, num_heads=3, mlp_ratio=20 / 24, num_classes=7
        )
        other.load_state_dict(source)
        other.set_input_size(img_size=(size, size), patch_size=(patch, patch))  # timm's own
        torch.testing.assert_close(mine.pos_embed, other.pos_embed, rtol=0, atol=0)
        torch.testing.assert_close(mine.patch_embed.proj.weight, other.patch_embed.proj.weight, rtol=0, atol=0)
        assert any(line.startswith("pos_embed (1x10x24 -> ") for line in report.resized)
        images = torch.randn(2, 3, size, size)
        torch.testing.assert_close(mine(images), other.eval()(images))


def test_a_grid_that_is_not_square_is_resampled_from_its_own_shape():
    source = vit(image_size=(20, 28))  # 5 x 7 patches
    state = source.state_dict()
    target = vit(image_size=(28, 20), seed=2)  # as many
    load_into(target, Weights(state, "x", (5, 7)))
    expected = resample_abs_pos_embed(state["pos_embed"], [7, 5], old_size=[5, 7])
    torch.testing.assert_close(target.pos_embed, expected, rtol=0, atol=0)
    again = vit(image_size=(20, 28), seed=3)
    load_weights(again, state)  # as many places: taken for the same grid
    assert torch.equal(again.pos_embed, state["pos_embed"])
    with pytest.raises(UserError, match="pos_embed has 35 positions for 1 prefix tokens and a grid that is not square"):
        load_weights(vit(image_size=(24, 28)), {**state, "pos_embed": state["pos_embed"][:, :35]})


def test_prefix_tokens_that_come_or_go_keep_the_others_places():
    state = vit(image_size=(16, 16)).state_dict()  # a class token and 4 x 4 patches
    without = vit(image_size=(16, 16), pool="mean", seed=2)
    assert load_weights(without, state).unused == ["cls_token"]
    assert torch.equal(without.pos_embed, state["pos_embed"][:, 1:])
    more = vit(image_size=(16, 16), distillation=True, seed=3)
    own = more.pos_embed[:, 1:2].clone()
    report = load_weights(more, state)
    assert torch.equal(more.pos_embed, torch.cat([state["pos_embed"][:, :1], own, state["pos_embed"][:, 1:]], dim=1))
    assert {"dist_token", "head_dist.weight"} <= {*report.missing, *report.new}


def test_the_published_dinov2_with_registers_and_timms_folder_are_timms_model(tmp_path):
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 20 / 24, "patch_size": 4, "img_size": 16}
    theirs = timm.create_model("vit_tiny_patch16_224", **sizes, num_classes=7, reg_tokens=4, no_embed_class=True)
    state, place = randomized(theirs, 0.3).state_dict(), torch.randn(1, 1, 24)
    published = {name.replace("reg_token", "register_tokens"): value for name, value in state.items()}
    published["cls_token"] = state["cls_token"] - place
    published["pos_embed"] = torch.cat([place, state["pos_embed"]], 1)
    torch.save(published, tmp_path / "reg4.pth")
    timm.models.save_for_hf(theirs, tmp_path / "hub", safe_serialization=True)
    images = torch.randn(2, 3, 16, 16)
    for name in ("reg4.pth", "hub"):
        mine = vit(image_size=(16, 16), registers=4, prefix_positions=False, seed=3)
        load_weights(mine, tmp_path / name)
        torch.testing.assert_close(mine(images), theirs(images), rtol=1e-4, atol=1e-4)
    same = build_model(tmp_path / "hub", image_size=16, num_classes=7)
    load_weights(same, tmp_path / "hub")
    torch.testing.assert_close(same.eval()(images), theirs(images))
    with pytest.raises(UserError, match=r"hub is a folder; give .*hub alone"):
        describe_timm(f"vit_tiny_patch16_224={tmp_path}/hub")


def test_the_first_convolution_takes_other_channels():
    source, grey = vit(), torch.randn(2, 1, 20, 28)
    one, two = vit(channels=1, seed=2), vit(channels=2, seed=2)
    for target in (one, two):
        load_weights(target, source.state_dict())
    torch.testing.assert_close(one.patch_embed(grey), source.patch_embed(grey.expand(2, 3, 20, 28)))
    torch.testing.assert_close(two.patch_embed.proj.weight, source.patch_embed.proj.weight[:, :2] * 1.5)


@pytest.mark.parametrize("registers", [0, 3])
def test_tokens_without_positions_in_the_source_have_none_here_either(registers):
    """timm's no_embed_class (DINOv2 with registers, DeiT III) into models with places for all tokens, and back."""
    alone = vit(image_size=(16, 16), prefix_positions=False, registers=registers)
    all_places = vit(image_size=(16, 16), registers=registers, seed=2)
    report = load_weights(all_places, alone.state_dict())
    assert [line.partition(" ")[0] for line in report.resized] == ["pos_embed"]
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(all_places(images), alone(images))
    source = vit(image_size=(16, 16), registers=registers, seed=3)
    target = vit(image_size=(16, 16), registers=registers, prefix_positions=False, seed=4)
    report = load_weights(target, source.state_dict())
    assert "cls_token (with its position)" in report.resized
    torch.testing.assert_close(target(images), source(images))
    resized = vit(image_size=(24, 24), registers=registers, prefix_positions=False, seed=5)
    assert load_weights(resized, alone.state_dict()).resized == ["pos_embed (1x16x24 -> 1x36x24)"]
    assert torch.equal(resized.cls_token, alone.cls_token)


@pytest.mark.parametrize("name", ["hiera_tiny_224", "volo_d1_224"])
def test_timms_other_designs_of_positions_load_as_they_are(name):
    source, target = (timm.create_model(name, num_classes=3, img_size=64) for _ in range(2))
    assert len(load_weights(target, source.state_dict()).loaded) == len(source.state_dict())


def test_fixed_positions_go_out_and_come_back():
    source = vit(positions="sincos2d", pool="mean")
    load_weights(vit(positions="sincos2d", pool="mean", seed=2), export_weights(source))
    with pytest.raises(UserError, match="the model has no pos_embed"):
        load_weights(vit(positions="sincos1d", pool="mean"), export_weights(source))
