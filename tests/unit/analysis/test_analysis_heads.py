"""Entropy and types of attention heads: values that are known, and those of a model against its own maps."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.learning import bert, language_model, randomized
from vitlab.analysis import capture, heads
from vitlab.analysis.capture import attention_maps, find_attention_layers
from vitlab.analysis.heads import TYPES, query_entropies
from vitlab.models import build_model
from vitlab.tasks.base import TokenInputs

B, HEADS, GRID = 2, 3, (5, 7)
PATCHES = GRID[0] * GRID[1]
SIZE, OPTIONS = (10, 21), SimpleNamespace()


def model(**changes):
    options = {"depth": 2, "width": 33, "heads": HEADS, "patch_size": [2, 3], **changes}
    made = build_model("vit_nano", image_size=SIZE, num_classes=3, **options)
    return randomized(made)


# ---- entropy


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_the_entropy_of_every_head_is_that_of_its_maps(pool, monkeypatch):
    monkeypatch.setattr(capture, "CHUNK", 3)
    made, images = model(pool=pool), torch.randn(7, 3, *SIZE)
    rows = heads.run_attention_entropy(made, images, OPTIONS)["rows"]
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3)]
    expected = torch.cat([query_entropies(weights).mean(dim=(0, 2)) for _, weights in attention_maps(made, images)])
    assert [row["value"] for row in rows] == pytest.approx(expected.tolist(), abs=2e-5)
    assert json.loads(json.dumps(rows)) == rows


LENGTHS = (7, 3, 1, 5, 2)  # of texts in a batch of 7 tokens each


def texts(tokens=17):
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return TokenInputs.of(torch.randint(tokens, mask.shape), mask, None, special=(0,))


def text_model(build, weight):
    """Its queries and keys are its input times `weight`: 0 makes attention uniform, much makes it look at itself.

    Tokens differ by their place alone: the n-th has a component n of its own.
    """
    made = build(17, length=7, width=11, depth=2, heads=1).eval()
    embed = made.text.embed
    nn.init.zeros_(embed.tokens.weight)
    embed.positions.data = torch.eye(7, 11)
    if embed.segments is not None:
        nn.init.zeros_(embed.segments.weight)
    for layer in find_attention_layers(made):
        nn.init.zeros_(layer.proj.weight)
        layer.qkv.weight.data = torch.cat([weight * torch.eye(11)] * 3)
    return made


@pytest.mark.parametrize("build", [bert, language_model])
def test_uniform_attention_of_a_text_has_the_entropy_of_its_own_tokens(build, monkeypatch):
    monkeypatch.setattr(capture, "CHUNK", 2)
    found = heads.run_attention_entropy(text_model(build, 0.0), texts(), OPTIONS)
    seen = {  # of n tokens: all see all n; or the k-th sees k
        bert: [math.log(n) for n in LENGTHS],
        language_model: [math.fsum(math.log(k) for k in range(1, n + 1)) / n for n in LENGTHS],
    }
    expected = math.fsum(seen[build]) / len(LENGTHS)
    assert [row["value"] for row in found["rows"]] == pytest.approx([expected, expected], abs=1e-5)
    sharp = heads.run_attention_entropy(text_model(build, 10.0), texts(), OPTIONS)
    assert sharp["rows"][0]["value"] < 0.01
    for one in (found, sharp):
        assert one["references"] == {"uniform attention": pytest.approx(expected, abs=1e-5)}, "whatever the heads do"


@pytest.mark.parametrize("build", [bert, language_model])
def test_what_is_in_the_padding_and_how_much_of_it_is_no_matter(build):
    made = randomized(build(17, length=11, width=12, depth=2, heads=3))
    given = texts()
    rows = heads.run_attention_entropy(made, given, OPTIONS)["rows"]
    longer = given._replace(
        tokens=torch.cat([torch.where(given.mask, given.tokens, 3), torch.full((5, 4), 9)], dim=1),
        mask=torch.cat([given.mask, torch.zeros(5, 4, dtype=torch.bool)], dim=1),
        special=torch.cat([given.special, torch.zeros(5, 4, dtype=torch.bool)], dim=1),
    )
    again = heads.run_attention_entropy(made, longer, OPTIONS)["rows"]
    assert [row["value"] for row in again] == pytest.approx([row["value"] for row in rows], abs=2e-5)
    alone = [
        heads.run_attention_entropy(made, given.tokens[k : k + 1, :n], OPTIONS)["rows"] for k, n in enumerate(LENGTHS)
    ]
    means = [math.fsum(row["value"] for row in one) / len(LENGTHS) for one in zip(*alone, strict=True)]
    assert [row["value"] for row in rows] == pytest.approx(means, abs=3e-5), "the mean over texts"


# ---- types


def score_types(weights, grid_size, prefix):
    totals = heads.Totals(grid_size, prefix, weights)
    totals.add(weights, slice(0, weights.shape[2]))
    return totals.scores().mean(dim=0)


def planted(looks, prefix):
    """Weights (B, 1, N, N): where `looks(query, key)`, of (row, column) each, all alike; prefix tokens see all."""
    tokens = prefix + PATCHES
    weights = torch.ones(tokens, tokens)
    for query in range(PATCHES):
        for key in range(PATCHES):
            weights[prefix + query, prefix + key] = looks(divmod(query, GRID[1]), divmod(key, GRID[1]))
        weights[prefix + query, :prefix] = 0
    return (weights / weights.sum(dim=-1, keepdim=True)).expand(B, 1, -1, -1)


PLANTED = {
    "row": lambda q, k: q[0] == k[0],
    "column": lambda q, k: q[1] == k[1],
    "local": lambda q, k: q == k,
    "global": lambda q, k: True,
    "sink": lambda q, k: k == (3, 1),
}


@pytest.mark.parametrize("prefix", [0, 1, 4])
@pytest.mark.parametrize("kind", TYPES)
def test_a_planted_head_is_wholly_of_its_type(kind, prefix):
    scores = score_types(planted(PLANTED[kind], prefix), GRID, prefix)
    expected = [[float(name == kind) for name in TYPES]]
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_attention_to_registers_is_a_sink_and_the_rest_keeps_its_type(share):
    weights = planted(PLANTED["row"], 4).clone()
    weights[:, :, 4:] *= 1 - share
    weights[:, :, 4:, 2] = share
    scores = dict(zip(TYPES, score_types(weights, GRID, 4)[0].tolist(), strict=True))
    expected = {"row": 1 - share, "column": 0, "local": 0, "global": 0, "sink": share}
    assert scores == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("queries", [1, 2, 7, 99])
@pytest.mark.parametrize(("pool", "registers"), [("mean", 0), ("token", 0), ("token", 4)])
def test_the_types_of_a_models_heads_are_those_of_its_maps(pool, registers, queries, monkeypatch):
    monkeypatch.setattr(capture, "CHUNK", 3)
    blocks = heads.AttentionCall.blocks
    prefix = registers + (pool == "token")
    size = 3 * HEADS * (PATCHES + prefix) * queries  # of so many queries of 3 images
    monkeypatch.setattr(heads.AttentionCall, "blocks", lambda call: blocks(call, size))
    made, images = model(pool=pool, registers=registers), torch.randn(7, 3, *SIZE)
    rows = heads.run_head_types(made, images, OPTIONS)
    expected = torch.cat([score_types(w, GRID, prefix) for _, w in attention_maps(made, images)])
    assert [[row[name] for name in TYPES] for row in rows] == [pytest.approx(e, abs=2e-5) for e in expected.tolist()]
    for row in rows:
        assert row["value"] == row[row["type"]] == max(row[name] for name in TYPES)
    assert json.loads(json.dumps(rows)) == rows
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3)]
