"""Alignments: what is measured of planted ones, and of models that attend to a source."""

import pytest
import torch

from vitlab.analysis import alignment, capture
from vitlab.analysis.capture import attention_maps
from vitlab.config import load
from vitlab.data.sequences import IGNORE_INDEX
from vitlab.models import build_model
from vitlab.tasks.base import TokenInputs

CONFIG = load("analysis", "alignment")
END, PAD = 1, 0
MODELS = {
    "transformer": ("transformer_nano", {"width": 24, "heads": 2, "depth": 2}),
    "rnn": ("gru_seq2seq_nano", {"width": 24}),
}


def planted(path, sources=6):
    """The rows of two heads over 6 source tokens and an end: one looks along the path, one everywhere alike."""
    weights = torch.full((1, 2, len(path) + 1, sources + 1), 1 / (sources + 1))
    weights[0, 0] = torch.nn.functional.one_hot(torch.tensor([*path, sources]), sources + 1)
    queries = torch.arange(len(path) + 1)[None] < len(path)  # the end token of the target is not counted as a query
    keys = torch.arange(sources + 1)[None] < sources
    found = alignment.Alignments()
    found.add(weights, queries, keys, torch.ones_like(keys))
    return found.rows(1), found.uniform


def test_a_path_in_order_is_monotone_and_on_the_diagonal():
    (path, even, *_), uniform = planted([0, 1, 2, 3, 4, 5])
    assert (path["value"], path["monotone"], path["entropy"]) == (1, 1, 0)
    assert even["value"] == uniform == pytest.approx(1 / 7, abs=1e-5)
    assert even["entropy"] == pytest.approx(torch.tensor(7.0).log().item(), abs=1e-5)


def test_a_step_back_counts_and_a_shorter_target_has_a_steeper_diagonal():
    rows, _ = planted([5, 4, 3, 2, 1, 0])
    assert (rows[0]["value"], rows[0]["monotone"]) == (0, 0)
    rows, _ = planted([0, 2, 1, 3, 4, 5])
    assert (rows[0]["value"], rows[0]["monotone"]) == (pytest.approx(4 / 6, abs=1e-5), 0.8)
    assert planted([0, 0, 1, 1])[0][0]["monotone"] == 1, "a repeated position is no step back"
    rows, _ = planted([1, 3, 4])
    assert (rows[0]["value"], rows[0]["monotone"]) == (1, 1)  # each target token has two of six source tokens


def inputs(count=5):
    tokens = torch.tensor([[5, 6, 7, 8, END], [9, 5, END, PAD, PAD]]).repeat(count, 1)
    given = torch.tensor([[2, 11, 12, 13], [2, 14, 15, 15]]).repeat(count, 1)
    following = torch.tensor([[11, 12, 13, END], [14, END, IGNORE_INDEX, IGNORE_INDEX]]).repeat(count, 1)
    made = TokenInputs.of(tokens, tokens != PAD, None, special=(PAD, END, 2))
    return made._replace(given=given, following=following)


@pytest.mark.parametrize("name", MODELS)
def test_it_draws_the_last_cross_attention_with_its_tokens(name, monkeypatch):
    choice, sizes = MODELS[name]
    model, pairs = build_model(choice, length=8, vocabulary=29, **sizes), inputs()
    assert alignment.applies(model)
    found = alignment.run(model, pairs, CONFIG)
    heads = [row["head"] for row in found["rows"]]
    assert heads == ([1, 2, "mean"] if name == "transformer" else [1])
    assert found["weights"].shape == (CONFIG.drawn, len(heads), 4, 5)
    assert found["sources"][0].tolist() == ["5", "6", "7", "8", "1"]
    assert found["sources"][-1].tolist() == ["9", "5", "1", "", ""]
    assert found["targets"][0].tolist() == ["11", "12", "13", "1"]
    assert not found["weights"][-1, :, :, 3:].any()
    if name == "transformer":
        model.eval()
        maps = list(attention_maps(model, pairs.tokens, [5], target=pairs.given, mask=pairs.mask))
        torch.testing.assert_close(torch.from_numpy(found["weights"][0, :2]).float(), maps[0][1][0], atol=1e-3, rtol=0)
        assert found["rows"][0]["layer"] == 2
    monkeypatch.setattr(capture, "CHUNK", 3)
    assert alignment.run(model, pairs, CONFIG)["rows"] == found["rows"]
