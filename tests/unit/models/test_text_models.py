"""Language model and BERT: what may look where, caches, generation; the encoder is the ViT's."""

import math

import pytest
import torch

from tests.learning import bert, language_model, randomized
from vitlab.config import load
from vitlab.models import build, build_model
from vitlab.models.decoding import filter_logits, generate
from vitlab.models.text import Classifier

B, N, V, LENGTH = 3, 7, 29, 23
SIZES = {"length": LENGTH, "width": 24, "depth": 2, "heads": 3, "mlp_width": 37}
POSITIONS = ["learned", "sincos", "rotary", "relative", "none"]


def lm(positions="learned", **changes):
    torch.manual_seed(1)
    return randomized(language_model(V, positions=positions, **SIZES | changes), 0.3)


def tokens(rows=B, length=N):
    return torch.randint(V, (rows, length))


@pytest.mark.parametrize("positions", POSITIONS)
def test_heads_of_any_width_are_those_of_the_formula(positions):
    model, words = lm(positions, heads=5, head_width=6, depth=1), tokens()
    mixer = model.text.encoder.blocks[0].mixer
    assert mixer.qkv.weight.shape == (3 * 5 * 6, 24)
    with torch.no_grad():
        decoding = model.decoding()
        decoding(words[:, :4])
        torch.testing.assert_close(decoding(words[:, 4:]), model(words)[:, -1], rtol=1e-4, atol=1e-4)
        x = torch.randn(B, N, 24)
        q, k, v = (mixer.qkv(x)[..., i * 30 : (i + 1) * 30].unflatten(-1, (5, 6)).transpose(1, 2) for i in range(3))
        weights = (q @ k.mT / 6**0.5).softmax(-1)
        torch.testing.assert_close(mixer(x), mixer.proj((weights @ v).transpose(1, 2).flatten(2)), rtol=1e-4, atol=1e-4)


def test_gpt2_and_bert_have_their_published_sizes():
    with torch.device("meta"):
        assert sum(p.numel() for p in language_model(50257).parameters()) == 124_439_808
        models = bert(30522), build_model("bert_large")
    heads = ("transform.", "norm.", "next_sentence.", "bias")
    counts = [sum(p.numel() for n, p in model.named_parameters() if not n.startswith(heads)) for model in models]
    assert counts == [109_482_240, 335_141_888]
    assert [sum(p.numel() for p in model.parameters()) for model in models] == [110_106_428, 336_226_108]


def test_a_nano_model_counts_with_the_words_of_its_tasks_data():
    assert (build_model("gpt_nano").vocabulary, build_model("gpt_nano").sequence_length) == (4096, 128)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("chunks", [(7,), (1,) * 7, (3, 1, 3), (2, 5)])
def test_a_cache_changes_no_logit(positions, chunks):
    model, words = lm(positions), tokens()
    caches, found, first = model.new_caches(), [], 0
    for size in chunks:
        found.append(model(words[:, first : first + size], caches=caches))
        first += size
    torch.testing.assert_close(torch.cat(found, dim=1), model(words), rtol=1e-5, atol=1e-5)


def test_a_cache_heeds_padding():
    model, words = lm(), tokens()
    mask = torch.arange(N) >= torch.tensor([[0], [2], [3]])  # to the left
    caches = model.new_caches()
    first = model(words[:, :4], mask[:, :4], caches=caches)
    second = model(words[:, 4:], mask, caches=caches)
    expected = model(words, mask)
    torch.testing.assert_close(torch.cat([first, second], dim=1)[mask], expected[mask], rtol=1e-5, atol=1e-5)


def test_generation_stops_at_the_end_token_and_at_the_models_length():
    model, prompt = lm(), tokens()
    whole = generate(model.decoding(), prompt, 100)
    assert [len(row) for row in whole] == [LENGTH - N + 1] * B
    end = int(whole[0][2])
    cut = generate(model.decoding(), prompt, 100, end=end)
    for row, full in zip(cut, whole, strict=True):
        first = (full == end).nonzero()
        assert torch.equal(row, full[: int(first[0]) + 1] if len(first) else full)


def test_top_k_and_top_p_keep_what_they_say():
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.7, 0.1, 0.1, 0.1]]).log()

    def kept(**options):
        return [row.nonzero().flatten().tolist() for row in filter_logits(logits, **options).isfinite()]

    assert kept(top_k=2)[0] == [1, 2]
    assert kept(top_p=0.69) == [[1, 2], [0]]
    assert kept(top_p=0.71)[0] == [1, 2, 3]
    assert kept(top_p=0.0) == [[1], [0]], "the likeliest always stays"
    assert kept(top_k=3, top_p=0.5)[0] == [1, 2]  # 0.4 / 0.9 of the three is below a half


def test_sampling_follows_the_probabilities():
    model, prompt = lm(), tokens(1, 4).expand(1500, 4)
    shares = model(prompt[:1])[0, -1].div(2.0).softmax(dim=-1)
    drawn = torch.stack(
        generate(model.decoding(), prompt, 1, temperature=2.0, generator=torch.Generator().manual_seed(0))
    )[:, 0]
    found = drawn.bincount(minlength=V) / 1500
    assert (found - shares).abs().max() < 4 * math.sqrt(0.25 / 1500)


def lstm(causal=True, head="next_token"):
    config = load("model", {"name": "lstm_nano", "width": 24, "causal": causal})
    return build(config, vocabulary=V, length=LENGTH, head=head).eval()


def test_an_lstm_goes_on_from_its_state():
    model, words = lstm(), tokens()
    caches = model.new_caches()
    parts = [model(words[:, first : first + 3], caches=caches) for first in (0, 3, 6)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(words), rtol=1e-5, atol=1e-5)


def test_a_classifier_reads_the_mean_of_its_tokens_without_padding():
    model = Classifier(bert(V, **SIZES).text, 5, mean=True).eval()
    words, mask = tokens(), torch.arange(N) < torch.tensor([[7], [3], [1]])
    hidden = model.text(words, mask)
    expected = torch.stack([row[:length].mean(0) for row, length in zip(hidden, (7, 3, 1), strict=True)])
    torch.testing.assert_close(model(words, mask), model.head(expected), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model(words), model.head(model.text(words).mean(1)), rtol=1e-5, atol=1e-6)


def test_gpt2_begins_with_smaller_weights_into_the_residual_stream():
    options = {"vocabulary": 1009, "width": 96, "depth": 7, "heads": 3, "dropout": 0.0}
    for name, scale in (("gpt2", 14**-0.5), ("gpt_nano", 1.0)):
        found = {"into": [], "other": []}
        for key, value in build_model(name, **options).named_parameters():
            if value.dim() > 1:
                into = key.endswith((".mixer.proj.weight", ".mlp.fc2.weight"))
                found["into" if into else "other"].append(value.std().item())
        assert len(found["into"]) == 14
        assert found["into"] == pytest.approx([0.02 * scale] * 14, rel=0.05), name
        assert found["other"] == pytest.approx([0.02] * len(found["other"]), rel=0.05), name
