"""What speaks for a class lies where the class is, of ViTs and of ResNets."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vitlab.analysis.maps import explain_attention, run_explanation
from vitlab.config import load
from vitlab.models import build_model

SIZE = 24


def pictures(count, seed=0):
    """A bright or a dark 6 x 6 square on noise, its class and its place in cells of 6 pixels."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    labels = torch.arange(count) % 2
    cells = torch.randint(0, 4, (count, 2), generator=generator)
    for image, label, (y, x) in zip(images, labels, cells.tolist(), strict=True):
        image[:, 6 * y : 6 * y + 6, 6 * x : 6 * x + 6] += 3 * (2 * label - 1)
    return images, labels, cells


VIT = {"patch_size": 6, "pool": "token", "depth": 2}


@pytest.mark.parametrize(
    ("name", "changes", "count", "steps"), [("vit_nano", VIT, 256, 60), ("resnet_nano", {}, 64, 30)]
)
def test_the_map_is_bright_where_the_class_is(name, changes, count, steps):
    torch.manual_seed(0)
    model = build_model(name, image_size=SIZE, num_classes=2, **changes)
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3)
    images, labels, cells = pictures(count)
    for _ in range(steps):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    images, labels, cells = pictures(40, seed=1)
    assert (model.eval()(images).argmax(dim=1) == labels).float().mean() > 0.9
    maps = run_explanation(model, images, load("analysis", "explanation"))["maps"]
    side = maps.shape[1]
    assert maps.shape[1:] == (side, side)
    brightest = np.stack(np.unravel_index(maps.reshape(40, -1).argmax(axis=1), (side, side)), axis=1)
    found = (brightest + 0.5) * SIZE / side
    wanted = (cells.numpy() + 0.5) * 6
    # within the cell of the square or one beside it
    assert (np.abs(found - wanted).max(axis=1) <= 9).mean() > 0.8


def test_gradients_of_attention_are_those_of_autograd():
    torch.manual_seed(0)
    model = build_model("vit_nano", image_size=12, num_classes=3, patch_size=4, depth=1).eval()
    nn.init.normal_(model.head.weight, std=1.0)
    images = torch.randn(2, 3, 12, 12)
    found, logits = explain_attention(model, images.clone())
    assert found.shape == (2, 3, 3)
    weights = []

    def explicit(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
        weights.append((q @ k.mT * scale).softmax(dim=-1))
        weights[-1].retain_grad()
        return weights[-1] @ v

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", explicit)
        again = model(images)
        again.amax(dim=1).sum().backward()
    torch.testing.assert_close(again.detach(), logits)
    joint = (weights[0] * weights[0].grad).clamp(min=0).mean(dim=1).detach()
    torch.testing.assert_close(found, joint.mean(dim=1).unflatten(1, (3, 3)), rtol=1e-4, atol=1e-7)


def test_an_answer_is_a_probability_of_its_own_or_a_number_in_its_unit():
    model, images = build_model("resnet_nano", image_size=16, num_classes=3).eval(), torch.randn(5, 3, 16, 16)
    logits, options = model(images).detach(), load("analysis", "explanation")
    labels = run_explanation(model, images, options, of="labels")["rows"]
    assert [row["class"] for row in labels] == logits.argmax(dim=1).tolist()
    assert [row["value"] for row in labels] == pytest.approx(logits.sigmoid().amax(dim=1).tolist(), rel=1e-4)
    numbers = run_explanation(model, images, options, of="measures", scale=(50.0, 7.0))
    assert [row["value"] for row in numbers["rows"]] == pytest.approx((50 + 7 * logits[:, 0]).tolist(), rel=1e-4)
    assert ("class" in numbers["rows"][0], numbers["unit"]) == (False, "the number")


@pytest.mark.parametrize("name", ["vit_nano", "resnet_nano", "timm:vit_tiny_patch16_224"])
def test_the_gradients_of_a_model_in_training_stay(name):
    """Also those of a frozen one: it stays frozen."""
    model, images = build_model(name, image_size=32, num_classes=2), torch.randn(3, 3, 32, 32)
    frozen = next(iter(model.parameters())).requires_grad_(False)
    model(images).square().sum().backward()
    before = {parameter: parameter.grad for parameter in model.parameters()}
    copies = [None if grad is None else grad.clone() for grad in before.values()]
    run_explanation(model, images, load("analysis", "explanation"))
    assert [parameter for parameter in model.parameters() if not parameter.requires_grad] == [frozen]
    for (parameter, grad), copy in zip(before.items(), copies, strict=True):
        assert parameter.grad is grad
        assert grad is None or torch.equal(grad, copy)
