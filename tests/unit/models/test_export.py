"""Models for other programs: timm's classes, safetensors, ONNX."""

import json
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch

from tests.learning import randomized
from vitlab.config.errors import UserError
from vitlab.models import build_model
from vitlab.models.export import ForOnnx, compare_onnx, export_weights, save_onnx, save_safetensors, save_timm
from vitlab.training.load import load_weights

SIZE, PATCH, CLASSES = (15, 28), (5, 7), 11
SIZES = {"depth": 2, "width": 24, "heads": 3, "mlp_width": 36}
VARIANTS = {
    "class token": {},
    "no positions": {"positions": "none"},
    "no bias": {"mixer": {"name": "attention", "qkv_bias": False}},
    "distillation": {"distillation": True},
    "registers, LayerScale, mean": {"registers": 2, "layer_scale": 0.1, "pool": "mean", "class_token": True},
    "positions of the patches alone, qk_norm": {
        "registers": 3, "prefix_positions": False, "mixer": {"name": "attention", "qk_norm": True},
    },
    "fixed positions": {"pool": "mean", "positions": "sincos2d"},
    "norm after pooling, RMSNorm, ReLU": {"pool": "mean", "fc_norm": True, "norm": "rmsnorm", "mlp": "relu"},
    "mixer": {"mixer": {"name": "token_mlp", "hidden": 12}, "positions": "none", "pool": "mean"},
}  # fmt: skip


def vit(seed=1, **changes):
    torch.manual_seed(seed)
    model = build_model("vit_ti16", image_size=SIZE, patch_size=list(PATCH), num_classes=CLASSES, **SIZES | changes)
    return randomized(model, 0.2, mean=0.05)


@pytest.mark.parametrize("variant", [*VARIANTS, "timm:test_vit", "timm:resnet18", "mixer of timm's sizes"])
def test_timm_builds_what_a_folder_holds(variant, tmp_path):
    sizes = {"num_classes": 7, "image_size": 32, "channels": 1}
    if variant.startswith("timm:"):
        mine = build_model(variant, **sizes).eval()
    elif variant in VARIANTS:
        mine = vit(**VARIANTS[variant])
    else:
        mine = build_model("mixer_s16", **sizes).eval()
    images = torch.randn(2, mine.vitlab_shape["channels"], *mine.vitlab_shape["image_size"])
    folder = tmp_path / "folder"
    if variant == "mixer":  # timm's have no options for their sizes
        with pytest.raises(UserError, match="timm has no model=vit_ti16 as it is here"):
            save_timm(mine, folder)
        assert not folder.exists()
        return
    assert save_timm(mine, folder, ["a"] * mine.vitlab_shape["num_classes"], mean=(0.1,), std=(0.2,)) < 1e-5
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    torch.testing.assert_close(theirs(images), mine(images), rtol=1e-5, atol=1e-5)
    assert (theirs.pretrained_cfg["mean"][0], theirs.pretrained_cfg["crop_pct"]) == (0.1, 1.0)
    assert "license" not in (folder / "config.json").read_text()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mixer": "fourier"}, "format=timm: timm's models have no mixer=fourier; give format=own"),
        ({"norm_first": False}, "no norm_first=false"),
        ({"positions": "rotary"}, "no positions=rotary"),
        ({"head_width": 16}, "no head_width=16"),
        ({"mixer": "token_mlp"}, "no positions or prefix tokens"),
    ],
)
def test_what_timm_has_not_is_refused(changes, says):
    with pytest.raises(UserError, match="timm has no models of text; give format=own"):
        export_weights(build_model("bert_nano", vocabulary=20, length=8))
    model = vit(**changes)
    with pytest.raises(UserError, match=says):
        export_weights(model)
    assert export_weights(model, "own").keys() == model.state_dict().keys()


@pytest.mark.parametrize(
    "build",
    [
        lambda: vit(
            distillation=True,
            registers=2,
            layer_scale=0.1,
            mlp="swiglu",
            norm="rmsnorm",
            positions="rotary",
            head_width=12,
            norm_first=False,
            depth=1,
        ),
        lambda: build_model("resnet_nano", num_classes=CLASSES, image_size=SIZE, layers=[1, 1], widths=[8, 16]).eval(),
    ],
    ids=["vit", "resnet"],
)
def test_onnx_gives_torchs_logits_at_two_batch_sizes(build, tmp_path):
    model = build()
    save_onnx(model, tmp_path / "model.onnx", about={"classes": json.dumps(["a", "b"])})
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for batch in (1, 5):
        images = torch.randn(batch, 3, *SIZE)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        np.testing.assert_allclose(logits, model(images).detach().numpy(), rtol=1e-4, atol=1e-4)
    assert compare_onnx(model, tmp_path / "model.onnx") < 1e-4
    with torch.no_grad():
        next(iter(model.parameters())).mul_(1.5)
    assert compare_onnx(model, tmp_path / "model.onnx") > 1e-2
    assert session.get_modelmeta().custom_metadata_map["classes"] == '["a", "b"]'
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("bert_nano", {"head": "classes", "num_classes": 3, "positions": "learned"}), ("bert_nano", {}), ("gpt_nano", {})],
)
def test_onnx_of_texts_reads_padded_ones_of_any_length(name, options, tmp_path):
    model = build_model(name, vocabulary=50, length=32, width=24, depth=1, heads=2, **options).eval()
    with warnings.catch_warnings(action="error"):
        save_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [(one.name, one.shape) for one in session.get_inputs()][:2] == [
        ("input_ids", ["batch", "sequence"]),
        ("attention_mask", ["batch", "sequence"]),
    ]
    assert compare_onnx(model, tmp_path / "model.onnx") < 1e-5
    for length in (2, 32):
        inputs = ForOnnx(model).draw(1, length)
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        assert np.abs(found - ForOnnx(model)(*inputs.values()).detach().numpy()).max() < 1e-4
    lstm = build_model("lstm_nano", vocabulary=50, length=32)
    for other in (lstm, build_model("transformer_nano", vocabulary=50, length=32)):
        with pytest.raises(UserError, match="ONNX has no"):
            save_onnx(other, tmp_path / "other.onnx")


def test_weights_that_are_shared_are_in_a_file_under_each_of_their_names(tmp_path):
    model, other = (build_model("transformer_nano", vocabulary=30, length=8, depth=1, width=8, heads=2) for _ in "ab")
    save_safetensors(model, tmp_path / "model.safetensors", "own")
    load_weights(other, tmp_path / "model.safetensors")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())
