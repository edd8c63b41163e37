"""The encoder and its attention, against formulas that are written out here."""

import pytest
import torch
from torch import nn

from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.models.encoder import TransformerEncoder, feed_forward
from vitlab.models.layers import Mlp
from vitlab.models.mixers import attention as kernels
from vitlab.models.mixers.attention import Attention, KeyValueCache
from vitlab.models.text import bert

# all different primes but the model's width, which is heads times head width
B, N, M, H, K, HIDDEN, DEPTH = 2, 7, 5, 3, 11, 17, 3
D = H * K


def attention(**options):
    return randomized(Attention(D, H, **options))


def randomized(module):
    """Weights and norms far from their initial values, so that a forgotten one shows."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()


def encoder(depth=DEPTH, cross=False, **options):
    return randomized(
        TransformerEncoder(
            D,
            depth,
            mixer=lambda: Attention(D, H),
            mlp=lambda: feed_forward(D, HIDDEN),
            cross=(lambda: Attention(D, H)) if cross else None,
            **options,
        )
    )


def explicit(module, x, allowed=None, context=None):
    """softmax(q k^T / sqrt(K)) v head by head, with loops; `allowed` bool (B, H, N, M)."""
    weight, bias = module.qkv.weight, module.qkv.bias
    bias = torch.zeros(3 * D) if bias is None else bias
    source = x if context is None else context
    q, k, v = (
        at @ weight[i * D : (i + 1) * D].T + bias[i * D : (i + 1) * D] for i, at in enumerate((x, source, source))
    )
    out = torch.zeros(*x.shape)
    for b in range(len(x)):
        for h in range(H):
            part = slice(h * K, (h + 1) * K)
            scores = q[b, :, part] @ k[b, :, part].T / K**0.5
            if allowed is not None:
                scores = scores.masked_fill(~allowed[b, h], float("-inf"))
            out[b, :, part] = scores.softmax(dim=-1) @ v[b, :, part]
    return out @ module.proj.weight.T + module.proj.bias


def some_mask(queries, keys):
    """Bool (B, H, queries, keys), different everywhere, with at least one True in each row."""
    mask = torch.rand(B, H, queries, keys) < 0.5
    mask[..., 0] = True
    return mask


# ---- attention


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_attention_is_softmax_of_the_scaled_products(qkv_bias):
    module, x = attention(qkv_bias=qkv_bias), torch.randn(B, N, D)
    torch.testing.assert_close(module(x), explicit(module, x))


def test_a_mask_and_causal_hold_together():
    module, x, mask = attention(), torch.randn(B, N, D), some_mask(N, N)
    both = mask & torch.ones(N, N).tril().bool()
    torch.testing.assert_close(module(x, mask=mask, causal=True), explicit(module, x, both))


# ---- blocks, against the two layouts written out


def norm(x, module):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / (variance + 1e-6).sqrt() * module.weight + module.bias


def mlp(x, module):
    hidden = x @ module.fc1.weight.T + module.fc1.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))  # the exact GELU
    return hidden @ module.fc2.weight.T + module.fc2.bias


def pre_norm(block, x, allowed, context, context_allowed):
    x = x + explicit(block.mixer, norm(x, block.norm1), allowed)
    if block.cross is not None:
        x = x + explicit(block.cross, norm(x, block.norm_cross), context_allowed, context)
    return x + mlp(norm(x, block.norm2), block.mlp)


def post_norm(block, x, allowed, context, context_allowed):
    x = norm(x + explicit(block.mixer, x, allowed), block.norm1)
    if block.cross is not None:
        x = norm(x + explicit(block.cross, x, context_allowed, context), block.norm_cross)
    return norm(x + mlp(x, block.mlp), block.norm2)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("reference", [pre_norm, post_norm])
def test_every_layer_and_the_whole_equal_the_layout_written_out(reference, cross):
    first = reference is pre_norm
    model = encoder(cross=cross, norm_first=first, norm_last=first)
    x, context = torch.randn(B, N, D), torch.randn(B, M, D)
    mask, context_mask = some_mask(N, N), some_mask(N, M)
    given = {"mask": mask, "context": context, "context_mask": context_mask} if cross else {"mask": mask}
    whole, at = model(x, **given), x
    for block in model.blocks:
        expected = reference(block, at, mask, context, context_mask)
        torch.testing.assert_close(block(at, **given), expected)
        at = expected
    torch.testing.assert_close(whole, norm(at, model.norm) if first else at, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunks", [(1,) * N, (3, 1, 1, 2)], ids=["one by one", "in chunks"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_decoder_says_the_same_with_a_cache_for_batches_beams_and_padded_contexts(beams, chunks):
    model, x, context = encoder(cross=True), torch.randn(B * beams, N, D), torch.randn(B, M, D)
    context_mask = (torch.arange(M) < torch.tensor([[M], [2]]))[:, None, None]
    repeated, mask = (given.repeat_interleave(beams, dim=0) for given in (context, context_mask))
    expected = model(x, causal=True, context=repeated, context_mask=mask)
    caches, found = [KeyValueCache(N) for _ in model.blocks], []
    for part in x.split(chunks, dim=1):
        found.append(model(part, causal=True, context=context, context_mask=context_mask, caches=caches))
        order = torch.randperm(beams)
        rows = (torch.arange(B)[:, None] * beams + order).flatten()
        for cache in caches:
            cache.reorder(rows)
            cache.reorder(rows.argsort())
        context.fill_(torch.nan)  # what is cached is not made again  # only the first part may read it
    torch.testing.assert_close(torch.cat(found, dim=1), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=f"{N + 1} tokens in a cache for {N}"):
        model(x[:, :1], causal=True, context=context, caches=caches)


def test_dropped_paths_grow_with_depth_and_are_kept_in_eval():
    model, x = encoder(depth=5, drop_path=0.4), torch.randn(B, N, D)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    plain = encoder(depth=5)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(x), plain(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_dropout_is_after_both_dense_layers_of_the_mlp_and_the_projection():
    torch.manual_seed(3)
    always = 1 - 1e-7
    assert feed_forward(D, HIDDEN, always).train()(torch.randn(B, N, D)).abs().max() == 0
    assert attention(dropout=always).train()(torch.randn(B, N, D)).abs().max() == 0


@pytest.mark.parametrize("name", ["gpt_nano", "bert_nano", "vit_nano", "transformer_nano"])
@pytest.mark.parametrize("mlp", ["relu", "swiglu"])
def test_berts_and_gpts_dropout_is_on_the_mlps_output_and_not_on_its_hidden_layer(name, mlp):
    part = next(m for m in build_model(name, dropout=0.5, mlp=mlp).modules() if isinstance(m, Mlp))
    on_hidden = name in ("vit_nano", "transformer_nano")
    x = torch.randn(50, part.drop2(part.fc2.weight).shape[0])
    kept = part.eval()(x)
    dropped = part.train()(x)
    same = (dropped == 0) | torch.isclose(dropped, 2 * kept, rtol=1e-4, atol=1e-6)
    assert same.all() != on_hidden
    assert 0.4 < (dropped == 0).float().mean() < 0.6


@pytest.mark.parametrize("fused", [True, False])
def test_attention_dropout_keeps_a_share_of_the_weights_and_their_expectation(fused):
    torch.manual_seed(0)
    q, k = torch.randn(4000, 1, 3, 5), torch.randn(1, 1, 7, 5).expand(4000, -1, -1, -1)
    q, one = q[:1].expand(4000, -1, -1, -1), torch.eye(7).expand(4000, 1, 7, 7)  # so that the output is the weights
    causal = torch.ones(3, 7, dtype=torch.bool).tril(4)
    weights = ((q[0, 0] @ k[0, 0].T) / 5**0.5).masked_fill(~causal, -torch.inf).softmax(-1)
    with torch.autocast("cpu", torch.bfloat16, enabled=not fused):  # as matrix products it is computed there
        out = kernels.attention(q, k, one, None, True, 5**-0.5, dropout=0.3)[:, 0].float()
    error = 1e-5 if fused else 0.02
    assert ((out == 0) | torch.isclose(out, weights / 0.7, atol=error)).all()
    assert (out[:, causal] == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    torch.testing.assert_close(out.mean(dim=0), weights, rtol=0, atol=0.02)


def test_attention_dropout_is_for_training_alone():
    model, words = build_model("bert_nano", attention_dropout=0.5), torch.randint(99, (2, 9))
    plain = build_model("bert_nano")
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(words), plain.eval()(words))
    assert not torch.equal(model.train()(words), model(words))
    assert all(block.mixer.attention_dropout == 0.1 for block in bert(99, width=12, depth=2).text.encoder.blocks)
    decoder = build_model("transformer_nano", attention_dropout=0.2).decoder.encoder.blocks[0]
    assert decoder.mixer.attention_dropout == decoder.cross.attention_dropout == 0.2
    for name, options in (("vit_nano", {"mixer": "fourier"}), ("bert_nano", {"mixer": "token_mlp"})):
        with pytest.raises(UserError, match=r"model.attention_dropout=0.1 needs model.mixer=attention"):
            build_model(name, attention_dropout=0.1, positions="none", **options)


# ---- what is injected


@pytest.mark.parametrize("kind", ["none", "causal", "causal and padding", "padding", "bias", "bias and padding"])
def test_attention_trains_in_bfloat16_on_a_cpu_as_in_float32(kind):
    layer, x = Attention(24, 3), torch.randn(2, 7, 24)
    padding = torch.tensor([[True] * 7, [False] * 2 + [True] * 5])[:, None, None]  # causal hides the rest of two rows
    mask = padding if kind.endswith("padding") else None
    bias = torch.randn(1, 3, 7, 7, requires_grad=True)  # learned, as T5's
    if kind.startswith("bias"):
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        mask = mask.expand(2, 1, 7, 7)
    seen = torch.ones(2, 7, dtype=torch.bool)
    seen[1, :2] = kind != "causal and padding"
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = layer(x, mask=mask, causal=kind.startswith("causal"))
        assert out.isfinite().all()
        found = out[seen].float()
        learned = [layer.qkv.weight, *([bias] if kind.startswith("bias") else [])]
        results.append((found, *torch.autograd.grad(found.square().sum(), learned, retain_graph=True)))
    for exact, found in zip(*results, strict=True):
        assert (exact - found).norm() < 0.02 * exact.norm()
        assert not torch.equal(exact, found)
