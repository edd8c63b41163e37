"""T5 against transformers', tiny random models saved to disk: the same logits, with padding, in both directions."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoTokenizer, T5Config, T5EncoderModel, T5ForConditionalGeneration

from vitlab.commands.inference import write_folder
from vitlab.config.errors import UserError
from vitlab.data.text import tokenization
from vitlab.models import build_model
from vitlab.models.decoding import generate
from vitlab.models.huggingface import load_huggingface, save_huggingface
from vitlab.training.files import RunFiles

B, S, N, V, D, HEADS, HEAD_WIDTH, HIDDEN = 3, 40, 9, 53, 24, 3, 10, 37
SIZES = {"depth": 2, "decoder_depth": 3, "width": D, "heads": HEADS, "head_width": HEAD_WIDTH, "mlp_width": HIDDEN}
VERSIONS = {"1.0": {"feed_forward_proj": "relu"}, "1.1": {"feed_forward_proj": "gated-gelu"}}


def randomized(model):
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)  # norms near 1
    return model.eval()


def their_t5(version, folder, decoder_depth=3):
    """A T5 of a version: 1.1 has an output layer of its own, which is not scaled."""
    config = T5Config(
        vocab_size=V, d_model=D, d_kv=HEAD_WIDTH, d_ff=HIDDEN, num_layers=2, num_decoder_layers=decoder_depth,
        num_heads=HEADS, tie_word_embeddings=version == "1.0", decoder_start_token_id=0, **VERSIONS[version],
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    if version == "1.1":
        model.lm_head.weight = nn.Parameter(torch.empty(V, D))
    randomized(model).save_pretrained(folder)
    return model


def batch():
    """Tokens of sources, of targets, and a mask that ends the sources after 40, 17 and 1 of them."""
    mask = torch.arange(S) < torch.tensor([[S], [17], [1]])
    return torch.randint(V, (B, S)), torch.randint(V, (B, N)), mask


def their_logits(model, source, target, mask):
    with torch.no_grad():
        return model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits


@pytest.mark.parametrize("version", VERSIONS)
def test_t5s_logits_are_theirs(version, tmp_path):
    theirs = their_t5(version, tmp_path)
    mine, report = load_huggingface(tmp_path)
    assert not [*report.missing, *report.unused, *report.new, *report.resized], report
    source, target, mask = batch()
    expected = their_logits(theirs, source, target, mask)
    assert expected.std() > 0.05
    torch.testing.assert_close(mine(source, target, mask), expected, rtol=1e-5, atol=1e-5)
    again = tmp_path / "again"
    save_huggingface(mine, again)
    read = T5ForConditionalGeneration.from_pretrained(again).eval()
    torch.testing.assert_close(their_logits(read, source, target, mask), expected, rtol=1e-5, atol=1e-5)


def test_a_folder_as_the_first_versions_wrote_it_is_read(tmp_path):
    theirs = their_t5("1.0", tmp_path, decoder_depth=2)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("feed_forward_proj", "num_decoder_layers", "relative_attention_max_distance", "scale_decoder_outputs"):
        del config[key]
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_positions": 512}))
    state = load_file(tmp_path / "model.safetensors")
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    copies = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), state["shared.weight"])
    copies = {name: value.clone() for name, value in {**copies, "lm_head.weight": state["shared.weight"]}.items()}
    save_file({**state, **copies, unused: torch.zeros(32, HEADS)}, tmp_path / "model.safetensors")
    mine, report = load_huggingface(tmp_path)
    assert not [*report.missing, *report.unused], report
    source, target, mask = batch()
    expected = their_logits(theirs, source, target, mask)
    torch.testing.assert_close(mine(source, target, mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "parameters"), [("t5_small", 60_506_624), ("t5_base", 222_903_552)])
def test_named_models_have_their_published_sizes(name, parameters):
    with torch.device("meta"):
        assert sum(p.numel() for p in build_model(name, vocabulary=32_128).parameters()) == parameters


def test_an_encoder_alone_is_refused_in_a_line(tmp_path):
    T5EncoderModel(their_t5("1.0", tmp_path).config).save_pretrained(tmp_path / "encoder")
    with pytest.raises(UserError, match=r"the weights have no decoder\."):
        load_huggingface(tmp_path / "encoder")


def test_an_exported_run_writes_the_same_in_transformers(tmp_path):
    tokenizer = tokenization.train(["one hundred and twenty", "seven"], "characters", V)
    tokenizer.save(RunFiles(tmp_path / "run").tokenizer_path)
    # transformers' cache is as deep as the encoder
    mine = randomized(build_model("t5_nano", vocabulary=tokenizer.size, length=S, **{**SIZES, "decoder_depth": 2}))
    shape, data = {"head": "seq2seq"}, SimpleNamespace(modality="text")
    write_folder(
        SimpleNamespace(
            model=mine, shape=shape, config=SimpleNamespace(task=SimpleNamespace(kind="translation"), data=data)
        ),
        tmp_path / "run",
        tmp_path,
    )
    theirs, their_tokenizer = (
        T5ForConditionalGeneration.from_pretrained(tmp_path),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    sources = ["one hundred", "seven"]
    batch = their_tokenizer(sources, padding=True, return_tensors="pt")
    for row, ids in zip(batch.input_ids.tolist(), tokenizer.encode(sources), strict=True):
        assert [token for token in row if token != tokenizer.pad] == [*ids, tokenizer.end]
    starts = torch.full((2, 1), tokenizer.decoder_start)
    written = generate(mine.decoding(batch.input_ids, batch.attention_mask.bool()), starts, 8, end=tokenizer.end)
    expected = theirs.generate(**{key: batch[key] for key in ("input_ids", "attention_mask")}, max_new_tokens=8)
    for row, wanted in zip(written, expected, strict=True):
        assert row.tolist() == wanted[1 : len(row) + 1].tolist()
