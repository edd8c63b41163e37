"""Attention maps: exactly what a model attended to; those of timm's are in test_attention_streaming.py."""

import pytest
import torch
from torch import nn

from tests.learning import randomized
from vitlab.analysis.capture import attention_maps, find_attention_layers, find_patches
from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.models.encoder import TransformerEncoder, feed_forward
from vitlab.models.mixers.attention import Attention

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


@pytest.mark.parametrize("causal", [False, True])
def test_masks_context_and_causal_of_the_forward_pass_count(causal):
    """For the layers of an encoder that is no image model."""
    n, m = 7, 5
    encoder = TransformerEncoder(
        D, 1, mixer=lambda: Attention(D, HEADS), mlp=lambda: feed_forward(D, 13), cross=lambda: Attention(D, HEADS)
    )
    randomized(encoder)
    mask = torch.rand(B, HEADS, n, n) < 0.5
    mask |= torch.eye(n, dtype=torch.bool)
    x, context, seen = torch.randn(B, n, D), torch.randn(B, m, D), torch.rand(B, 1, 1, m) < 0.5
    seen[..., 0] = True

    class Given(nn.Module):
        """Calls the encoder with what an image model would not have."""

        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, tokens):
            return self.encoder(tokens, mask=mask, causal=causal, context=context, context_mask=seen)

    model = Given().eval()
    outputs = inputs_and_outputs(model, x)
    (_, own_weights), (_, cross_weights) = attention_maps(model, x)
    allowed = mask & torch.ones(n, n).tril().bool() if causal else mask
    assert (own_weights == 0).equal(~allowed), "zero exactly where the query may not look"
    assert cross_weights.shape == (B, HEADS, n, m)
    assert (cross_weights == 0).equal(~seen.expand(B, HEADS, n, m))
    for weights, source, part, (_, out) in zip(
        (own_weights, cross_weights), (outputs[0][0], context), find_attention_layers(model), outputs, strict=True
    ):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, HEADS, n))
        v = source @ part.qkv.weight[2 * D :].T + part.qkv.bias[2 * D :]
        mixed = torch.einsum("bhnm,bmhk->bnhk", weights, v.unflatten(-1, (HEADS, -1))).flatten(2)
        torch.testing.assert_close(part.proj(mixed), out, rtol=1e-4, atol=1e-5)


# ---- layers, and what has none


@pytest.mark.parametrize("layer", [-1, 3, 99])
def test_a_layer_that_does_not_exist_raises(layer):
    with pytest.raises(UserError, match=f"layer {layer}: the model has layers 0 to 2"):
        list(attention_maps(own(), images(), layers=[0, layer]))


def test_patches_are_where_the_model_says(case):
    model, prefix = case
    place = find_patches(model)
    assert (place.grid_size, place.patch_size, place.prefix) == ((2, 3), PATCH, prefix)


@pytest.mark.parametrize("name", ["resnet_nano", "timm:resnet18", "timm:swin_tiny_patch4_window7_224"])
def test_a_model_without_a_grid_of_patches_or_global_attention_is_told_so_in_one_line(name):
    model = build_model(name, image_size=32, num_classes=3)
    with pytest.raises(UserError, match="has no patch grid"):
        find_patches(model)
    with pytest.raises(UserError, match="has no attention layers that vitlab knows"):
        attention_maps(model, torch.zeros(1, 3, 32, 32))
