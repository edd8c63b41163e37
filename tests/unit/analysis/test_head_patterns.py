"""Patterns of attention heads: planted ones, uniform attention, and a count by loops."""

import pytest
import torch

from vitlab.analysis.heads import PATTERNS, HeadPatterns, head_label, pattern_targets

B, HEADS, N = 2, 3, 13
CLS, SEP, PAD = 101, 102, 0
WORDS = torch.tensor(
    [[CLS, 7, 5, 7, 9, 5, SEP, 8, 9, 6, 8, SEP, PAD], [CLS, 3, 4, 3, SEP, 4, 2, 3, 1, SEP, PAD, PAD, PAD]]
)
SEGMENTS = torch.tensor([[0] * 7 + [1] * 6, [0] * 5 + [1] * 8])
MASK = WORDS != PAD
SPECIAL = (WORDS == CLS) | (WORDS == SEP)


def targets(causal=False, segments=SEGMENTS):
    return pattern_targets(WORDS, MASK, SPECIAL, segments, causal)


def allowed(causal=False):
    found = MASK[:, :, None] & MASK[:, None, :]
    return found.tril() if causal else found


def uniform(causal=False):
    keys = allowed(causal).double()
    return keys / keys.sum(-1, keepdim=True).clamp(min=1)


def planted(pattern, causal=False):
    """Attention (B, N, N) spread over the pattern's keys, over all keys where it has none."""
    keys = targets(causal).keys[list(PATTERNS).index(pattern)].double()
    return torch.where(keys.any(-1, keepdim=True), keys / keys.sum(-1, keepdim=True).clamp(min=1), uniform(causal))


def rows(*heads, causal=False, segments=SEGMENTS):
    found = HeadPatterns()
    found.add(0, torch.stack(heads, dim=1), targets(causal, segments))
    return found.rows()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_planted_pattern_gives_the_label(pattern, causal):
    if causal and pattern == "next token":
        return
    for strength in (1.0, 0.8):
        (row,) = rows(strength * planted(pattern, causal) + (1 - strength) * uniform(causal), causal=causal)
        assert row["label"] == pattern
        assert row["score"] == row["scores"][pattern] == pytest.approx(strength, abs=1e-4)
        assert all(row["mass"][name] >= score for name, score in row["scores"].items() if score is not None)
    assert row["mass"][pattern] > strength


def test_the_label_is_the_narrow_pattern_that_leads():
    scores = {"next token": 0.6, "previous token": 0.1, "same token": None, "same sentence": 0.9, "null": 0.0}
    assert head_label(scores) == ("next token", 0.6)
    assert head_label(scores | {"next token": 0.4}) == ("same sentence", 0.9)
    assert head_label(scores | {"next token": 0.4, "same sentence": 0.45}) == ("none", 0.45)
    assert head_label(scores | {"next token": 0.4, "null": 0.3, "same sentence": 0.45}) == ("mixed", 0.45)
    assert head_label(dict.fromkeys(PATTERNS)) == ("none", 0.0)


def test_a_pattern_that_no_query_can_follow_has_no_score():
    (row,) = rows(planted("previous token", causal=True), causal=True)
    assert row["scores"]["next token"] is row["mass"]["next token"] is None
    (row,) = rows(planted("same sentence"), segments=None)
    assert row["scores"]["same sentence"] is None
    words = torch.arange(1, 8)[None]
    found = HeadPatterns()
    everything = torch.ones_like(words, dtype=torch.bool)
    found.add(0, torch.eye(7)[None, None], pattern_targets(words, everything, ~everything))
    assert [name for name, score in found.rows()[0]["scores"].items() if score is None] == (
        ["same token", "same sentence", "null"]
    )
    assert (found.rows()[0]["label"], found.rows()[0]["score"]) == ("none", 0.0)


def by_loops(weights, causal, pattern, segments):
    """Sequence by sequence, query by query, key by key: mass, mass under uniform attention, queries; for each head."""
    mass, chance, count = [0.0] * HEADS, 0.0, 0
    for b in range(B):
        real = [i for i in range(N) if MASK[b, i]]
        word, segment = (lambda i, b=b: not SPECIAL[b, i]), (lambda i, b=b: segments[b, i].item())
        for q in real:
            keys = [k for k in real if not causal or k <= q]
            others = [k for k in keys if k != q and word(k) and word(q)]
            wanted = {
                "next token": [k for k in keys if k == q + 1],
                "previous token": [k for k in keys if k == q - 1],
                "same token": [k for k in others if WORDS[b, k] == WORDS[b, q]],
                "same sentence": [k for k in others if segment(k) == segment(q)],
                "null": [k for k in keys if (k == real[0] if causal else SPECIAL[b, k])],
            }[pattern]
            if pattern == "same sentence" and len(wanted) == len(others):
                continue
            if not 0 < len(wanted) < len(keys):
                continue
            count += 1
            chance += len(wanted) / len(keys)
            for head in range(HEADS):
                mass[head] += sum(weights[b, head, q, k].item() for k in wanted)
    return mass, chance, count


@pytest.mark.parametrize("causal", [False, True])
def test_random_attention_is_counted_as_by_loops(causal):
    torch.manual_seed(0)
    scores = torch.randn(B, HEADS, N, N, dtype=torch.float64) * 2
    weights = scores.masked_fill(~allowed(causal)[:, None], float("-inf")).softmax(-1)  # NaN in rows of padding
    assert weights.isnan().any()
    found = HeadPatterns()
    found.add(4, weights, targets(causal))
    for pattern in PATTERNS:
        masses, chance, count = by_loops(weights, causal, pattern, SEGMENTS)
        assert (count == 0) == (causal and pattern == "next token")
        for row, mass in zip(found.rows(), masses, strict=True):
            assert row["layer"] == 5
            if count:
                expected = max(0.0, (mass - chance) / (count - chance))
                assert row["scores"][pattern] == pytest.approx(expected, abs=2e-5)
                assert row["mass"][pattern] == pytest.approx(mass / count, abs=2e-5)


def test_batches_add_up():
    torch.manual_seed(0)
    weights = torch.rand(B, HEADS, N, N)
    whole, parts = HeadPatterns(), HeadPatterns()
    whole.add(1, weights, targets())
    for i in range(B):
        one = [x[i : i + 1] for x in (WORDS, MASK, SPECIAL, SEGMENTS)]
        parts.add(1, weights[i : i + 1], pattern_targets(*one))
    assert parts.rows() == whole.rows()
