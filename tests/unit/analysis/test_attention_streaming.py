"""Attention as the kernel was given it: against timm's explicit code, in blocks, in bfloat16, compiled."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer
from timm.models.vision_transformer_relpos import VisionTransformerRelPos

from tests.learning import randomized
from vitlab.analysis.capture import (
    attention_maps,
    find_attention_layers,
    make_attention_call,
    visit_attention,
)

B, HEADS, D, DEPTH, SIZE, PATCH = 2, 5, 40, 3, (10, 21), (5, 7)
SIZES = {"img_size": SIZE, "patch_size": PATCH, "embed_dim": D, "depth": DEPTH, "num_heads": HEADS, "num_classes": 11}
MODELS = {
    "class token": partial(VisionTransformer, **SIZES),
    "no class token": partial(VisionTransformer, class_token=False, global_pool="avg", **SIZES),
    "registers": partial(VisionTransformer, reg_tokens=4, **SIZES),
    "qk_norm": partial(VisionTransformer, qk_norm=True, **SIZES),
    "parallel blocks": partial(VisionTransformer, block_fn=ParallelScalingBlock, **SIZES),
    "relative positions": partial(VisionTransformerRelPos, **SIZES),
    "beit": partial(Beit, use_rel_pos_bias=True, **SIZES),
    "eva, rotary": partial(Eva, use_rot_pos_emb=True, **SIZES),
    "eva, rotary of registers, qk_norm": partial(
        Eva, use_rot_pos_emb=True, attn_type="rope", qk_norm=True, num_reg_tokens=2, **SIZES
    ),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request):
    return randomized(request.param(), 0.3)


def images():
    return torch.randn(B, 3, *SIZE)


def explicit_maps(model, x):
    """What timm's own softmax gave in each layer, its fused kernel switched off."""
    maps, handles = [], []
    for layer in find_attention_layers(model):
        layer.fused_attn = False
        handles.append(layer.attn_drop.register_forward_hook(lambda drop, args, out: maps.append(out)))
    with torch.no_grad():
        model(x)
    for layer, handle in zip(find_attention_layers(model), handles, strict=True):
        layer.fused_attn = True
        handle.remove()
    return maps


# ---- exactness


def test_they_are_timms_own_explicit_softmax(model):
    x = images()
    expected = explicit_maps(model, x)
    found = dict(attention_maps(model, x))
    assert len(found) == len(expected) == DEPTH
    for layer, weights in found.items():
        torch.testing.assert_close(weights, expected[layer], rtol=0, atol=1e-5)
        assert expected[layer].std(dim=-1).min() > 1e-3, "weights that are all alike prove nothing"


@pytest.mark.slow
def test_a_compiled_model_is_the_model(model):
    x = images()
    compiled = torch.compile(model, backend="eager")
    for (_, found), (_, expected) in zip(attention_maps(compiled, x), attention_maps(model, x), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(compiled(x), model(x)), "and compiles as before"


@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16_queries_and_keys_are_multiplied_and_normalized_in_float32(autocast):
    model, x = randomized(MODELS["class token"](), 0.3), images()
    if not autocast:
        model, x = model.bfloat16(), x.bfloat16()
    seen = []
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        visit_attention(model, x, lambda layer, call: seen.append(call.copy()))
        found = [weights for _, weights in attention_maps(model, x)]
    for call, weights in zip(seen, found, strict=True):
        assert call.q.dtype == torch.bfloat16
        assert weights.dtype == torch.float32
        expected = (call.q.double() @ call.k.double().mT * call.scale).softmax(dim=-1)
        torch.testing.assert_close(weights.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "bool", "keys", "number", "causal", "nowhere"])
@pytest.mark.parametrize("size", [1, 2 * 5 * 7 * 11, 2**22])
def test_blocks_are_what_the_kernel_weighs_values_with(kind, size):
    n, m, width = 13, 11, 7
    q, k, v = torch.randn(B, HEADS, n, width), torch.randn(B, HEADS, m, width), torch.randn(B, HEADS, m, width)
    given = {}
    if kind in ("bool", "nowhere"):
        given["attn_mask"] = torch.rand(B, 1, n, m) < 0.5
        given["attn_mask"][:, :, 3] = kind == "bool"
    elif kind == "keys":
        given["attn_mask"] = torch.arange(m).expand(B, 1, 1, m) < torch.tensor([4, 9]).view(B, 1, 1, 1)
    elif kind == "number":
        given["attn_mask"] = torch.randn(HEADS, n, m)
    elif kind == "causal":
        given["is_causal"] = True
    call = make_attention_call(q, k, v, scale=0.7, **given)
    blocks = list(call.blocks(size))
    assert [i for queries, _ in blocks for i in range(n)[queries]] == list(range(n))
    assert all(weights.numel() <= max(size, B * HEADS * m) for _, weights in blocks)
    weights = torch.cat([weights for _, weights in blocks], dim=2)
    torch.testing.assert_close(weights, call.weights())
    torch.testing.assert_close(weights @ v, F.scaled_dot_product_attention(q, k, v, scale=0.7, **given))
