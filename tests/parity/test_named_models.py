"""The named models against timm's of the same names: weights copied over, the same logits, the same gradients.

With trained weights: VIT_S14=FILE python -m pytest -n 0 -s tests/parity/test_named_models.py -k vit_s14_sees
"""

import os

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from vitlab.models import build_model
from vitlab.models.weights import Weights, load_into, name_in_timm
from vitlab.training.load import load_weights

HEIGHT, WIDTH, CLASSES = 64, 96, 11  # neither square nor 224; 32 divides both
PAIRS = {
    "vit_ti16": "vit_tiny_patch16_224",
    "vit_s32": "vit_small_patch32_224",
    "deit_ti16_distilled": "deit_tiny_distilled_patch16_224",
    "r26_vit_s32": "vit_small_r26_s32_224",
    "r50_vit_b16": "vit_base_r50_s16_224",
    "mixer_s16": "mixer_s16_224",
}
SHAPES = {  # the same parameters one for one; of the same classes, and larger
    "vit_b16": "vit_base_patch16_224",
    "deit_s16_distilled": "deit_small_distilled_patch16_224",
    "mixer_b16": "mixer_b16_224",
    "dinov2_s14": "vit_small_patch14_dinov2",
}
OTHERS = {  # other sizes of the same
    "vit_s16": "vit_small_patch16_224",
    "vit_b32": "vit_base_patch32_224",
    "deit_ti16": "deit_tiny_patch16_224",
    "mixer_s32": "mixer_s32_224",
    "deit_b16_distilled": "deit_base_distilled_patch16_224",
    "vit_l16": "vit_large_patch16_224",
    "vit_l32": "vit_large_patch32_224",
    "vit_h14": "vit_huge_patch14_224",
    "r50_vit_l32": "vit_large_r50_s32_224",
    "mixer_b32": "mixer_b32_224",
    "mixer_l16": "mixer_l16_224",
    "mixer_l32": "mixer_l32_224",
    "dinov2_b14": "vit_base_patch14_dinov2",
}


def randomized(model):
    """Away from the zeros and ones that hide an error, near enough to them for a deep model."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.01 if parameter.dim() > 1 else 0.5, std=0.05)
    return model


@pytest.mark.parametrize(  # r26_vit_s32 is as r50_vit_b16, in a third of the time
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "r50_vit_b16")) for name in PAIRS]
)
def test_logits_and_gradients_are_timms(name):
    sizes = {"num_classes": CLASSES} if name == "mixer_s16" else {"num_classes": CLASSES, "depth": 2}
    theirs = randomized(timm.create_model(PAIRS[name], img_size=(HEIGHT, WIDTH), **sizes)).eval()
    mine = build_model(name, image_size=(HEIGHT, WIDTH), **sizes).eval()
    embed = theirs.stem if hasattr(theirs, "stem") else theirs.patch_embed
    report = load_into(mine, Weights(theirs.state_dict(), name, embed.grid_size))
    assert not [*report.missing, *report.unused, *report.new, *report.resized], report
    images, labels = torch.randn(2, 3, HEIGHT, WIDTH), torch.tensor([3, 7])
    logits = []
    for model in (mine, theirs):
        logits.append(model(images))
        nn.functional.cross_entropy(logits[-1], labels).backward()
    assert logits[0].std() > 0.01, "logits that are all alike prove nothing"
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
    found = {name_in_timm(mine, key): p.grad for key, p in mine.named_parameters()}
    expected = {key: p.grad for key, p in theirs.named_parameters()}
    assert found.keys() == expected.keys()
    for key, grad in expected.items():
        assert grad.any(), key
        torch.testing.assert_close(found[key], grad, rtol=1e-5, atol=1e-5, msg=lambda text, at=key: f"{at}: {text}")


@pytest.mark.parametrize("name", [*PAIRS, *SHAPES, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_parameters_are_timms_one_for_one(name):
    theirs_name = {**PAIRS, **SHAPES, **OTHERS}[name]
    size = timm.models.get_pretrained_cfg(theirs_name).input_size[1]
    shapes = []
    for build in (
        lambda: build_model(name, image_size=size, num_classes=CLASSES),
        lambda: timm.create_model(theirs_name, num_classes=CLASSES),
    ):
        with torch.device("meta"):
            model = build()
        shapes.append({name_in_timm(model, key): tuple(value.shape) for key, value in model.state_dict().items()})
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("size", [(98, 98), (98, 126), (224, 140)])
@torch.no_grad()
def test_a_vit_s14_sees_pictures_of_each_size_as_timm_does(size, tmp_path):
    """Compare features on random weights of two blocks, or on those of the file $VIT_S14, in timm's names."""
    name, file, sizes = SHAPES["dinov2_s14"], os.environ.get("VIT_S14"), {"num_classes": 0}
    if file is None:
        file, sizes["depth"] = str(tmp_path / "weights.safetensors"), 2
        save_file(randomized(timm.create_model(name, **sizes)).state_dict(), file)
    source = {"pretrained": True, "pretrained_cfg_overlay": {"file": file}}
    theirs = timm.create_model(name, img_size=size, **source, **sizes).eval()
    mine = build_model("dinov2_s14", image_size=size, **sizes).eval()
    load_weights(mine, file)
    images = torch.randn(2, 3, *size)
    found, expected = mine.features(images), theirs(images)
    print(f"{size}: largest difference {(found - expected).abs().max():.1e} of up to {expected.abs().max():.1f}")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found[0] - found[1]).abs().max() > 1e-3
