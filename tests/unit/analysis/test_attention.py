"""Attention maps: exactly what a model attended to; those of timm's are in test_attention_streaming.py."""

import pytest
import torch

from tests.learning import randomized
from vitlab.analysis.capture import attention_maps, find_attention_layers, find_patches
from vitlab.models import build_model

B, CHANNELS, SIZE, PATCH, CLASSES, DEPTH, HEADS, D = 2, 3, (10, 21), (5, 7), 11, 3, 5, 35
PATCHES = 2 * 3


def own(**changes):
    options = {"depth": DEPTH, "width": D, "heads": HEADS, "mlp_width": 13, "patch_size": list(PATCH), **changes}
    return randomized(build_model("vit_nano", num_classes=CLASSES, image_size=SIZE, **options))


MODELS = {
    "own, mean": (lambda: own(pool="mean"), 0),
    "own, token": (lambda: own(pool="token"), 1),
    "own, no bias": (lambda: own(pool="token", mixer={"name": "attention", "qkv_bias": False}), 1),
    "own, rotary, wide heads, registers": (lambda: own(pool="token", positions="rotary", head_width=8, registers=2), 3),
    "own, qk_norm, distilled": (
        lambda: own(pool="token", distillation=True, mixer={"name": "attention", "qk_norm": True}),
        2,
    ),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def case(request):
    make, prefix = request.param
    return make(), prefix


def images():
    return torch.randn(B, CHANNELS, *SIZE)


def inputs_and_outputs(model, x):
    """What each attention layer of a model was given and what it gave back, in one forward pass."""
    seen = []
    handles = [
        layer.register_forward_hook(lambda layer, args, out: seen.append((args[0], out)))
        for layer in find_attention_layers(model)
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return seen


def by_hand(layer, x, rotary=None):
    """softmax(q k^T / sqrt(K)) and v of one layer, head by head."""
    width = layer.qkv.weight.shape[0] // 3
    q, k, v = (part.view(*x.shape[:2], HEADS, width // HEADS) for part in layer.qkv(x).split(width, dim=-1))
    q, k = layer.q_norm(q), layer.k_norm(k)
    if rotary is not None:  # each pair of a head's width turns by the angle of its token
        turn = torch.complex(rotary[1], rotary[0])[:, None, ::2]
        q, k = (torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2) for x in (q, k))
    weights = torch.stack(
        [(q[:, :, h] @ k[:, :, h].mT / (width // HEADS) ** 0.5).softmax(dim=-1) for h in range(HEADS)], dim=1
    )
    return weights, v


# ---- exactness


def test_weights_are_the_softmax_of_the_models_own_queries_and_keys(case):
    model, prefix = case
    x, tokens = images(), PATCHES + prefix
    seen = inputs_and_outputs(model, x)
    found = dict(attention_maps(model, x))
    assert list(found) == list(range(DEPTH))
    for layer, weights in found.items():
        assert weights.shape == (B, HEADS, tokens, tokens)
        expected, _ = by_hand(find_attention_layers(model)[layer], seen[layer][0], getattr(model, "rotary", None))
        torch.testing.assert_close(weights, expected)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, HEADS, tokens))
        assert weights.std(dim=-1).min() > 1e-3, "weights that are all alike prove nothing"


# ---- layers, and what has none


def test_patches_are_where_the_model_says(case):
    model, prefix = case
    place = find_patches(model)
    assert (place.grid_size, place.patch_size, place.prefix) == ((2, 3), PATCH, prefix)
