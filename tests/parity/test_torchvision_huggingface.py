"""The ViT against torchvision's and Hugging Face's, tiny, with the same weights: the same logits and gradients."""

import re

import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer
from transformers import ViTConfig, ViTModel

from tests.learning import randomized
from vitlab.models import build_model
from vitlab.models.base import extract_features
from vitlab.training.load import load_weights

CLASSES, DEPTH, HEADS, D, HIDDEN = 11, 3, 3, 39, 23
TORCHVISION = (  # theirs, mine
    (r"^class_token$", "cls_token"),
    (r"^conv_proj\.", "patch_embed.proj."),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"encoder.blocks.\1."),
    (r"\.ln_(\d)\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".mixer.qkv."),
    (r"\.self_attention\.out_proj\.", ".mixer.proj."),
    (r"\.mlp\.0\.", ".mlp.fc1."),
    (r"\.mlp\.3\.", ".mlp.fc2."),
    (r"^encoder\.ln\.", "encoder.norm."),
    (r"^heads\.head\.", "head."),
)


def rename(name):
    for theirs, mine in TORCHVISION:
        name = re.sub(theirs, mine, name)
    return name


def vit(image_size, **changes):
    sizes = {"depth": DEPTH, "width": D, "heads": HEADS, "mlp_width": HIDDEN}
    changes = {"num_classes": CLASSES, **sizes, **changes}
    return build_model("vit_ti16", image_size=image_size, patch_size=7, **changes).eval()


def test_logits_and_gradients_are_torchvisions():
    torch.manual_seed(1)
    theirs = randomized(VisionTransformer(28, 7, DEPTH, HEADS, D, HIDDEN, num_classes=CLASSES), 0.2, mean=0.05)
    mine = vit((28, 28))
    mine.load_state_dict({rename(name): value for name, value in theirs.state_dict().items()})
    images, labels = torch.randn(5, 3, 28, 28), torch.randint(CLASSES, (5,))
    logits = [mine(images), theirs(images)]
    for out in logits:
        nn.functional.cross_entropy(out, labels).backward()
    assert logits[0].std() > 0.1, "logits that are all alike prove nothing"
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
    expected = {rename(name): p.grad for name, p in theirs.named_parameters()}
    found = {name: p.grad for name, p in mine.named_parameters()}
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-5, atol=1e-5, msg=lambda text, at=name: f"{at}: {text}")


def test_a_vit_without_a_head_of_hugging_face_keeps_its_pooler(tmp_path):
    sizes = {"hidden_size": D, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS, "intermediate_size": HIDDEN}
    theirs = ViTModel(ViTConfig(**sizes, image_size=(14, 35), patch_size=7, layer_norm_eps=1e-6))
    randomized(theirs, 0.2, mean=0.05).save_pretrained(tmp_path)
    mine = vit((14, 35), pre_logits=True)
    report = load_weights(mine, tmp_path)
    assert not [*report.missing, *report.unused, *report.resized], report
    assert report.new == ["head.weight", "head.bias"]
    images = torch.randn(5, 3, 14, 35)
    torch.testing.assert_close(extract_features(mine, images), theirs(images)[1], rtol=1e-5, atol=1e-5)
