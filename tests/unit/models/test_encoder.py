"""The encoder: dropped paths, dropout; tests/parity compares it with other libraries."""

import pytest
import torch

from tests.learning import bert, randomized
from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.models.encoder import TransformerEncoder, feed_forward
from vitlab.models.layers import Mlp
from vitlab.models.mixers import attention as kernels
from vitlab.models.mixers.attention import Attention

# all different primes but the model's width, which is heads times head width
B, N, H, K, HIDDEN = 2, 7, 3, 11, 17
D = H * K


def encoder(depth, **options):
    return randomized(
        TransformerEncoder(
            D,
            depth,
            mixer=lambda: Attention(D, H),
            mlp=lambda: feed_forward(D, HIDDEN),
            **options,
        )
    )


def test_dropped_paths_grow_with_depth_and_are_kept_in_eval():
    model, x = encoder(depth=5, drop_path=0.4), torch.randn(B, N, D)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    plain = encoder(depth=5)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(x), plain(x))
    model.train()
    assert not torch.equal(model(x), model(x))


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
        with pytest.raises(UserError, match=r"model.attention_dropout=0.1: needs model.mixer=attention"):
            build_model(name, attention_dropout=0.1, positions="none", **options)


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
