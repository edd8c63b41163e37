"""Masking of BERT and SpanBERT: shares, fates and lengths of spans against the known probabilities."""

import pytest
import torch

from tests.learning import generator
from vitlab.data.masking import choose_spans, choose_tokens, corrupt

PAD, CLS, SEP, MASK = 0, 2, 3, 7
SPECIAL = (PAD, CLS, SEP, MASK)
VOCABULARY = 23
ROWS, LENGTH = 501, 512


def text(rows=ROWS, length=LENGTH, second=211, padding=31):
    """Tokens (rows, length), [CLS] first sentence [SEP] second sentence [SEP] padding; and which are maskable."""
    ordinary = torch.tensor([token for token in range(VOCABULARY) if token not in SPECIAL])
    tokens = ordinary[torch.randint(len(ordinary), (rows, length), generator=generator(1))]
    tokens[:, 0], tokens[:, second - 1], tokens[:, length - padding - 1 :] = CLS, SEP, PAD
    tokens[:, length - padding - 1] = SEP
    return tokens, ~torch.isin(tokens, torch.tensor(SPECIAL))


def chi_square(counts, probabilities):
    expected = probabilities * counts.sum()
    return ((counts - expected) ** 2 / expected).sum().item()


def geometric(longest=10, p=0.2):
    weights = (1 - p) ** torch.arange(longest, dtype=torch.float64)
    return weights / weights.sum()


def even(n):
    return torch.full((n,), 1 / n, dtype=torch.float64)


def lengths_of(spans):
    """The length of every span of a batch: the index of its last token."""
    return spans.index[spans.chosen & (spans.right == torch.arange(spans.chosen.shape[1]) + 1)]


def corrupted(tokens, chosen, seed=0, **changed):
    options = {"mask_token": MASK, "vocabulary": VOCABULARY, "special": SPECIAL, "generator": generator(seed)}
    return corrupt(tokens, chosen, **{**options, **changed})


@pytest.fixture(scope="module")
def spans():
    return choose_spans(text()[1], 0.15, generator(5))


def test_15_percent_of_each_row_up_or_down_and_no_special_token():
    _, maskable = text()
    chosen = choose_tokens(maskable, 0.15, generator())
    assert not (chosen & ~maskable).any()
    each = int(maskable[0].sum())
    counts = chosen.sum(1)
    assert set(counts.tolist()) == {int(0.15 * each), int(0.15 * each) + 1}
    assert chosen.sum().item() / maskable.sum().item() == pytest.approx(0.15, abs=0.0002)


@pytest.mark.parametrize("tokens", [1, 3, 7])
def test_the_share_is_right_in_expectation_for_the_shortest_rows(tokens):
    maskable = torch.arange(11).expand(40009, 11) < tokens
    found = choose_tokens(maskable, 0.15, generator()).sum() / maskable.sum()
    assert found.item() == pytest.approx(0.15, abs=0.004)
    found = choose_spans(maskable.roll(1, 1), 0.15, generator()).chosen.sum() / maskable.sum()
    assert found.item() == pytest.approx(0.15, abs=0.004)


def test_80_10_10_and_the_others_as_they_were():
    _, chosen = text()
    tokens = torch.full(chosen.shape, CLS)  # none of those drawn, so what was kept can be told from what was replaced
    before = tokens.clone()
    seen = corrupted(tokens, chosen)
    assert torch.equal(tokens, before)
    assert (seen[~chosen] == CLS).all()
    counts = seen[chosen].bincount(minlength=VOCABULARY).double()
    shares = counts / counts.sum()
    assert shares[MASK].item() == pytest.approx(0.8, abs=0.005)
    assert shares[CLS].item() == pytest.approx(0.1, abs=0.005)
    assert shares[PAD] == shares[SEP] == 0
    drawn = counts[[token for token in range(VOCABULARY) if token not in SPECIAL]]
    assert (drawn.sum() / counts.sum()).item() == pytest.approx(0.1, abs=0.005)
    assert chi_square(drawn, even(19)) < 42.4, "the 0.999 quantile of chi square with 18 degrees of freedom"


def test_one_fate_for_all_tokens_of_a_span(spans):
    seen = corrupted(torch.full(spans.chosen.shape, CLS), spans.chosen, groups=spans.groups)
    assert (seen[~spans.chosen] == CLS).all()
    fate = torch.full_like(seen, 2).masked_fill(seen == MASK, 0).masked_fill(seen == CLS, 1)
    inside = spans.chosen & (spans.index > 1)
    assert torch.equal(fate[inside], fate.roll(1, 1)[inside])
    counts = fate[spans.index == 1].bincount(minlength=3)
    shares = (counts / counts.sum()).tolist()
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    replaced = inside & (fate == 2) & (spans.index == 2)
    same = (seen == seen.roll(1, 1))[replaced].double().mean().item()
    assert same == pytest.approx(1 / 19, abs=0.02), "each token of a span is drawn by itself"


def test_lengths_are_geometric_and_the_share_is_15_percent():
    maskable = text(8009, 64, 23, 1)[1]
    found = choose_spans(maskable, 0.15, generator(3))
    lengths = lengths_of(found)
    assert lengths.double().mean().item() == pytest.approx(3.8, abs=0.05)
    assert chi_square(lengths.bincount(minlength=11)[1:].double(), geometric()) < 27.9
    assert found.chosen.sum().item() / maskable.sum().item() == pytest.approx(0.15, abs=0.001)
    assert found.chosen.sum(1).max() <= 0.15 * maskable[0].sum() + 10
    found = choose_spans(maskable, 0.15, generator(4), longest=3)
    assert chi_square(lengths_of(found).bincount(minlength=4)[1:].double(), geometric(3)) < 13.8


def by_hand(chosen):
    """groups, left, right and index of one row of booleans, by going through it."""
    rows, group, start = [], -1, None
    for place, inside in enumerate(chosen):
        if not inside:
            start = None
            rows.append((-1, 0, 0, 0))
            continue
        if start is None:
            start, group = place, group + 1
        right = next(k for k in range(place, len(chosen)) if not chosen[k])
        rows.append((group, start - 1, right, place - start + 1))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("share", [0.15, 0.5, 1])
def test_spans_lie_in_maskable_tokens_and_their_boundaries_are_seen(share):
    _, maskable = text(29, 67, 31, 5)
    maskable[7] = False
    maskable[8, 3:] = False
    maskable[9, 1::2] = False
    found = choose_spans(maskable, share, generator())
    chosen = found.chosen
    assert chosen.any()
    assert not (chosen & ~maskable).any()
    assert not chosen[7].any()
    for row in range(29):
        expected = by_hand(chosen[row].tolist())
        assert [t[row].tolist() for t in (found.groups, found.left, found.right, found.index)] == expected
    assert (found.left <= found.right).all()
    assert all(tensor.dtype == torch.int64 for tensor in found[1:])
    assert not chosen.gather(1, found.left)[chosen].any()
    assert not chosen.gather(1, found.right)[chosen].any()
    assert found.index.max() <= 10
    if share == 1:
        beside = torch.nn.functional.pad(chosen, (1, 1))
        assert (chosen | beside[:, :-2] | beside[:, 2:])[maskable].all(), "no room is left"


def test_all_is_a_function_of_the_generator_alone():
    tokens, maskable = text(17, 101, 47, 3)

    def draw(seed):
        source = generator(seed)
        chosen, found = choose_tokens(maskable, 0.15, source), choose_spans(maskable, 0.15, source)
        return torch.stack([chosen, *found, corrupted(tokens, chosen, generator=source)])

    state = torch.get_rng_state()
    first = draw(1)
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(first, draw(1))
    assert all((a != b).any() for a, b in zip(first, draw(2), strict=True))
