"""Views of models that write a target: whose attention is shown, of held-out pairs and of the user's own texts."""

import numpy as np
import pytest
import torch

from tests.texts import text_data, texts
from tests.unit.reports.html_page import read_script_data
from tests.unit.reports.pages.test_token_attention import unpacked
from tests.unit.tasks.test_text_tasks import built, task_of
from vitlab.analysis.alignment import encode_text, measure_attention
from vitlab.data.text.tokenization import train
from vitlab.models import build_model
from vitlab.reports.pages.attention import pack_text, write_views

LAYERS = {"transformer_nano": ["tokens", "given", "following"], "gru_seq2seq_nano": ["following"]}


@pytest.fixture(scope="module")
def tokenizer():
    return train(["one two three 1 2 3"] * 9, "bpe", 300)


def translator(name, tokenizer, length=16):
    torch.manual_seed(0)
    sizes = {"width": 24} | ({"heads": 2, "depth": 1} if name == "transformer_nano" else {})
    return build_model(name, vocabulary=tokenizer.size, length=length, **sizes).eval()


@pytest.mark.parametrize("name", LAYERS)
def test_a_source_is_shown_with_its_target_or_with_what_the_model_writes(name, tokenizer):
    model = translator(name, tokenizer)
    written = encode_text(model, tokenizer, ["two three"])
    decoding = model.decoding(written.tokens[None])
    for given, following in zip(written.given, written.following, strict=True):
        assert decoding(given[None, None]).argmax() == following  # greedy, from the start
    pair = encode_text(model, tokenizer, ["two three", "2 3"])
    assert pair.tokens.equal(written.tokens)
    assert tokenizer.decode(pair.following.tolist()) == "2 3"
    assert pair.given.tolist() == [tokenizer.decoder_start, *pair.following[:-1].tolist()]
    packed = pack_text(*measure_attention(model, tokenizer, pair))
    assert [layer["queries"] for layer in packed["layers"]] == LAYERS[name]
    for layer in packed["layers"]:
        np.testing.assert_allclose(unpacked(layer).sum(axis=-1), 1, atol=0.02)
    assert packed["layers"][-1]["grid"] == [len(pair.following), len(pair.tokens)]


def test_by_default_validation_texts_are_shown(tmp_path, tokenizer):
    task, config = task_of("causal_lm", data=text_data(test=texts([[7, 8, 9] * 20])))
    task.test = None
    write_views(built(task, config).eval(), task, tokenizer, [], [], "gpt", tmp_path)
    shown = read_script_data((tmp_path / "attention.html").read_text())["items"]
    assert {token for text in shown for token in text["tokens"]["tokens"]} == {*tokenizer.token_texts([7, 8, 9])}
