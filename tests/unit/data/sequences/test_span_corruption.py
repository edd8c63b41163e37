"""T5's span corruption: the paper's figure, the lengths of its code, and the probabilities of the spans."""

import pytest
import torch

from tests.learning import generator
from vitlab.data.masking import choose_corrupted, corrupt_spans, plan_lengths
from vitlab.data.sequences import IGNORE_INDEX

X, Y, Z, END = 91, 92, 93, 1


def test_figure_2_of_the_paper():
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    names = {"<X>": X, "<Y>": Y, "<Z>": Z, "</s>": END} | {word: 10 + n for n, word in enumerate(words)}
    text = {number: name for name, number in names.items()}
    tokens = torch.tensor([[names[word] for word in words]])
    corrupted = torch.tensor([[word in ("for", "inviting", "last") for word in words]])
    inputs, target = corrupt_spans(tokens, corrupted, (X, Y, Z), END, 13, 11)
    shown = [" ".join(text[token] for token in row[0].tolist() if token != IGNORE_INDEX) for row in (inputs, target)]
    assert shown == ["Thank you <X> me to your party <Y> week . </s>", "<X> for inviting <Y> last <Z> </s>"]
    assert (inputs.shape, target.shape) == ((1, 13), (1, 11))


def test_lengths_of_the_paper():
    # its code makes inputs of 512 of 568 tokens, and targets of 114, which have no last sentinel
    assert plan_lengths(512, 0.15, 3.0) == (568, 512, 115, 28)


@pytest.mark.parametrize("source", [4, 5, 17, 127])
def test_whole_sequences_fill_the_input_and_nothing_is_lost(source):
    plan = plan_lengths(source, 0.15, 3.0)
    lengths = torch.tensor([plan.tokens] * 5 + list(range(1, plan.tokens)))
    tokens = torch.arange(plan.tokens).expand(len(lengths), -1) + 1000
    tokens = tokens.where(torch.arange(plan.tokens) < lengths[:, None], IGNORE_INDEX)
    corrupted = choose_corrupted(lengths, plan.tokens, 0.15, 3.0, generator())
    sentinels = torch.arange(plan.spans + 1) + 100
    inputs, targets = corrupt_spans(tokens, corrupted, sentinels.tolist(), END, plan.source, plan.target)
    assert (inputs[:5] != IGNORE_INDEX).all()
    assert (targets[:5] != IGNORE_INDEX).all()
    for row, read, said in zip(tokens, inputs.tolist(), targets.tolist(), strict=True):
        spans, name = {}, None
        for token in said[: said.index(END)]:
            name = token if token < 1000 else name
            spans.setdefault(name, []).extend([token] * (token >= 1000))
        assert spans.pop(max(spans)) == [], "the last sentinel has nothing behind it"
        rebuilt = [token for place in read[: read.index(END)] for token in spans.get(place, [place])]
        assert rebuilt == row[row != IGNORE_INDEX].tolist()


def test_shares_and_lengths_of_spans():
    rows, length = 2003, 512
    corrupted = choose_corrupted(torch.full((rows,), length), length, 0.15, 3.0, generator(5))
    assert (corrupted.sum(1) == 77).all()
    first = corrupted & ~torch.nn.functional.pad(corrupted, (1, 0))[:, :-1]
    assert (first.sum(1) == 26).all(), "77 / 3 spans: a mean length of 3"
    at_edges = corrupted[:, [0, -1]].double().mean().item()
    assert at_edges == pytest.approx(26 / (512 - 77 + 1), abs=0.01), "each gap is as likely to have a span"
