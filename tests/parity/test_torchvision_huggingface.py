"""The ViT against torchvision's and Hugging Face's, tiny, with the same weights: the same logits and gradients."""

import re

import pytest
import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer
from transformers import ViTConfig, ViTForImageClassification

from vitlab.models import build_model

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
HUGGINGFACE = (
    (r"^vit\.embeddings\.cls_token$", "cls_token"),
    (r"^vit\.embeddings\.position_embeddings$", "pos_embed"),
    (r"^vit\.embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^vit\.(?:encoder\.layer|layers)\.(\d+)\.", r"encoder.blocks.\1."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".mixer.proj."),
    (r"\.attention\.(?:attention\.)?(?:query|q_proj)\.", ".mixer.q."),
    (r"\.attention\.(?:attention\.)?(?:key|k_proj)\.", ".mixer.k."),
    (r"\.attention\.(?:attention\.)?(?:value|v_proj)\.", ".mixer.v."),
    (r"\.(?:intermediate\.dense|mlp\.fc1)\.", ".mlp.fc1."),
    (r"\.(?:output\.dense|mlp\.fc2)\.", ".mlp.fc2."),
    (r"^vit\.layernorm\.", "encoder.norm."),
    (r"^classifier\.", "head."),
)


def renamed(tensors, rules):
    """In this project's names, separate queries, keys and values joined to one."""
    found = {}
    for name, value in tensors.items():
        for pattern, instead in rules:
            name = re.sub(pattern, instead, name)
        found[name] = value
    for name in [name for name in found if ".mixer.q." in name]:
        parts = [found.pop(name.replace(".q.", f".{part}.")) for part in "qkv"]
        found[name.replace(".q.", ".qkv.")] = torch.cat(parts)
    return found


def torchvisions(image_size, patch_size):
    return VisionTransformer(image_size[0], patch_size, DEPTH, HEADS, D, HIDDEN, num_classes=CLASSES)


def huggingfaces(image_size, patch_size):
    config = ViTConfig(
        hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=HIDDEN, num_channels=3,
        image_size=image_size, patch_size=patch_size, num_labels=CLASSES, layer_norm_eps=1e-6,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return ViTForImageClassification(config)


@pytest.mark.parametrize(
    ("build", "rules", "image_size"),
    [(torchvisions, TORCHVISION, (28, 28)), (huggingfaces, HUGGINGFACE, (14, 35))],  # torchvision's are square
    ids=["torchvision", "huggingface"],
)
def test_logits_and_gradients_are_theirs(build, rules, image_size):
    torch.manual_seed(1)
    theirs = build(image_size, 7).eval()
    for parameter in theirs.parameters():  # away from the zeros and ones that hide an error
        nn.init.normal_(parameter, mean=0.05, std=0.2)
    mine = build_model(
        "vit_ti16", image_size=image_size, patch_size=7, num_classes=CLASSES, depth=DEPTH, width=D, heads=HEADS,
        mlp_width=HIDDEN,
    ).eval()  # fmt: skip
    mine.load_state_dict(renamed(theirs.state_dict(), rules))
    images, labels = torch.randn(5, 3, *image_size), torch.randint(CLASSES, (5,))
    logits = [mine(images), theirs(images)]
    logits[1] = getattr(logits[1], "logits", logits[1])
    for out in logits:
        nn.functional.cross_entropy(out, labels).backward()
    assert logits[0].std() > 0.1, "logits that are all alike prove nothing"
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
    expected = renamed({name: p.grad for name, p in theirs.named_parameters()}, rules)
    found = {name: p.grad for name, p in mine.named_parameters()}
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-5, atol=1e-5, msg=lambda text, at=name: f"{at}: {text}")
