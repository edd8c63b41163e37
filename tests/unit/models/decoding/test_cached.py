"""What a model writes with its caches, against reading all tokens anew at each step."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vitlab.config import load
from vitlab.models import build
from vitlab.models.decoding import beam_search, generate

V, S, LENGTH, END = 13, 7, 11, 9
CHANGES = {
    "pre-norm": {},
    "post-norm, learned": {"norm_first": False, "positions": "learned"},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
}


class Anew:
    """Reads source and target so far at each step."""

    def __init__(self, model, inputs, mask):
        self.model, self.inputs, self.mask, self.room = model, inputs, mask, LENGTH
        self.tokens = torch.zeros(len(inputs), 0, dtype=torch.int64)

    def __call__(self, tokens):
        self.tokens = torch.cat([self.tokens, tokens], dim=1)
        return self.model(self.inputs, self.tokens, self.mask)[:, -1]

    def reorder(self, rows):
        self.inputs, self.mask, self.tokens = (x[rows.flatten()] for x in (self.inputs, self.mask, self.tokens))


@pytest.fixture(params=CHANGES.values(), ids=CHANGES)
def written(request):
    """A model with some sources, padded, as its two decodings."""
    config = load("model", {"name": "transformer_nano", "width": 24, "heads": 3, **request.param})
    config = replace(config, mixer=load("mixer", "attention"))
    model = build(config, vocabulary=V, length=S, target_length=LENGTH, head="seq2seq").eval()
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():  # the source and the tokens before must count
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.1 if "tokens" in name else 0.8)
    inputs, lengths = torch.randint(V, (23, S)), torch.arange(23) % S + 1
    mask = torch.arange(S) < lengths[:, None]
    return {"cached": model.decoding(inputs, mask), "anew": Anew(model, inputs, mask)}


@torch.no_grad()
def test_a_cached_step_gives_the_same_logits(written):
    for tokens in torch.randint(V, (LENGTH, 23, 1)):
        one, other = (decoding(tokens) for decoding in written.values())
        torch.testing.assert_close(one, other, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("beams", [None, 1, 4])
def test_a_batch_is_written_the_same(written, beams):
    given, found = torch.zeros(23, 1, dtype=torch.int64), []
    for decoding in written.values():
        if beams is None:
            rows = generate(decoding, given, LENGTH, end=END)
        else:
            rows = beam_search(decoding, given, LENGTH, beams=beams, end=END, length_penalty=1.0)
        found.append([row.tolist() for row in rows])
    assert found[0] == found[1]
    assert len(set(map(tuple, found[0]))) > 1
