"""BERT and GPT-2 against transformers', tiny random models saved to disk: the same outputs."""

import json

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
)

from vitlab.config.errors import UserError
from vitlab.models import build_model
from vitlab.models.huggingface import load_huggingface, save_huggingface
from vitlab.models.mixers.attention import Attention
from vitlab.models.text import bert, language_model

B, N, V, LENGTH, D, HEADS, HIDDEN, DEPTH = 3, 7, 53, 19, 24, 3, 37, 2
SIZES = {"width": D, "depth": DEPTH, "heads": HEADS, "mlp_width": HIDDEN}


def randomized(model):
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.02, std=0.3)
    return model.eval()


@pytest.fixture
def gpt2(tmp_path):
    config = GPT2Config(
        vocab_size=V, n_positions=LENGTH, n_embd=D, n_layer=DEPTH, n_head=HEADS, n_inner=HIDDEN, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    model = randomized(GPT2LMHeadModel(config))
    model.save_pretrained(tmp_path / "gpt2")
    return model, tmp_path / "gpt2"


@pytest.fixture
def their_bert(tmp_path):
    config = BertConfig(
        vocab_size=V, max_position_embeddings=LENGTH, hidden_size=D, num_hidden_layers=DEPTH, intermediate_size=HIDDEN,
        num_attention_heads=HEADS, pad_token_id=None,
    )  # fmt: skip
    model = randomized(BertForPreTraining(config))
    model.save_pretrained(tmp_path / "bert")
    return model, tmp_path / "bert"


def batch():
    """Tokens, and a mask that ends the rows after 7, 4 and 1 of them."""
    return torch.randint(V, (B, N)), torch.arange(N) < torch.tensor([[7], [4], [1]])


def test_gpt2s_hidden_states_and_logits_are_theirs(gpt2):
    theirs, folder = gpt2
    mine, report = load_huggingface(folder)
    assert not [*report.missing, *report.unused, *report.new, *report.resized], report
    tokens, mask = batch()
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long(), output_hidden_states=True)
        hidden, logits = mine.text(tokens, mask), mine(tokens, mask)
    assert logits.std() > 0.1
    torch.testing.assert_close(hidden[mask], expected.hidden_states[-1][mask], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits[mask], expected.logits[mask], rtol=1e-5, atol=1e-5)


def rates(model):
    """The rate of each dropout that training applies, in the order of the modules: attention's, then the others."""
    attentions = [m.attention_dropout for m in model.modules() if isinstance(m, Attention)]
    return attentions, [m.p for m in model.modules() if isinstance(m, nn.Dropout) and m.p]


def test_dropouts_are_where_theirs_are_and_as_high(tmp_path):
    """Theirs: on the embeddings, on the weights of attention, and after each part of a layer."""
    bert_config = BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=HEADS, hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.3,
    )  # fmt: skip
    gpt2_config = GPT2Config(
        vocab_size=V, n_embd=D, n_layer=DEPTH, n_head=HEADS, resid_pdrop=0.2, embd_pdrop=0.2, attn_pdrop=0.3
    )
    for config, kind in ((bert_config, BertForPreTraining), (gpt2_config, GPT2LMHeadModel)):
        theirs = kind(config)
        theirs.save_pretrained(tmp_path / config.model_type)
        mine, _ = load_huggingface(tmp_path / config.model_type)
        found = sorted(m.p for m in theirs.modules() if isinstance(m, nn.Dropout))
        attentions, others = rates(mine)
        assert sorted([*attentions, *others]) == found == [0.2] * (1 + 2 * DEPTH) + [0.3] * DEPTH


def test_berts_hidden_states_and_both_heads_are_theirs(their_bert):
    theirs, folder = their_bert
    mine, report = load_huggingface(folder)
    assert not [*report.missing, *report.unused, *report.new, *report.resized], report
    tokens, mask = batch()
    segments = (torch.arange(N) > 2).long().expand(B, N)
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long(), token_type_ids=segments, output_hidden_states=True)
        hidden = mine(tokens, mask, segments)
        masked, following = mine.masked_logits(hidden), mine.next_sentence_logits(hidden)
    assert masked.std() > 0.1
    torch.testing.assert_close(hidden[mask], expected.hidden_states[-1][mask], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(masked[mask], expected.prediction_logits[mask], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(following, expected.seq_relationship_logits, rtol=1e-5, atol=1e-5)


def test_a_model_written_as_gpt2_is_read_by_hugging_face(tmp_path):
    mine = randomized(language_model(V, length=LENGTH, width=D, depth=DEPTH, heads=HEADS, mlp_width=HIDDEN, mlp="relu"))
    save_huggingface(mine, tmp_path)
    theirs, tokens = GPT2LMHeadModel.from_pretrained(tmp_path).eval(), batch()[0]
    torch.testing.assert_close(mine(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)
    again, report = load_huggingface(tmp_path)
    assert not report.missing
    assert torch.equal(again(tokens), mine(tokens))


def test_a_model_written_as_bert_is_read_by_hugging_face(tmp_path):
    mine = randomized(bert(V, length=LENGTH, width=D, depth=DEPTH, heads=HEADS, mlp_width=HIDDEN))
    save_huggingface(mine, tmp_path)
    theirs, tokens = BertForPreTraining.from_pretrained(tmp_path).eval(), batch()[0]
    hidden = mine(tokens)
    found = theirs(tokens)
    torch.testing.assert_close(mine.masked_logits(hidden), found.prediction_logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine.next_sentence_logits(hidden), found.seq_relationship_logits, rtol=1e-5, atol=1e-5)


def test_a_bert_without_heads_gets_new_ones_and_says_so(their_bert, tmp_path):
    theirs, _ = their_bert
    theirs.bert.save_pretrained(tmp_path / "base")
    mine, report = load_huggingface(tmp_path / "base")
    assert set(report.missing) == {
        "bias", "transform.weight", "transform.bias", "norm.weight", "norm.bias", "next_sentence.weight",
        "next_sentence.bias",
    }  # fmt: skip
    tokens, mask = batch()
    expected = theirs.bert(tokens, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(mine(tokens, mask)[mask], expected[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (
            lambda: language_model(V, length=LENGTH, **SIZES, positions="sincos", segments=2),
            "GPT2LMHeadModel has no model.positions=sincos model.segments=2;",
        ),
        (lambda: build_model("gpt_nano", vocabulary=V), "GPT2LMHeadModel has no model.positions=rotary;"),
        (
            lambda: build_model("bert_nano", vocabulary=V),
            "BertForPreTraining has no model.norm_first=true model.positions=rotary;",
        ),
        (lambda: bert(V, length=LENGTH, **SIZES, segments=0), "BertForPreTraining has no model.segments=0;"),
        (lambda: bert(V, length=LENGTH, **SIZES, mlp="relu"), "BertForPreTraining has no model.mlp=relu"),
        (lambda: build_model("lstm_nano", vocabulary=V), "GPT2LMHeadModel has no model.kind=lstm; export to a .safe"),
        (lambda: build_model("gru_seq2seq_nano"), "transformers has no RecurrentEncoderDecoder; export to a .sa"),
    ],
)
def test_a_model_that_transformers_does_not_have_is_not_written(build, says, tmp_path):
    with pytest.raises(UserError, match=says):
        save_huggingface(build(), tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "gpt_neox"}, "config.json has model_type=gpt_neox; choices: vit, bert, gpt2, t5"),
        ({"tie_word_embeddings": False}, "config.json has tie_word_embeddings=False; vitlab's models have"),
        ({"hidden_act": "silu"}, "unknown activation silu; did you mean"),
        ({"num_attention_heads": 5}, r"cannot build a model of config.json's sizes \(.*heads=5: does not divide"),
    ],
)
def test_a_config_that_makes_no_model_is_one_line(their_bert, changes, says):
    path = their_bert[1] / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(config))
    with pytest.raises(UserError, match=says):
        load_huggingface(path.parent)
