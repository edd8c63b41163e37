"""The recurrent encoder-decoder: padding, decoding token by token, alignment and its scores, what options change."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from tests.learning import randomized
from tests.seeming_gpu import seeming_gpu
from vitlab.analysis.alignment import applies
from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.models.recurrent import Score

V, S, N = 29, 7, 5
SIZES = {"width": 12, "vocabulary": V, "length": 11}
VARIANTS = {
    "GRU, additive": {"cell": "gru", "score": "additive"},
    "LSTM, general, 2 layers": {"cell": "lstm", "score": "general", "depth": 2},
    "GRU, cosine, fed": {"cell": "gru", "score": "cosine", "input_feeding": True},
    "LSTM, scaled dot, fed, 2 layers": {"cell": "lstm", "score": "scaled_dot", "input_feeding": True, "depth": 2},
    "GRU, dot, other embeddings": {"cell": "gru", "score": "dot", "share_embeddings": "none", "embedding": 10},
    "RNN, additive, before, 2 layers": {"cell": "rnn", "score": "additive", "attend": "before", "depth": 2},
    "LSTM, dot, before, other embeddings": {
        "cell": "lstm", "score": "dot", "attend": "before", "share_embeddings": "none", "embedding": 10,
    },
}  # fmt: skip
WITHOUT = {"GRU, no attention": {"score": "none"}, "LSTM, no attention": {"cell": "lstm", "score": "none", "depth": 2}}
EACH = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
ALL = pytest.mark.parametrize("options", [*VARIANTS.values(), *WITHOUT.values()], ids=[*VARIANTS, *WITHOUT])


def build(**options):
    torch.manual_seed(0)
    return randomized(build_model("gru_seq2seq_nano", **SIZES, **options), 0.5)


def pairs():
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(V, (3, n), generator=generator) for n in (S, N))
    mask = torch.arange(S) < torch.tensor([[7], [4], [1]])
    return source, target, mask


@ALL
def test_padding_never_changes_what_it_says(options):
    model, (source, target, mask) = build(**options), pairs()
    logits = model(source, target, mask)
    torch.testing.assert_close(model(source.where(mask, 3), target, mask), logits)
    for row, length in enumerate(mask.sum(1)):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(alone[0], logits[row], rtol=1e-4, atol=1e-4)


@ALL
def test_token_by_token_in_another_order_of_rows_it_says_the_same(options):
    model, (source, target, mask) = build(**options), pairs()
    logits, rows = model(source, target, mask), torch.tensor([[0, 0], [2, 2]])
    with torch.no_grad():
        decoding = model.decoding(source, mask)
        torch.testing.assert_close(decoding(target[:, :2]), logits[:, 1], rtol=1e-4, atol=1e-4)
        decoding.reorder(rows)
        order = rows.flatten()
        for place in range(2, N):
            found = decoding(target[order, place : place + 1])
            torch.testing.assert_close(found, logits[order, place], rtol=1e-4, atol=1e-4)
    assert decoding.room == model.target_length - N


@EACH
def test_the_alignment_is_attention_over_the_tokens_of_the_source(options):
    model, (source, target, mask) = build(**options), pairs()
    weights = model.alignment(source, target, mask)
    assert weights.shape == (3, N, S)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, N))
    assert not weights.masked_select(~mask[:, None].expand_as(weights)).any()
    # what it gives is what the logits come from: other states at the tokens that it looks at change them
    assert (model.alignment(source.roll(1, dims=1), target) - weights).abs().max() > 0.01


def gru_step(x, state, layer):
    """Cho et al. (2014) as torch writes it: gates r and z, a candidate n."""
    from_x = (x @ layer.weight_ih_l0.T + layer.bias_ih_l0).chunk(3, -1)
    from_state = (state @ layer.weight_hh_l0.T + layer.bias_hh_l0).chunk(3, -1)
    r, z = ((a + b).sigmoid() for a, b in zip(from_x[:2], from_state[:2], strict=True))
    return (1 - z) * (from_x[2] + r * from_state[2]).tanh() + z * state


def rnn_step(x, state, layer):
    """Elman (1990), with tanh."""
    return (x @ layer.weight_ih_l0.T + layer.bias_ih_l0 + state @ layer.weight_hh_l0.T + layer.bias_hh_l0).tanh()


STEPS = {"gru": gru_step, "rnn": rnn_step}


def first_state(model, context):
    """Of a source without padding: the forward half of its last token, the backward half of its first."""
    half = context.shape[2] // 2
    last = torch.cat([context[:, -1, :half], context[:, 0, half:]], dim=-1)
    return (last @ model.decoder.bridge.weight.T + model.decoder.bridge.bias).tanh()


@pytest.mark.parametrize("cell", STEPS)
def test_attend_before_is_bahdanaus_decoder(cell):
    """Section 3.1 and appendix A: e = v tanh(W s_{t-1} + U h), s_t = f(s_{t-1}, y_{t-1}, c_t)."""
    model, (source, target, _) = build(cell=cell, score="additive", attend="before"), pairs()
    decoder, context = model.decoder, model.features(source)
    score, state, logits = decoder.score, first_state(model, context), []
    for token in target.T:
        y = decoder.embed.tokens.weight[token]
        e = (score.query(state)[:, None] + score.key(context)).tanh() @ score.sum.weight[0]
        c = (e.softmax(-1)[..., None] * context).sum(dim=1)
        state = STEPS[cell](torch.cat([y, c], -1), state, decoder.layers)
        t = torch.cat([state, y, c], -1) @ decoder.combine.weight.T + decoder.combine.bias
        logits.append(torch.maximum(t[:, 0::2], t[:, 1::2]) @ model.output.weight.T)
    torch.testing.assert_close(model(source, target), torch.stack(logits, dim=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cell", STEPS)
def test_without_attention_a_decoder_knows_the_encoders_last_state_alone(cell):
    model, (source, target, _) = build(cell=cell, score="none"), pairs()
    context = model.features(source)
    state, logits = first_state(model, context), []
    for token in target.T:
        state = STEPS[cell](model.decoder.embed.tokens.weight[token], state, model.decoder.layers)
        logits.append(state @ model.output.weight.T)
    torch.testing.assert_close(model(source, target), torch.stack(logits, dim=1), rtol=1e-4, atol=1e-4)
    changed = context.clone()
    changed[:, 1:-1] += 1  # all but what the last states are
    torch.testing.assert_close(model.decode(target, model.decoder.begin(changed)), torch.stack(logits, dim=1))
    assert not applies(model)
    assert applies(build())


def test_a_plain_rnn_of_language_equals_torchs():
    torch.manual_seed(0)
    model = build_model("rnn_nano", vocabulary=V, length=11, width=12).eval()
    layers = nn.RNN(12, 12, 2, batch_first=True, nonlinearity="tanh")
    layers.load_state_dict(model.text.rnn.state_dict())
    words = torch.randint(V, (3, N))
    for mixed in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):  # in float32, too
            found = model.text(words)
        torch.testing.assert_close(found, layers(model.text.embed.tokens(words))[0])
    assert model.part_of("text.rnn.weight_ih_l0") == "rnn"
    with torch.no_grad():
        decoding = model.decoding()
        decoding(words[:, :2])
        torch.testing.assert_close(decoding(words[:, 2:]), model(words)[:, -1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@ALL
def test_recurrent_layers_run_in_float32_under_autocast_of_any_device(options, device, dtype):
    """CUDA's autocast would run them in float16, also where bfloat16 was asked for."""
    seen = []

    def look(module, given):
        if isinstance(module, nn.RNNBase):
            dtypes = {each.dtype for each in tree_leaves(given) if each is not None and each.is_floating_point()}
            seen.append((torch.is_autocast_enabled(device), dtypes))

    with seeming_gpu(), register_module_forward_pre_hook(look):
        model, (source, target, mask) = build(**options).to(device), (each.to(device) for each in pairs())
        try:  # torch.autocast("cuda", ...) asks the device, which is not there
            torch.set_autocast_enabled(device, True)
            torch.set_autocast_dtype(device, dtype)
            model(source, target, mask).sum().backward()
            with torch.no_grad():
                model.decoding(source, mask)(target[:, :1])
        finally:
            torch.set_autocast_enabled(device, False)
            torch.set_autocast_dtype(device, torch.bfloat16 if device == "cpu" else torch.float16)
            torch.clear_autocast_cache()
    assert len(seen) >= 4
    assert all(each == (False, {torch.float32}) for each in seen), seen


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"score": "none", "attend": "before"}, "give model.attend=after model.input_feeding=false"),
        ({"score": "none", "input_feeding": True}, "give model.attend=after model.input_feeding=false"),
        ({"attend": "before", "input_feeding": True}, "model.input_feeding=true is for model.attend=after"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, advice):
    with pytest.raises(UserError, match=re.escape(advice)):
        build(**options)


FORMULAS = {
    "dot": lambda score, q, k: q @ k,
    "scaled_dot": lambda score, q, k: q @ k / math.sqrt(6),
    "general": lambda score, q, k: q @ (score.key.weight @ k),
    "additive": lambda score, q, k: score.sum.weight[0] @ (score.query(q) + score.key.weight @ k).tanh(),
    "cosine": lambda score, q, k: score.log_sharpness.exp() * (q @ k) / (q.norm() * k.norm()),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_each_query_scores_each_key_by_the_formula(name):
    score, queries, context = Score(name, 6), torch.randn(2, 3, 6), torch.randn(2, 4, 6)
    found = score(queries, score.keys(context))
    assert found.shape == (2, 3, 4)
    for b in range(2):
        for n in range(3):
            for m in range(4):
                torch.testing.assert_close(found[b, n, m], FORMULAS[name](score, queries[b, n], context[b, m]))
