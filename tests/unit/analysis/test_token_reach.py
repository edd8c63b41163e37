"""token_reach: by its definition on a model that is known, and no future of a causal one."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vitlab import models
from vitlab.analysis.layers import run_token_reach
from vitlab.config import TrainConfig, compose
from vitlab.models.text import TextModel
from vitlab.tasks.base import TokenInputs

CONFIG = SimpleNamespace(seed=0)


class Looks(nn.Module):
    """The state of each token is the sum of its embedding and twice that of the token `back` places before it."""

    causal = True

    def __init__(self, back):
        super().__init__()
        self.embed, self.back = nn.Embedding(50, 8), back

    def forward(self, tokens, mask=None, segments=None):
        x = self.embed(tokens)
        return x + 2 * nn.functional.pad(x, (0, 0, self.back, 0))[:, : x.shape[1]]


def texts(*lengths, longest=64):
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return TokenInputs.of(torch.randint(0, 50, mask.shape), mask, None, ())


def test_shares_and_reach_of_a_known_model():
    rows = run_token_reach(TextModel(Looks(back=10)), texts(64, 40), CONFIG)
    shares = {row["distance"]: row["value"] for row in rows if row["value"]}
    assert shares == {0: pytest.approx(1 / 3, abs=1e-4), 8: pytest.approx(2 / 3, abs=1e-4)}
    assert rows[0]["reach"] == pytest.approx((2 / 3 * 100) ** 0.5, abs=1e-4)
    assert sum(row["value"] for row in rows) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", ["gpt_nano", "lstm_nano", "rnn_nano", "bert_nano"])
def test_it_looks_into_each_kind_of_model(name):
    task, head = ("masked_lm", "masked") if name == "bert_nano" else ("causal_lm", "next_token")
    config = compose(TrainConfig, [f"task={task}", f"model={name}", "model.width=32"])
    model = models.build(config.model, vocabulary=50, length=64, head=head)
    rows = run_token_reach(model, texts(64, 64), CONFIG)
    assert len(rows) == 16
    assert 0 < rows[0]["reach"] < 64
    far = sum(row["value"] for row in rows if row["distance"] > 36)
    assert (far > 0) == (name in ("gpt_nano", "lstm_nano")), "an RNN forgets, BERT is read in its middle"
