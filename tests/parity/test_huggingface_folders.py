"""Folders of transformers' BERT, GPT-2, T5 and ViT: the same logits whatever config.json says, or an error.

Heads and epsilons change no weight's shape, so weights fit into models of others, which then have other logits.
With real weights: MINILM=FOLDER python -m pytest -n 0 -s tests/parity/test_huggingface_folders.py -k real
"""

import json
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from tests.configurations import refused
from tests.learning import randomized
from vitlab.commands.inference import write_folder
from vitlab.config import TrainConfig, compose, resolved
from vitlab.config.errors import UserError
from vitlab.data.text import tokenization
from vitlab.models import build_model
from vitlab.models.huggingface import compare_huggingface, load_huggingface, save_huggingface
from vitlab.models.mixers.attention import Attention
from vitlab.studies.grid import compose_models, compose_study
from vitlab.training.load import load_weights

V, LENGTH, D, HIDDEN = 53, 19, 16, 24
EPSILONS = (1e-12, 1e-3)  # apart enough to be seen in the logits


def make_bert(heads, eps):
    config = BertConfig(
        vocab_size=V, max_position_embeddings=LENGTH, hidden_size=D, num_hidden_layers=2, intermediate_size=HIDDEN,
        num_attention_heads=heads, layer_norm_eps=eps,
    )  # fmt: skip
    return BertForPreTraining(config)


def make_gpt2(heads, eps):
    config = GPT2Config(
        vocab_size=V, n_positions=LENGTH, n_embd=D, n_layer=2, n_head=heads, n_inner=HIDDEN, layer_norm_epsilon=eps,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def make_t5(heads, eps):
    config = T5Config(
        vocab_size=V, d_model=D, d_kv=D // heads, d_ff=HIDDEN, num_layers=2, num_heads=heads, layer_norm_epsilon=eps,
        decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config)


def make_vit(heads, eps, model=ViTForImageClassification):
    config = ViTConfig(
        hidden_size=D, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=HIDDEN, layer_norm_eps=eps,
        image_size=[8, 12], patch_size=4, num_labels=5,
    )  # fmt: skip
    return model(config)


TOKENS, MASK = torch.randint(V, (3, 7)), torch.arange(7) < torch.tensor([[7], [4], [1]])
IMAGES = torch.randn(3, 3, 8, 12)
SEGMENTS = (torch.arange(7) > 2).long().expand(3, 7)


def run_bert(theirs):
    shown = {"attention_mask": MASK.long(), "token_type_ids": SEGMENTS, "output_hidden_states": True}
    found = theirs(TOKENS, **shown)
    outputs = found.hidden_states[-1][MASK], found.prediction_logits[MASK], found.seq_relationship_logits
    return torch.cat([output.flatten() for output in outputs])


def run_own_bert(mine):
    hidden = mine(TOKENS, MASK, SEGMENTS)
    outputs = hidden[MASK], mine.masked_logits(hidden)[MASK], mine.next_sentence_logits(hidden)
    return torch.cat([output.flatten() for output in outputs])


def run_gpt2(theirs):
    found = theirs(TOKENS, attention_mask=MASK.long(), output_hidden_states=True)
    return torch.cat([found.hidden_states[-1], found.logits], dim=-1)[MASK]


KINDS = {  # what makes theirs, their hidden states and logits, mine
    "bert": (make_bert, run_bert, run_own_bert),
    "gpt2": (make_gpt2, run_gpt2, lambda mine: torch.cat([mine.text(TOKENS, MASK), mine(TOKENS, MASK)], dim=-1)[MASK]),
    "t5": (
        make_t5,
        lambda theirs: theirs(TOKENS, attention_mask=MASK.long(), decoder_input_ids=TOKENS).logits,
        lambda mine: mine(TOKENS, TOKENS, MASK),
    ),
    "vit": (make_vit, lambda theirs: theirs(IMAGES).logits, lambda mine: mine(IMAGES)),
}


def save(model, folder, **changes):
    """A folder as transformers writes it, of random weights; `changes` are of its config.json."""
    torch.manual_seed(1)
    randomized(model, 0.3, mean=0.02).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize("eps", EPSILONS)
@pytest.mark.parametrize("heads", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_logits_are_transformers_or_an_error(kind, heads, eps, tmp_path):
    make, their_logits, own_logits = KINDS[kind]
    theirs = make(heads, eps)
    folder = save(theirs, tmp_path)
    expected = their_logits(theirs)
    assert expected.std() > 0.05, "logits that are all alike prove nothing"
    loaded, report = load_huggingface(folder)
    assert not [*report.missing, *report.unused, *report.new, *report.resized], report
    torch.testing.assert_close(own_logits(loaded), expected, rtol=1e-5, atol=1e-5)
    built = build_model(folder).eval()
    load_weights(built, folder / "model.safetensors")
    assert torch.equal(own_logits(built), own_logits(loaded))
    wrong = {"heads": 4 if heads == 2 else 2, "norm_eps": 1e-6}
    width = {"head_width": D // wrong["heads"]} if kind == "t5" else {}
    (line,) = refused(load_weights, build_model(folder, **wrong, **width), folder)
    assert f"heads={heads} norm_eps={eps}, this one heads={wrong['heads']} norm_eps=1e-06" in line
    assert f"give model.heads={heads} model.norm_eps={eps}" in line


@pytest.mark.skipif("MINILM" not in os.environ, reason="needs the folder of a BERT and its tokenizer")
@torch.no_grad()
def test_a_real_bert_has_the_hidden_states_of_transformers_with_padding():
    folder = os.environ["MINILM"]
    texts = ["A short text.", "A much longer text about the bank of the river, which the other lacks."]
    given = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    mask = given["attention_mask"].bool()
    assert not mask.all()
    expected = AutoModel.from_pretrained(folder).eval()(**given).last_hidden_state[mask]
    found = load_huggingface(folder)[0](given["input_ids"], mask, given["token_type_ids"])[mask]
    print(f"largest difference {(found - expected).abs().max():.1e} of up to {expected.abs().max():.1f}")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


OWN = {"vocabulary": V, "length": LENGTH, "depth": 2, "width": D, "heads": 2, "mlp_width": HIDDEN}


@pytest.mark.parametrize(
    ("kind", "name", "changes"),
    [
        ("bert", "bert_base", {}),
        ("gpt2", "gpt2", {"mlp": "relu"}),
        ("t5", "t5_nano", {"mlp": "swiglu", "head_width": 5}),
    ],
)
@torch.no_grad()
def test_an_own_model_is_read_by_transformers(kind, name, changes, tmp_path):
    make, their_logits, own_logits = KINDS[kind]
    mine = randomized(build_model(name, **OWN, **changes), 0.3)
    save_huggingface(mine, tmp_path)
    theirs = type(make(2, 1e-5)).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(own_logits(mine), their_logits(theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("gpt2", {"mlp": "gelu"}, "mlp=gelu_tanh, this one mlp=gelu,"),  # which differ by 5e-4
        ("gpt2", {"causal": False}, "causal=true, this one causal=false,"),
        ("vit", {"pool": "mean", "class_token": True}, "pool=token, this one pool=mean, .*, or init.head=new"),
    ],
)
def test_other_options_that_change_logits_are_an_error_too(kind, changes, says, tmp_path):
    folder = save(KINDS[kind][0](2, 1e-5), tmp_path / kind)
    with pytest.raises(UserError, match=says):
        load_weights(build_model(folder, **changes), folder)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("bert", {"position_embedding_type": "relative_key"}),
        ("bert", {"is_decoder": True}),
        ("bert", {"tie_word_embeddings": False}),
        ("gpt2", {"scale_attn_weights": False}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("t5", {"relative_attention_max_distance": 64}),
        ("t5", {"relative_attention_num_buckets": 16}),
        ("vit", {"pooler_act": "relu"}),
    ],
)
def test_a_config_json_that_asks_for_what_is_not_here_is_an_error(kind, changes, tmp_path):
    folder = save(KINDS[kind][0](2, 1e-5), tmp_path / kind, **changes)
    ((key, value),) = changes.items()
    for load in (load_huggingface, build_model, lambda path: compose(TrainConfig, [f"model={path}"])):
        with pytest.raises(UserError, match=f"config.json has {key}={value}; vitlab's models have {key}="):
            load(folder)


@pytest.mark.parametrize(
    ("kind", "words", "recipe"),
    [
        ("bert", ["data=csv", "data.path=x", "task=text_classification"], "bert_finetune"),
        ("gpt2", ["data=pydoc", "task=causal_lm"], "gpt_finetune"),
        ("t5", ["data=numbers", "task=translation"], "t5_finetune"),
        ("vit", ["data=glyphs"], "vit_finetune"),
    ],
)
def test_a_folder_as_a_model_brings_its_weights_recipe_tokenizer_and_image_size(kind, words, recipe, tmp_path):
    folder = save(KINDS[kind][0](4, 1e-5), tmp_path / kind)
    (folder / "tokenizer.json").write_text("{}")
    config = compose(TrainConfig, [f"model={folder}", *words])
    assert (config.init.weights, config.recipe.name, config.model.name) == (str(folder), recipe, kind)
    assert (config.model.heads, config.model.norm_eps) == (4, 1e-5)
    if kind == "vit":
        assert config.data.image_size == [8, 12]
        (of_study,) = compose_models(compose_study("quick", [*words, f"models=[{folder}]"])).values()
        assert (of_study.data.image_size, of_study.init.weights) == (24, str(folder))
    else:
        assert config.data.tokenizer == str(folder)
    key, value = ("image_size", 32) if kind == "vit" else ("tokenizer", "bpe")
    other = compose(TrainConfig, [f"model={folder}", *words, "init=null", "recipe=adamw", f"data.{key}={value}"])
    of_mapping = compose(
        TrainConfig, [f"model={folder}", f"{words[0].replace('=', '={name: ')}, {key}: {value}}}", *words[1:]]
    )
    assert getattr(of_mapping.data, key) == value, "the user named it beside the choice"
    for again in (other, compose(TrainConfig, base=resolved(other))):
        assert (again.init.weights, again.recipe.name, getattr(again.data, key)) == (None, "adamw", value)


@torch.no_grad()
def test_embeddings_beyond_the_tokenizers_tokens_are_padding(tmp_path):
    theirs = make_t5(2, 1e-6)  # the published ones have 28 rows more than their tokenizers have tokens
    folder = save(theirs, tmp_path / "t5")
    tokenizer = tokenization.train(["one hundred and twenty", "seven"], "characters", V)
    tokenizer.save(folder / "tokenizer.json")
    mine = build_model(folder, vocabulary=tokenizer.size).eval()
    assert len(load_weights(mine, folder).resized) == 3
    tokens = TOKENS % tokenizer.size
    expected = theirs(tokens, decoder_input_ids=tokens).logits[..., : tokenizer.size]
    torch.testing.assert_close(mine(tokens, tokens), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match="its vocabulary has 53 tokens, the model's has 9"):
        load_weights(build_model(folder, vocabulary=9), folder)


def test_dropouts_are_where_theirs_are_and_as_high(tmp_path):
    """Theirs: on the embeddings, on the weights of attention, and after each part of a layer."""
    bert = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    gpt2 = {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.3}
    for kind, rates in (("bert", bert), ("gpt2", gpt2)):
        folder = save(KINDS[kind][0](2, 1e-5), tmp_path / kind, **rates)
        modules = list(load_huggingface(folder)[0].modules())
        assert [m.attention_dropout for m in modules if isinstance(m, Attention)] == [0.3] * 2
        assert [m.p for m in modules if isinstance(m, nn.Dropout) and m.p] == [0.2] * 5
        theirs = [
            m.p for m in type(KINDS[kind][0](2, 1e-5)).from_pretrained(folder).modules() if isinstance(m, nn.Dropout)
        ]
        assert sorted(theirs) == [0.2] * 5 + [0.3] * 2
        without = save(KINDS[kind][0](2, 1e-5), tmp_path / f"{kind}-without", **dict.fromkeys(rates))
        assert not any(isinstance(m, nn.Dropout) and m.p for m in load_huggingface(without)[0].modules())


@torch.no_grad()
def test_a_bert_without_heads_gets_new_ones_and_says_so(tmp_path):
    theirs = make_bert(2, 1e-5)
    save(theirs, tmp_path / "whole")
    theirs.bert.save_pretrained(tmp_path / "base")
    mine, report = load_huggingface(tmp_path / "base")
    heads = {"transform", "norm", "next_sentence"}
    assert set(report.missing) == {"bias", *(f"{head}.{part}" for head in heads for part in ("weight", "bias"))}
    expected = theirs.bert(TOKENS, attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(mine(TOKENS, MASK)[MASK], expected[MASK], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes", "lacks"),
    [
        ("gpt2", {"positions": "sincos", "segments": 2}, "model.positions=sincos model.segments=2;"),
        ("gpt_nano", {}, "model.positions=rotary;"),
        ("bert_base", {"segments": 0, "mlp": "relu"}, "model.mlp=relu model.segments=0;"),
        ("lstm_nano", {}, "model.kind=lstm; export to a .safe"),
        ("gru_seq2seq_nano", {}, "transformers has no RecurrentEncoderDecoder; export to a .sa"),
        ("t5_nano", {"bias": True, "mlp": "geglu"}, "model.mlp=geglu model.bias=true;"),
        ("t5_nano", {"norm": "layernorm", "positions": "learned"}, "model.norm=layernorm model.positions=learned;"),
        ("t5_nano", {"share_embeddings": "decoder"}, "model.share_embeddings=decoder;"),
        ("vit_ti16", {"pool": "mean", "registers": 2}, "model.pool=mean model.registers=2; export to a .safetensors"),
        ("vit_ti16", {"positions": "sincos2d", "head_width": 8}, "model.head_width=8 model.positions=sincos2d;"),
        ("vit_ti16", {"mixer": "token_mlp"}, "model.mixer=token_mlp;"),
        ("vit_ti16", {"mixer": {"name": "attention", "qk_norm": True}}, "model.mixer.qk_norm=true;"),
        ("vit_ti16", {"norm": "batchnorm", "prefix_positions": False}, "model.norm=batchnorm model.prefix_positions="),
        ("vit_ti16", {"num_classes": 0}, "transformers has no ViT without a head"),
    ],
)
def test_a_model_that_transformers_does_not_have_is_not_written(name, changes, lacks, tmp_path):
    with torch.device("meta"):
        (line,) = refused(save_huggingface, build_model(name, depth=1, **changes), tmp_path)
    assert lacks in line
    assert not [*tmp_path.iterdir()]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: save(KINDS[kind][0](2, 1e-5), tmp_path_factory.mktemp(kind)) for kind in KINDS}


NAMES = {  # of tensors that are taken apart, joined, resized or counted
    "vit": ("classifier.weight", "attention.attention.query.weight", "position_embeddings", "projection.weight"),
    "bert": ("self.key.bias", "predictions.bias"),
    "gpt2": ("0.attn.c_attn.weight", "wpe.weight"),
    "t5": ("SelfAttention.v.weight", "shared.weight", "relative_attention_bias"),
}
TENSORS = [torch.tensor(1.0), torch.zeros(0), torch.zeros(2, 3, 4, 5, 6)]
SIZES = {"vit": ("hidden_size", "image_size"), "bert": ("num_attention_heads",), "t5": ("d_kv",)}
JSON = (b"", b"[]", b"null", b"\xff\xfe{", b'{"a":' * 10**5, b'{"model_type": []}', b'"\\ud800"')


def damage(folder, config=None, state=None, files=None):
    """The folder with one of its files changed."""
    if state is not None:
        whole, ((part, value),) = load_file(folder / "model.safetensors"), state.items()
        save_file({**whole, next(name for name in whole if part in name): value}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | config))
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)


DAMAGES = [
    *(("bert", {"config": {key: value}}) for key, value in (("model_type", "gpt_neox"), ("hidden_act", "silu"))),
    ("bert", {"config": {"num_attention_heads": 5}}),
    *(("vit", {"config": {"architectures": value}}) for value in (3, "x", [None], {"a": 1})),
    *(("vit", {"config": {"id2label": value}}) for value in (3, ["x"], {"a": "b"}, {"0": None}, {"0": [1]})),
    *(
        (kind, {"config": {key: value}})
        for kind in SIZES
        for key in SIZES[kind]
        for value in (None, "x", [], -1, 1e300)
    ),
    *(("vit", {"files": {"config.json": text}}) for text in JSON),
    *(("gpt2", {"files": {"model.safetensors": text}}) for text in (b"", b"\xff" * 99)),
    *(("vit", {"files": {"preprocessor_config.json": text}}) for text in (b"[", b'{"image_std": {}}')),
    *((kind, {"state": {part: value}}) for kind in NAMES for part in NAMES[kind] for value in TENSORS),
]


def test_a_damaged_folder_is_one_line_each(folders, tmp_path):
    for number, (kind, what) in enumerate(DAMAGES):
        folder = tmp_path / str(number)
        shutil.copytree(folders[kind], folder)
        damage(folder, **what)
        assert all(str(folder) in line and len(line) < 500 for line in refused(load_huggingface, folder)), what


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_pipe_in_a_folder_is_refused(name, folders, tmp_path):
    shutil.copytree(folders["gpt2"], tmp_path / "gpt2")
    (tmp_path / "gpt2" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "gpt2" / name)
    with pytest.raises(UserError, match="a pipe, socket or device"):
        load_huggingface(tmp_path / "gpt2") if name[0] == "m" else tokenization.from_file(tmp_path / "gpt2")


MEMORY = {"attention.attention.query": "attention.q_proj", "attention.attention.key": "attention.k_proj"}
MEMORY |= {"attention.attention.value": "attention.v_proj", "attention.output.dense": "attention.o_proj"}
MEMORY |= {"intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}


def name_in_memory(name):
    layer = re.sub(r"encoder\.layer\.(\d+)\.", r"layers.\1.", name)
    old = next((old for old in MEMORY if old in layer), "")
    return layer.replace(old, MEMORY[old]) if old else layer


OLD = {
    "norms of TensorFlow": ("bert", lambda n: n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")),
    "without the prefix": ("bert", lambda name: name.removeprefix("bert.")),
    "parallel": ("bert", lambda name: f"module.{name}"),
    "compiled": ("gpt2", lambda name: f"_orig_mod.module.{name}"),
    "Lightning": ("t5", lambda name: f"model.{name}"),
    "GPT-2 alone": ("gpt2", lambda name: name.removeprefix("transformer.")),
    "transformers 5 in memory": ("vit", name_in_memory),
    "compiled within": ("vit", lambda name: name.replace("layer.0.", "layer.0._orig_mod.")),
}
BUFFERS = ("h.0.attn.bias", "h.1.attn.masked_bias", "bert.embeddings.position_ids", "embeddings.token_type_ids")


@pytest.mark.parametrize("case", OLD)
@torch.no_grad()
def test_old_names_are_read(case, folders, tmp_path):
    kind, old = OLD[case]
    folder = shutil.copytree(folders[kind], tmp_path / kind)
    state = {old(name): value for name, value in load_file(folder / "model.safetensors").items()}
    save_file({**state, **{name: torch.zeros(1, 2) for name in BUFFERS}}, folder / "model.safetensors")
    (mine, report), (expected, _) = load_huggingface(folder), load_huggingface(folders[kind])
    assert not [*report.missing, *report.new, *report.unused]
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in mine.state_dict().items())


def test_the_preprocessing_of_a_folder_is_compared(folders, tmp_path):
    folder = shutil.copytree(folders["vit"], tmp_path / "vit")
    seen = {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1], "size": {"height": 8, "width": 12}}
    (folder / "preprocessor_config.json").write_text(json.dumps(seen))
    advice = load_weights(build_model(folder), folder, mean=[0.5], std=[0.5]).advice
    assert "trained with data.mean=[0.1,0.2,0.3] data.std=[1,1,1], here they are [0.5] and [0.5]" in advice


@pytest.mark.parametrize(
    ("task", "classes", "scale"),
    [("regression", (), (40.0, 3.0)), ("multilabel", "ab", None), ("classification", "ab", None)],
)
@torch.no_grad()
def test_an_exported_run_of_images_is_what_transformers_expects(task, classes, scale, tmp_path):
    shape = {"image_size": (12, 8), "channels": 1, "num_classes": len(classes) or 1}
    sizes = {"width": 12, "heads": 2, "patch_size": 4, "pool": "token", "dropout": 0.2}
    mine = build_model("vit_nano", **shape, **sizes)
    nn.init.normal_(mine.head.weight)
    data = SimpleNamespace(modality="image", mean=[0.3], std=[0.5])
    config = SimpleNamespace(task=SimpleNamespace(kind=task), data=data)
    run = SimpleNamespace(model=mine, shape=shape, classes=tuple(classes), scale=scale, config=config)
    write_folder(run, "run", tmp_path)
    theirs, images = ViTForImageClassification.from_pretrained(tmp_path).eval(), torch.randn(3, 1, 12, 8)
    torch.testing.assert_close(theirs(images).logits, mine.eval()(images), rtol=1e-5, atol=1e-5)
    assert compare_huggingface(mine, tmp_path) < 1e-5
    again = build_model("vit_nano", **shape, **sizes)
    assert not load_weights(again, tmp_path, classes=[*classes] or None).new
    nn.init.normal_(mine.head.weight)
    assert compare_huggingface(mine, tmp_path) > 0.1
    labels = {"regression": torch.zeros(3), "multilabel": torch.zeros(3, 2), "classification": torch.zeros(3).long()}
    assert theirs(images, labels=labels[task]).loss > 0
    assert theirs.config.num_labels == shape["num_classes"]
    assert list(theirs.config.id2label.values()) == (list(classes) or ["LABEL_0"])
    assert theirs.config.hidden_dropout_prob == 0.2
    assert not scale or (theirs.config.target_mean, theirs.config.target_std) == scale
