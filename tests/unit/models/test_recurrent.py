"""The recurrent encoder-decoder: padding, decoding token by token, alignment, what its options change."""

import re

import pytest
import torch
from timm.models import group_parameters
from torch import nn

from vitlab.models import build_model
from vitlab.models.decoding.generate import generate

V, S, N = 29, 7, 5
SIZES = {"width": 12, "vocabulary": V, "length": 11}
VARIANTS = {
    "GRU, additive": {"cell": "gru", "score": "additive"},
    "LSTM, general, 2 layers": {"cell": "lstm", "score": "general", "depth": 2},
    "GRU, cosine, fed": {"cell": "gru", "score": "cosine", "input_feeding": True},
    "LSTM, scaled dot, fed, 2 layers": {"cell": "lstm", "score": "scaled_dot", "input_feeding": True, "depth": 2},
    "GRU, dot, other embeddings": {"cell": "gru", "score": "dot", "share_embeddings": "none", "embedding": 10},
}
EACH = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def build(**options):
    torch.manual_seed(0)
    model = build_model("gru_seq2seq_nano", **SIZES, **options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def pairs():
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(V, (3, n), generator=generator) for n in (S, N))
    mask = torch.arange(S) < torch.tensor([[7], [4], [1]])
    return source, target, mask


@EACH
def test_padding_never_changes_what_it_says(options):
    model, (source, target, mask) = build(**options), pairs()
    logits = model(source, target, mask)
    torch.testing.assert_close(model(source.where(mask, 3), target, mask), logits)
    for row, length in enumerate(mask.sum(1)):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(alone[0], logits[row], rtol=1e-4, atol=1e-4)


@EACH
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


def test_a_token_sees_no_later_one_and_with_input_feeding_what_the_one_before_looked_at():
    for fed in (False, True):
        model, (source, target, _) = build(input_feeding=fed), pairs()
        changed = target.clone()
        changed[:, 3] = (changed[:, 3] + 1) % V
        first, second = model(source, target), model(source, changed)
        torch.testing.assert_close(first[:, :3], second[:, :3])
        assert (first[:, 3:] - second[:, 3:]).abs().amax(dim=(0, 2)).min() > 1e-3
        with torch.no_grad():  # of a combining layer that is constant, later tokens depend on its output only if fed
            state = model.decoder.begin(model.encode(source))
            before = state.layers.states.clone()
            vectors, _ = model.decoder(target[:, :1], state)
        assert (state.fed is not None) == fed
        if fed:
            torch.testing.assert_close(state.fed, vectors)
        assert not torch.equal(state.layers.states, before)


def test_it_learns_to_reverse_and_looks_back_to_front():
    torch.manual_seed(0)
    model = build_model("gru_seq2seq_nano", width=24, vocabulary=8, length=8, score="dot")
    optimizer, end = torch.optim.Adam(model.parameters(), 2e-2), 1

    def draw(count):
        source = torch.randint(2, 8, (count, 4))
        return source, torch.cat([torch.zeros(count, 1, dtype=torch.int64), source.flip(1)], dim=1)

    for _ in range(150):
        source, target = draw(32)
        wanted = torch.cat([target[:, 1:], torch.full((32, 1), end)], dim=1)
        loss = nn.functional.cross_entropy(model(source, target).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, target = draw(50)
    model.eval()
    written = generate(model.decoding(source), target[:, :1], 8, end=end)
    right = [row.tolist() == [*wanted[1:].tolist(), end] for row, wanted in zip(written, target, strict=True)]
    assert sum(right) >= 45
    with torch.no_grad():
        places = model.alignment(source, target)[:, :4].argmax(dim=-1)
    assert (places == torch.arange(3, -1, -1)).float().mean() > 0.8


def test_its_layers_follow_each_other_from_the_embeddings_to_the_output():
    model = build(depth=2, cell="lstm", share_embeddings="none")
    places = group_parameters(model, model.group_matcher(), reverse=True)
    found = {}
    for name, place in places.items():
        layer = re.match(r"(text|decoder)\.(?:embed|\w+\.\w+_l(\d))", name)
        found.setdefault(place, set()).add(layer[1] + (layer[2] or "embed") if layer else name.split(".")[0])
    assert found == {
        0: {"textembed", "decoderembed"},
        1: {"text0"},
        2: {"text1"},
        3: {"decoder0"},
        4: {"decoder1", "decoder"},
        5: {"output"},
    }
