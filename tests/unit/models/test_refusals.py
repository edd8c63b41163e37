"""What docs/models.md and docs/rules.md say is refused, and which of two models of one name is meant."""

import pytest
import torch
from transformers import GPT2Config

from tests.configurations import roundtrip, train
from vitlab import build_model
from vitlab.config import UserError
from vitlab.training.load import load_weights

SIZES = {"vocabulary": 29, "width": 24, "heads": 3, "depth": 1}


def test_a_causal_model_has_no_batch_norm():
    with pytest.raises(UserError, match=r"model\.norm=batchnorm takes its statistics over all tokens.*layernorm"):
        build_model("gpt_nano", length=7, norm="batchnorm", **SIZES)
    model = build_model("transformer_nano", length=7, norm="batchnorm", **SIZES)
    kinds = {(name.partition(".")[0], type(part).__name__) for name, part in model.named_modules()}
    norms = {(place, kind) for place, kind in kinds if "Norm" in kind}
    assert norms == {("text", "TokenBatchNorm"), ("decoder", "LayerNorm")}, "of its encoder alone"


def test_fewer_learned_positions_than_the_model_reads_are_refused_and_change_nothing():
    source, target = (build_model("gpt_nano", length=n, positions="learned", **SIZES) for n in (7, 9))
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(UserError, match=r"it has positions for 7 tokens, the model takes 9; give data\.length=7"):
        load_weights(target, source.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def test_a_folder_that_is_called_like_a_named_model_is_meant_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 50, "n_positions": 16}
    GPT2Config(**sizes, bos_token_id=1, eos_token_id=1, architectures=["GPT2LMHeadModel"]).save_pretrained("gpt2")
    words = ["data=pydoc", "task=causal_lm"]
    named, folder = train("model=gpt2", *words), train("model=./gpt2", *words)
    assert (named.model.depth, named.init.weights) == (12, None)
    for config in (folder, roundtrip(folder)):
        assert (config.model.depth, config.init.weights) == (2, "gpt2")
