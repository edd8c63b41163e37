"""Rollout, class-token maps, similarity of positions, filters: arrays that are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from tests.learning import randomized
from vitlab.analysis import capture, pictures
from vitlab.analysis.capture import attention_maps
from vitlab.analysis.maps import extend_rollout, rollout, run_attention_maps, run_rollout
from vitlab.config import load
from vitlab.models import build_model

B, HEADS, GRID, PATCH, SIZE, D, DEPTH = 2, 3, (2, 7), (5, 3), (10, 21), 24, 3


def model(**changes):
    options = {"depth": DEPTH, "width": D, "heads": HEADS, "patch_size": list(PATCH), **changes}
    made = build_model("vit_nano", image_size=SIZE, num_classes=3, **options)
    return randomized(made)


def theirs(**changes):
    sizes = {"img_size": SIZE, "patch_size": PATCH, "embed_dim": D, "depth": DEPTH, "num_heads": HEADS}
    return VisionTransformer(num_classes=3, **sizes, **changes).eval()


# ---- rollout


def attention_rollout(maps, identity=True):
    joint = None
    for weights in maps:
        joint = extend_rollout(weights.mean(dim=1), joint, identity)
    return joint


def random_weights(tokens=5):
    return torch.randn(B, HEADS, tokens, tokens).mul(3).softmax(dim=-1)


@pytest.mark.parametrize("identity", [True, False])
def test_heads_are_averaged_and_rows_sum_to_one(identity):
    maps = [random_weights() for _ in range(3)]
    found = attention_rollout(iter(maps), identity)
    eye = torch.eye(5)
    one, two, three = ((m.mean(1) + eye) / 2 if identity else m.mean(1) for m in maps)
    torch.testing.assert_close(found, three @ two @ one)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(B, 5))


@pytest.mark.parametrize("name", ["rollout", "attention_maps"])
def test_half_of_each_layer_is_its_residual_path_unless_the_user_asks(name):
    assert load("analysis", name).identity


MODELS = {
    "own, token": (lambda: model(pool="token"), 1, True),
    "own, mean": (lambda: model(pool="mean"), 0, False),
    "own, mean with a class token": (lambda: model(pool="mean", class_token=True), 1, False),
    "timm": (theirs, 1, True),
    "timm, mean with registers": (lambda: theirs(global_pool="avg", reg_tokens=2), 3, False),
}


# ---- maps of all layers


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
def test_layer_maps_are_what_the_head_reads_of_each_layer_and_the_rollout_up_to_it(case, identity, monkeypatch):
    monkeypatch.setattr(capture, "CHUNK", 2)
    made, prefix, class_token = case[0](), case[1], case[2]
    images = torch.randn(5, 3, *SIZE)
    options = SimpleNamespace(identity=identity)
    found = run_attention_maps(made, images, options)
    weights = [layer for _, layer in attention_maps(made, images)]
    assert found["class_token"] == class_token
    assert found["maps"].shape == (5, DEPTH, HEADS, *GRID)
    for place, layer in enumerate(weights):
        joint = attention_rollout(weights[: place + 1], identity)
        read, reached = (
            (part[..., 0, :] if class_token else part[..., prefix:, :].mean(dim=-2))[..., prefix:]
            for part in (layer, joint)
        )
        np.testing.assert_allclose(found["maps"][:, place], read.reshape(5, HEADS, *GRID), rtol=2e-3, atol=1e-6)
        np.testing.assert_allclose(found["rollout"][:, place], reached.reshape(5, *GRID), rtol=2e-3, atol=1e-6)
    torch.testing.assert_close(rollout(made, images, identity), joint)
    last = run_rollout(made, images, options)["rollout"]
    np.testing.assert_allclose(last, reached.reshape(5, *GRID), rtol=1e-5, atol=1e-7)


# ---- positions


def test_known_distances_and_similarities():
    table = torch.tensor([[3.0, 0.0], [0.0, 4.0], [-6.0, 0.0], [0.0, 0.0], [3.0, 3.0]], requires_grad=True)
    distances = pictures.position_distances(table)
    similarities = pictures.position_similarities(table)
    assert distances[0].tolist() == pytest.approx([0, 5, 9, 3, 3])
    assert similarities[0].tolist() == pytest.approx([1, 0, -1, 0, 0.5**0.5])
    assert similarities[3].tolist() == [0, 0, 0, 0, 0], "a vector of zeros has no direction"
    for matrix in (distances, similarities):
        assert matrix.dtype == torch.float64
        assert not matrix.requires_grad
        assert torch.equal(matrix, matrix.T)


# ---- filters


def test_the_components_of_planted_filters_are_found_in_order():
    """64 filters that are mixtures of three patterns, of very different strength, and a common part."""
    patterns = torch.linalg.qr(torch.randn(3 * 5 * 7, 3, dtype=torch.float64)).Q.T
    amounts = torch.linalg.qr(torch.randn(61, 4, dtype=torch.float64)).Q
    amounts = amounts - amounts.mean(dim=0)
    amounts = torch.linalg.qr(amounts[:, :3]).Q * torch.tensor([9.0, 3, 1])
    weight = (amounts @ patterns + torch.randn(105)).reshape(61, 3, 5, 7)
    filters, explained = pictures.rgb_filters(weight, 28)
    assert filters.shape == (3, 3, 5, 7), "other directions have no variance, and are arbitrary"
    np.testing.assert_allclose(explained, np.array([81, 9, 1]) / 91, atol=1e-9)
    alike = np.abs(filters.reshape(3, -1) @ patterns.numpy().T)
    np.testing.assert_allclose(alike, np.eye(3), atol=1e-5)
