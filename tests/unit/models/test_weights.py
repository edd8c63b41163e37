"""Loading weights: names, sizes, channels, classes; nothing silent, nothing unpickled, all or nothing."""

import json
import os
import pickle

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from torch import nn

from vitlab import UserError, build_model, export_weights, load_weights
from vitlab.models.timm_adapter import pretrained_cfg
from vitlab.models.weights.load import Weights, first_convolution, fit
from vitlab.training.files import source_problems
from vitlab.training.sources import read_weights

TINY = {"depth": 2, "width": 24, "heads": 3, "mlp_width": 20}


def vit(image_size=(20, 28), patch_size=4, num_classes=7, channels=3, seed=1, **changes):
    torch.manual_seed(seed)
    model = build_model(
        "vit_ti16", image_size=image_size, patch_size=patch_size, num_classes=num_classes, channels=channels,
        **TINY | changes,
    ).eval()  # fmt: skip
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def same(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


# ---- names and heads


@pytest.mark.parametrize("format", ["own", "timm"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"distillation": True}, {"registers": 2, "pool": "mean", "layer_scale": 0.1},
     {"mixer": {"name": "attention", "qk_norm": True}},
     {"mlp": "swiglu", "norm": "rmsnorm"}, {"fc_norm": True, "pool": "mean"}, {"pre_logits": True},
     {"mixer": "token_mlp", "pool": "mean", "positions": "none"}, {"stem": [1], "patch_size": 4}],
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
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.05)
    assert not load_weights(mine, theirs.state_dict()).missing
    images = torch.randn(2, 3, 17, 23)
    torch.testing.assert_close(mine.eval()(images), theirs.eval()(images))
    theirs.load_state_dict(export_weights(mine))


def test_a_head_for_other_classes_begins_at_zero_and_is_reported():
    source, target = vit(num_classes=7), vit(num_classes=5, seed=2)
    report = load_weights(target, source.state_dict())
    assert report.new == ["head.weight", "head.bias"]
    assert not target.head.weight.any()
    assert not target.head.bias.any()
    assert "new: head.weight, head.bias" in str(report)
    images = torch.randn(2, 3, 20, 28)
    torch.testing.assert_close(target.features(images), source.features(images))


@pytest.mark.parametrize(
    ("head", "classes", "kept"),
    [("auto", "abcdefg", True), ("auto", "gfedcba", False), ("auto", None, True), ("new", "abcdefg", False),
     ("keep", "gfedcba", True)],
)  # fmt: skip
def test_auto_keeps_the_head_only_for_the_same_classes(head, classes, kept):
    source, target = vit(), vit(seed=2)
    report = fit(target, Weights(source.state_dict(), "x", (5, 7), tuple("abcdefg")), head, classes)
    assert torch.equal(target.head.weight, source.head.weight) is kept
    assert bool(report.new) is not kept


def test_a_source_without_a_head_leaves_a_new_one():
    state = {name: value for name, value in vit().state_dict().items() if not name.startswith("head")}
    assert load_weights(vit(seed=2), state).new == ["head.weight", "head.bias"]


def test_keep_asks_for_the_same_number_of_classes():
    with pytest.raises(UserError, match=r"init=state dict: head.weight 7x24 does not fit into 5x24; head.bias 7"):
        load_weights(vit(num_classes=5), vit().state_dict(), head="keep")


def test_missing_and_unexpected_names_are_said():
    state = vit().state_dict()
    state["extra"] = state.pop("encoder.norm.weight")
    target = vit(seed=2)
    before = target.encoder.norm.weight.clone()
    report = load_weights(target, state)
    assert (report.missing, report.unexpected) == (["encoder.norm.weight"], ["extra"])
    assert torch.equal(target.encoder.norm.weight, before)
    assert "missing: encoder.norm.weight" in str(report)
    assert "unexpected: extra" in str(report)


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


# ---- sizes


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


def test_the_real_sizes_too_224_into_384_and_patches_of_8():
    torch.manual_seed(0)
    state = {"cls_token": torch.zeros(1, 1, 192), "pos_embed": torch.randn(1, 197, 192)}
    state |= {"patch_embed.proj.weight": torch.randn(192, 3, 16, 16)}
    large = build_model("vit_ti16", image_size=384, depth=1)
    load_weights(large, state)
    torch.testing.assert_close(large.pos_embed, resample_abs_pos_embed(state["pos_embed"], [24, 24]), rtol=0, atol=0)
    fine = build_model("vit_ti16", image_size=224, patch_size=8, depth=1)
    load_weights(fine, state)
    torch.testing.assert_close(fine.pos_embed, resample_abs_pos_embed(state["pos_embed"], [28, 28]), rtol=0, atol=0)
    expected = resample_patch_embed(state["patch_embed.proj.weight"], [8, 8])
    torch.testing.assert_close(fine.patch_embed.proj.weight, expected, rtol=0, atol=0)


def test_a_grid_that_is_not_square_is_resampled_from_its_own_shape():
    source = vit(image_size=(20, 28))  # 5 x 7 patches
    state = source.state_dict()
    target = vit(image_size=(28, 20), seed=2)  # as many
    fit(target, Weights(state, "x", (5, 7)))
    expected = resample_abs_pos_embed(state["pos_embed"], [7, 5], old_size=[5, 7])
    torch.testing.assert_close(target.pos_embed, expected, rtol=0, atol=0)
    again = vit(image_size=(20, 28), seed=3)
    load_weights(again, state)  # as many places: taken for the same grid
    assert torch.equal(again.pos_embed, state["pos_embed"])
    with pytest.raises(UserError, match="pos_embed has 35 places, 1 for prefix tokens and the rest no square"):
        load_weights(vit(image_size=(24, 28)), {**state, "pos_embed": state["pos_embed"][:, :35]})


def test_prefix_tokens_that_come_or_go_keep_the_others_places():
    state = vit(image_size=(16, 16)).state_dict()  # a class token and 4 x 4 patches
    without = vit(image_size=(16, 16), pool="mean", seed=2)
    assert "cls_token" in load_weights(without, state).unexpected
    assert torch.equal(without.pos_embed, state["pos_embed"][:, 1:])
    more = vit(image_size=(16, 16), distillation=True, seed=3)
    own = more.pos_embed[:, 1:2].clone()
    report = load_weights(more, state)
    assert torch.equal(more.pos_embed, torch.cat([state["pos_embed"][:, :1], own, state["pos_embed"][:, 1:]], dim=1))
    assert {"dist_token", "head_dist.weight"} <= {*report.missing, *report.new}


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_the_first_convolution_takes_other_channels(channels):
    source = vit()
    target = vit(channels=channels, seed=2)
    load_weights(target, source.state_dict())
    grey = torch.randn(2, 1, 20, 28)
    expected = source.patch_embed(grey.expand(2, 3, 20, 28))
    if channels == 2:  # the first two kernels, scaled by 3/2
        expected = nn.functional.conv2d(
            grey.expand(2, 2, 20, 28), source.patch_embed.proj.weight[:, :2] * 1.5, stride=4
        )
        expected = (expected + source.patch_embed.proj.bias[:, None, None]).flatten(2).transpose(1, 2)
    if channels != 5:  # each of 3 kernels repeated by timm's rule, an uneven number of times
        torch.testing.assert_close(target.patch_embed(grey.expand(2, channels, 20, 28)), expected)


# ---- sources


def test_files_in_every_format_and_wrapping(tmp_path):
    source = vit(image_size=(16, 16))
    state = export_weights(source)
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth")
    torch.save({"model": {f"module.{name}": value for name, value in state.items()}, "epoch": 3}, tmp_path / "c.pt")
    torch.save({"state_dict": {f"model.{k}": v for k, v in source.state_dict().items()}}, tmp_path / "d.ckpt")
    torch.save({"model": {}, "model_ema": state}, tmp_path / "e.bin")
    for path in tmp_path.iterdir():
        target = vit(image_size=(16, 16), seed=2)
        load_weights(target, path)
        assert same(source, target), path.name


def test_nothing_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (print, ("unpickled",))

    path = tmp_path / "bomb.pt"
    torch.save({"state_dict": Bomb()}, path)
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Bomb()))
    for bad in (path, tmp_path / "raw.pt"):
        with pytest.raises(UserError, match=r"init=.*pt: not a file of weights that can be read without unpickling"):
            read_weights(str(bad))


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "x.safetensors: cannot read the file"), (b"\x10" * 40, "x.safetensors: cannot read the file")],
)
def test_a_damaged_file_is_one_line(tmp_path, content, says):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        read_weights(str(tmp_path / "x.safetensors"))
    assert len(caught.value.problems) == 1


def test_a_source_that_is_not_there_is_said_before_anything_else(tmp_path):
    assert list(source_problems(None)) == list(source_problems("timm:x")) == []
    assert "no such file or folder; give timm:NAME" in next(source_problems(f"{tmp_path}/nothing"))
    assert "not a run, it holds no checkpoints/last.ckpt" in next(source_problems(str(tmp_path)))
    torch.save({"a": 1}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"a.pt: holds no weights"):
        read_weights(str(tmp_path / "a.pt"))
    with pytest.raises(UserError, match="timm has no such model; did you mean 'vit_base_patch16_224'"):
        read_weights("timm:vit_base_patch16_244")


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """A hub cache in its true format, as huggingface_hub leaves it, with random weights."""

    def put(name, model):
        cfg = pretrained_cfg(name)
        revision = "0" * 40
        folder = tmp_path / f"models--{cfg.hf_hub_id.rstrip('/').replace('/', '--')}"
        if cfg.hf_hub_id.endswith("/"):
            folder = tmp_path / f"models--timm--{name}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(revision)
        snapshot = folder / "snapshots" / revision
        snapshot.mkdir(parents=True)
        save_file(model.state_dict(), snapshot / "model.safetensors")
        (snapshot / "config.json").write_text(json.dumps({"architecture": name.partition(".")[0]}))

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return put


def test_timms_weights_come_from_the_hub_cache(hub_cache):
    name = "test_vit2.r160_in1k"  # timm's own small model: register token, LayerScale, mean pooling before the norm
    theirs = timm.create_model(name).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    hub_cache(name, theirs)
    mine = build_model(
        "vit_ti16", image_size=160, depth=8, width=64, heads=2, mlp_width=192, pool="mean", registers=1,
        layer_scale=1e-5, fc_norm=True,
    ).eval()  # fmt: skip
    report = load_weights(mine, f"timm:{name}", mean=[0.5], std=[0.5])
    assert not [*report.missing, *report.unexpected, *report.new, *report.resized], report
    cfg = pretrained_cfg(name)
    means = ",".join(format(value, "g") for value in cfg.mean)
    assert (f"trained with data.mean=[{means}]" in str(report)) == (tuple(cfg.mean) != (0.5, 0.5, 0.5))
    assert not load_weights(mine, f"timm:{name}", mean=list(cfg.mean), std=list(cfg.std)).advice
    images = torch.randn(2, 3, 160, 160)
    torch.testing.assert_close(mine(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_a_resnet_of_timm_takes_its_weights_for_other_channels_and_classes(hub_cache):
    name = "test_resnet.r160_in1k"
    theirs = timm.create_model(name).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    hub_cache(name, theirs)
    mine = build_model("timm:test_resnet", num_classes=7, image_size=40, channels=1).eval()
    report = load_weights(mine, f"timm:{name}")
    assert (report.new, report.missing, report.unexpected) == (["fc.weight", "fc.bias"], [], [])
    assert report.resized == [f"{first_convolution(mine)[0]} (16x3x3x3 -> 16x1x3x3)"]
    grey = torch.randn(2, 1, 40, 40)
    mine.fc, theirs.fc = nn.Identity(), nn.Identity()
    torch.testing.assert_close(mine(grey), theirs(grey.expand(2, 3, 40, 40)), rtol=1e-4, atol=1e-4)


def test_weights_that_cannot_be_had_are_one_line(hub_cache):
    with pytest.raises(
        UserError, match=r"init=timm:test_vit.r160_in1k: cannot get its weights .*or give a file"
    ) as caught:
        read_weights("timm:test_vit.r160_in1k")
    assert len(caught.value.problems) == 1


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
    report = load_weights(vit(positions="sincos2d", pool="mean", seed=2), export_weights(source))
    assert not report.unexpected
    assert load_weights(vit(positions="sincos1d", pool="mean"), export_weights(source)).unexpected == ["pos_embed"]


def test_a_head_that_read_a_hidden_layer_is_not_kept_without_it():
    assert load_weights(vit(), vit(pre_logits=True, seed=2).state_dict()).new == ["head.weight", "head.bias"]


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ({"head.weight": 3}, {}, "a state dict has tensors by name, and nothing else"),
        ({3: torch.zeros(2)}, {}, "a state dict has tensors by name, and nothing else"),
        ({}, {"head": "foo"}, "head=foo: unknown; choices: auto, keep, new"),
        (None, {}, "source: NoneType: give timm:NAME"),
        (nn.Identity(), {}, "source: Identity: give timm:NAME"),
    ],
)
def test_a_source_of_another_kind_is_the_users_mistake(source, options, says):
    with pytest.raises(UserError, match=says):
        load_weights(vit(), source, **options)


def test_a_grouped_first_convolution_loads_as_it_is():
    model = nn.Sequential(nn.Conv2d(6, 6, 2, groups=3))
    assert load_weights(model, model.state_dict()).resized == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda value: value.to_sparse(), "head.weight is no plain tensor of numbers"),
        (lambda value: value.to("meta"), "head.weight is no plain tensor of numbers"),
        (lambda value: value.long(), "head.weight is of torch.int64, the model's of torch.float32"),
        (lambda value: value * float("nan"), "head.weight has values that are not finite"),
        (lambda value: value[:0], "head.weight is empty"),
    ],
)
def test_a_tensor_that_is_no_parameter_is_refused_and_changes_nothing(change, says):
    target, state = vit(), vit(seed=2).state_dict()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(UserError, match=says):
        load_weights(target, state | {"head.weight": change(state["head.weight"])}, head="keep")
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def test_half_precision_is_taken_in_the_models_own():
    source, target = vit(), vit(seed=2)
    assert load_weights(target, {name: value.half() for name, value in source.state_dict().items()}).resized == []
    torch.testing.assert_close(target.head.weight, source.head.weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [torch.zeros(()), torch.zeros(3), torch.zeros(1, 0, 24)])
def test_positions_of_another_shape_are_refused(value):
    with pytest.raises(UserError, match="pos_embed"):
        load_weights(vit(prefix_positions=False), vit(seed=2).state_dict() | {"pos_embed": value})


def test_a_checkpoint_that_holds_itself_is_no_endless_loop(tmp_path):
    found = {}
    found["model"] = found
    torch.save(found, tmp_path / "cycle.pt")
    with pytest.raises(UserError, match=r"cycle\.pt: holds no weights"):
        read_weights(str(tmp_path / "cycle.pt"))


def test_a_pipe_is_no_source(tmp_path):
    os.mkfifo(tmp_path / "pipe.pt")
    assert "is no file; give timm:NAME" in next(source_problems(str(tmp_path / "pipe.pt")))
