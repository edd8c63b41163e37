"""BERT and GPT-2 in Hugging Face's folders: config.json and model.safetensors, read and written.

Their weights are the same but for names, for queries, keys and values (three layers in BERT) and for GPT-2's matrices,
which stand the other way round.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from timm.layers import Mlp
from torch import nn

from vitlab.config import UserError, choices_text, first_line
from vitlab.files import replacing, write_json
from vitlab.models.heads import Bert, LanguageModel
from vitlab.models.mixers.attention import Attention
from vitlab.models.text import TextEncoder, bert, language_model
from vitlab.models.weights.load import LoadReport, Weights, fit

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
GPT2 = (  # their names, ours; {i} is the layer
    ("wte.", "text.embed.tokens."),
    ("wpe.weight", "text.embed.positions"),
    ("h.{i}.ln_1.", "text.encoder.blocks.{i}.norm1."),
    ("h.{i}.attn.c_attn.", "text.encoder.blocks.{i}.mixer.qkv."),
    ("h.{i}.attn.c_proj.", "text.encoder.blocks.{i}.mixer.proj."),
    ("h.{i}.ln_2.", "text.encoder.blocks.{i}.norm2."),
    ("h.{i}.mlp.c_fc.", "text.encoder.blocks.{i}.mlp.fc1."),
    ("h.{i}.mlp.c_proj.", "text.encoder.blocks.{i}.mlp.fc2."),
    ("ln_f.", "text.encoder.norm."),
)
BERT = (
    ("embeddings.word_embeddings.", "text.embed.tokens."),
    ("embeddings.position_embeddings.weight", "text.embed.positions"),
    ("embeddings.token_type_embeddings.", "text.embed.segments."),
    ("embeddings.LayerNorm.", "text.embed.norm."),
    ("encoder.layer.{i}.attention.self.query.", "text.encoder.blocks.{i}.mixer.q."),
    ("encoder.layer.{i}.attention.self.key.", "text.encoder.blocks.{i}.mixer.k."),
    ("encoder.layer.{i}.attention.self.value.", "text.encoder.blocks.{i}.mixer.v."),
    ("encoder.layer.{i}.attention.output.dense.", "text.encoder.blocks.{i}.mixer.proj."),
    ("encoder.layer.{i}.attention.output.LayerNorm.", "text.encoder.blocks.{i}.norm1."),
    ("encoder.layer.{i}.intermediate.dense.", "text.encoder.blocks.{i}.mlp.fc1."),
    ("encoder.layer.{i}.output.dense.", "text.encoder.blocks.{i}.mlp.fc2."),
    ("encoder.layer.{i}.output.LayerNorm.", "text.encoder.blocks.{i}.norm2."),
    ("pooler.dense.", "pooler."),
    ("cls.predictions.transform.dense.", "transform."),
    ("cls.predictions.transform.LayerNorm.", "norm."),
    ("cls.predictions.bias", "bias"),
    ("cls.seq_relationship.", "next_sentence."),
)
GPT2_SIZES = {  # their names, ours
    "vocab_size": "vocabulary",
    "n_positions": "length",
    "n_embd": "width",
    "n_layer": "depth",
    "n_head": "heads",
    "n_inner": "mlp_width",
    "activation_function": "mlp",
    "layer_norm_epsilon": "norm_eps",
}
BERT_SIZES = {
    "vocab_size": "vocabulary",
    "max_position_embeddings": "length",
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_width",
    "hidden_act": "mlp",
    "type_vocab_size": "segments",
    "layer_norm_eps": "norm_eps",
}
FIXED = {  # options of theirs that this project's models have in one way only
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
OPTIONAL = ("n_inner",)  # four times the width without it
TIED = ("lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
BUFFERS = (".attn.bias", ".attn.masked_bias", "position_ids")  # of masks and places, in older files


def load_huggingface(folder: str | Path) -> tuple[Bert | LanguageModel, LoadReport]:
    """A BERT or GPT-2 from its folder, in eval mode, and what became of each weight; heads it lacks are new.

    Raises UserError for a folder that holds neither, and for options that this project's models have not.
    """
    config, weights = read_huggingface(folder)
    gpt2 = config["model_type"] == "gpt2"
    model = build_of(config, language_model, GPT2_SIZES) if gpt2 else build_of(config, bert, BERT_SIZES)
    return model.eval(), fit(model, weights)


def read_huggingface(folder: str | Path) -> tuple[dict[str, Any], Weights]:
    """The config.json of a BERT's or a GPT-2's folder, and its weights in this project's names. Raises UserError."""
    folder = Path(folder)
    config = read_config(folder)
    try:
        state = load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder}: cannot read model.safetensors ({first_line(error)})") from None
    rules, prefix = (GPT2, "transformer.") if config["model_type"] == "gpt2" else (BERT, "bert.")
    found = {}
    for name, value in state.items():
        if name in TIED or name.endswith(BUFFERS):
            continue
        found[renamed(name.removeprefix(prefix), rules)] = value.T if turned(name) and value.dim() == 2 else value
    for name in [name for name in found if ".mixer.q." in name]:
        parts = [found.pop(name.replace(".q.", f".{part}."), None) for part in "qkv"]
        if all(part is not None for part in parts):
            found[name.replace(".q.", ".qkv.")] = torch.cat(parts)
    return config, Weights(found, str(folder))


def save_huggingface(model: Bert | LanguageModel, folder: str | Path) -> None:
    """Write a model as a folder that Hugging Face's BertForPreTraining or GPT2LMHeadModel loads.

    Raises UserError for a model that is neither, such as one with rotary positions.
    """
    is_bert = isinstance(model, Bert)
    if lacking := foreign(model):
        raise UserError(f"Hugging Face's BERT and GPT-2 have no {', no '.join(lacking)}: this model is neither")
    rules, prefix = (BERT, "bert.") if is_bert else (GPT2, "transformer.")
    state = {}
    for name, value in model.state_dict().items():
        value = value.detach().cpu()
        parts = {name: value}
        if is_bert and ".mixer.qkv." in name:
            parts = {name.replace(".qkv.", f".{part}."): v for part, v in zip("qkv", value.chunk(3), strict=True)}
        for own, part in parts.items():
            theirs = renamed(own, [(ours, theirs) for theirs, ours in rules])
            theirs = theirs if theirs.startswith("cls.") else prefix + theirs
            state[theirs] = (part.T if turned(theirs) and part.dim() == 2 else part).contiguous()
    if is_bert:  # kept once in the file, under each name that its class asks for
        state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    write_json(Path(folder) / "config.json", config_of(model, BERT_SIZES if is_bert else GPT2_SIZES))
    with replacing(Path(folder) / "model.safetensors") as file:
        file.write(save(state, metadata={"format": "pt"}))


def foreign(model: nn.Module) -> list[str]:
    """What a model has that neither of the two has, or not in this place."""
    if not isinstance(model, (Bert, LanguageModel)):
        return [f"{type(model).__name__} head"]
    if not isinstance(model.text, TextEncoder):
        return [type(model.text).__name__]
    block, embed, is_bert = model.text.encoder.blocks[0], model.text.embed, isinstance(model, Bert)
    found = {
        f"mixer {type(block.mixer).__name__}": not isinstance(block.mixer, Attention),
        "MLP of this kind": not isinstance(block.mlp, Mlp),
        "norm of this kind": not isinstance(block.norm1, nn.LayerNorm),
        "fixed, rotary or missing positions": not isinstance(embed.positions, nn.Parameter),
        "norms before attention" if is_bert else "norms after attention": block.norm_first == is_bert,
        "missing segments" if is_bert else "segments": (embed.segments is None) == is_bert,
    }
    return [what for what, there in found.items() if there]


def renamed(name: str, rules: Iterable[tuple[str, str]]) -> str:
    """A name by the first rule whose left side it begins with; as it is without one."""
    for source, target in rules:
        if found := re.match(re.escape(source).replace(r"\{i\}", r"(\d+)"), name):
            return target.replace("{i}", found[1] if found.groups() else "") + name[found.end() :]
    return name


def turned(name: str) -> bool:
    """Whether a weight of theirs is a matrix (inputs, outputs), as GPT-2's are, and not (outputs, inputs)."""
    return name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))


def read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot read config.json ({first_line(error)})") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in ("bert", "gpt2"):
        raise UserError(f"{folder}: model_type={kind} of config.json: choices: bert, gpt2")
    others = [
        f"{folder}: config.json has {key}={config[key]}; vitlab's models have {key}={only} alone"
        for key, only in FIXED.items()
        if config.get(key, only) != only
    ]
    if others:
        raise UserError(others)
    return config


def build_of(config: Mapping[str, Any], builder: Callable[..., nn.Module], sizes: Mapping[str, str]) -> Any:
    """The model of a config.json, by its names of the sizes. Raises UserError."""
    if lacking := [theirs for theirs in sizes if theirs not in config and theirs not in OPTIONAL]:
        raise UserError(f"config.json lacks {', '.join(lacking)}")
    options = {ours: config.get(theirs) for theirs, ours in sizes.items()}
    if options["mlp"] not in ACTIVATIONS:
        raise UserError(f"activation {options['mlp']}: unknown; {choices_text(str(options['mlp']), ACTIVATIONS)}")
    try:
        return builder(**{**options, "mlp": ACTIVATIONS[options["mlp"]]})
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise UserError(f"config.json: its sizes make no model ({first_line(error)})") from error


def config_of(model: Bert | LanguageModel, sizes: Mapping[str, str]) -> dict[str, Any]:
    """The config.json of a model."""
    blocks, embed = model.text.encoder.blocks, model.text.embed
    act = blocks[0].mlp.act
    gelu = "gelu_new" if getattr(act, "approximate", "") == "tanh" else "gelu"
    own = {
        "vocabulary": embed.tokens.num_embeddings,
        "length": embed.length,
        "width": embed.tokens.embedding_dim,
        "depth": len(blocks),
        "heads": blocks[0].mixer.heads,
        "mlp_width": blocks[0].mlp.fc1.out_features,
        "mlp": gelu if isinstance(act, nn.GELU) else "relu",
        "segments": embed.segments and embed.segments.num_embeddings,
        "norm_eps": blocks[0].norm1.eps,
    }
    kind, name = ("bert", "BertForPreTraining") if isinstance(model, Bert) else ("gpt2", "GPT2LMHeadModel")
    return {"model_type": kind, "architectures": [name], **{theirs: own[ours] for theirs, ours in sizes.items()}}
