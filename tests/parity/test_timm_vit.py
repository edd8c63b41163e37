"""The ViT against timm's, with the same weights: the same logits, the same gradients."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitlab.models import build_model

# different primes, or as near to them as heads and patches allow
CHANNELS, HEIGHT, WIDTH, PATCH, CLASSES, DEPTH, HEADS, D, HIDDEN = 2, 15, 28, (5, 7), 11, 3, 3, 39, 23


def own(**changes):
    model = build_model(
        "vit_ti16", num_classes=CLASSES, image_size=(HEIGHT, WIDTH), channels=CHANNELS, depth=DEPTH, width=D,
        heads=HEADS, mlp_width=HIDDEN, patch_size=list(PATCH), **changes,
    )  # fmt: skip
    for parameter in model.parameters():  # away from the zeros and ones that hide an error
        nn.init.normal_(parameter, mean=0.05, std=0.2)
    return model.eval()


def timm(**changes):
    return VisionTransformer(
        img_size=(HEIGHT, WIDTH), patch_size=PATCH, in_chans=CHANNELS, num_classes=CLASSES, embed_dim=D, depth=DEPTH,
        num_heads=HEADS, mlp_ratio=HIDDEN / D, **changes,
    ).eval()  # fmt: skip


def timms_name(name):
    return name.removeprefix("encoder.").replace(".mixer.", ".attn.")


VARIANTS = {
    "token": ({"pool": "token"}, {"global_pool": "token"}),
    "mean": ({"pool": "mean"}, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
    "no positions": ({"positions": "none"}, {"pos_embed": "none"}),
    "no bias": ({"mixer": {"name": "attention", "qkv_bias": False}}, {"qkv_bias": False}),
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def pair(request):
    mine, theirs = own(**request.param[0]), timm(**request.param[1])
    theirs.load_state_dict({timms_name(name): value for name, value in mine.state_dict().items()})
    return mine, theirs


def test_logits_and_gradients_are_timms(pair):
    mine, theirs = pair
    images = torch.randn(5, CHANNELS, HEIGHT, WIDTH)
    labels = torch.randint(CLASSES, (5,))
    logits = []
    for model in pair:
        out = model(images)
        nn.functional.cross_entropy(out, labels).backward()
        logits.append(out)
    assert logits[0].std() > 0.1, "logits that are all alike prove nothing"
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
    found = {timms_name(name): p.grad for name, p in mine.named_parameters()}
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        assert grad.any(), name
        torch.testing.assert_close(found[name], grad, rtol=1e-5, atol=1e-5, msg=lambda text, at=name: f"{at}: {text}")


def test_features_are_timms(pair):
    mine, theirs = pair
    images = torch.randn(3, CHANNELS, HEIGHT, WIDTH)
    expected = theirs.forward_head(theirs.forward_features(images), pre_logits=True)
    torch.testing.assert_close(mine.features(images), expected, rtol=1e-5, atol=1e-5)


def test_the_timm_model_of_a_configuration_is_the_same_model():
    """`timm:NAME` with an own model's sizes has its parameters one for one."""
    mine = own()
    options = {"patch_size": list(PATCH), "embed_dim": D, "depth": DEPTH, "num_heads": HEADS, "mlp_ratio": HIDDEN / D}
    theirs = build_model(
        "timm:vit_tiny_patch16_224", num_classes=CLASSES, image_size=(HEIGHT, WIDTH), channels=CHANNELS, options=options
    ).eval()
    theirs.load_state_dict({timms_name(name): value for name, value in mine.state_dict().items()})
    images = torch.randn(3, CHANNELS, HEIGHT, WIDTH)
    torch.testing.assert_close(mine(images), theirs(images), rtol=1e-5, atol=1e-5)
