"""The config.json of Hugging Face folders: which model of this project it describes, and what it must not ask for.

Imports no torch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitlab.config.errors import UserError, choices_text, first_line

CONFIG = "config.json"
ACTIVATIONS = {  # in a config.json, here
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}


@dataclass(frozen=True)
class Settings:
    """What a config.json of one `model_type` may say, and which model it is here."""

    sizes: Mapping[str, str]  # keys of config.json -> keys of the model here
    fixed: Mapping[str, Any] = field(default_factory=dict)  # keys of config.json that allow one value here
    defaults: Mapping[str, Any] = field(default_factory=dict)  # keys that a config.json may lack
    model: Mapping[str, Any] = field(default_factory=dict)  # keys that all models of this type have here
    activations: tuple[str, ...] = ("gelu", "gelu_tanh", "quick_gelu", "relu")
    dropout: str = ""  # the key of config.json, which it may lack
    fixed_by_default: bool = True  # a config.json without a key of `fixed` means the value there


ENCODER_SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_width",
    "hidden_act": "mlp",
    "layer_norm_eps": "norm_eps",
}
TEXT_SIZES = {
    "vocab_size": "published_vocabulary",
    "max_position_embeddings": "published_length",
    **ENCODER_SIZES,
}
VIT = Settings(
    sizes={
        **ENCODER_SIZES,
        "image_size": "published_image_size",
        "patch_size": "patch_size",
        "num_channels": "published_channels",
    },
    fixed={"qkv_bias": True, "pooler_act": "tanh"},
    model={"kind": "vit", "recipe": "vit_finetune"},
    dropout="hidden_dropout_prob",
)
BERT = Settings(
    sizes={**TEXT_SIZES, "type_vocab_size": "segments"},
    fixed={
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    model={"kind": "text", "family": "bert", "recipe": "bert_finetune", "causal": False, "norm_first": False},
    activations=("gelu",),  # the head has the same one
    dropout="hidden_dropout_prob",
)
GPT2 = Settings(
    sizes={
        "vocab_size": "published_vocabulary",
        "n_positions": "published_length",
        "n_embd": "width",
        "n_layer": "depth",
        "n_head": "heads",
        "n_inner": "mlp_width",
        "activation_function": "mlp",
        "layer_norm_epsilon": "norm_eps",
    },
    fixed={
        "tie_word_embeddings": True,
        "add_cross_attention": False,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    },
    defaults={"n_inner": None},  # four times the width
    model={"kind": "text", "family": "gpt", "recipe": "gpt_finetune", "scaled_residuals": True},
    dropout="resid_pdrop",
)
GPT_NEOX = Settings(
    sizes=TEXT_SIZES,
    fixed={
        "tie_word_embeddings": True,
        "use_parallel_residual": False,
        "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
    model={"kind": "text", "family": "gpt", "recipe": "gpt_finetune", "positions": "rotary"},
    dropout="hidden_dropout",
    fixed_by_default=False,
)
ESM = Settings(  # written only
    sizes={key: value for key, value in TEXT_SIZES.items() if key != "hidden_act"},
    fixed={
        "position_embedding_type": "rotary",
        "tie_word_embeddings": False,
        "token_dropout": False,
        "emb_layer_norm_before": False,
        "pad_token_id": 0,
    },
    activations=("gelu",),
)
T5 = Settings(
    sizes={
        "vocab_size": "published_vocabulary",
        "d_model": "width",
        "num_layers": "depth",
        "num_decoder_layers": "decoder_depth",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "mlp_width",
        "feed_forward_proj": "mlp",
        "layer_norm_epsilon": "norm_eps",
    },
    fixed={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    defaults={"feed_forward_proj": "relu", "num_decoder_layers": None},  # as many layers as the encoder
    model={
        "kind": "encoder_decoder",
        "recipe": "t5_finetune",
        "positions": "relative",
        "norm": "rmsnorm",
        "bias": False,
        "published_length": 512,  # of its training; relative positions have no limit
    },
    activations=("gelu", "relu", "geglu_tanh", "swiglu"),
    dropout="dropout_rate",
)
READABLE = {"vit": VIT, "bert": BERT, "gpt2": GPT2, "gpt_neox": GPT_NEOX, "t5": T5}


def is_folder(path: str | Path) -> bool:
    """Whether a path is a folder with a config.json."""
    return (Path(path) / CONFIG).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json with the defaults of its type. Raises UserError for what this project's models lack."""
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot read config.json ({first_line(error)})") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in READABLE:
        raise UserError(f"{folder}: config.json has model_type={kind}; choices: {', '.join(READABLE)}")
    settings = READABLE[kind]
    config = {**settings.defaults, **config}
    if lacking := [key for key in settings.sizes if key not in config]:
        raise UserError(f"{folder}: config.json lacks {', '.join(lacking)}")
    problems = [
        f"{folder}: config.json has {key}={config.get(key)}; vitlab's models have {key}={value}"
        for key, value in settings.fixed.items()
        if config.get(key, value if settings.fixed_by_default else None) != value
    ]
    activation = config[activation_key(settings)]
    activations = [name for name, here in ACTIVATIONS.items() if here in settings.activations]
    if activation not in activations:
        problems.append(f"{folder}: unknown activation {activation}; {choices_text(str(activation), activations)}")
    if problems:
        raise UserError(problems)
    return config


def read_model(folder: Path) -> dict[str, Any]:
    """The model of a folder's config.json as a choice of the group `model`. Raises UserError."""
    config = read_config(folder)
    settings = READABLE[config["model_type"]]
    model = {here: config[theirs] for theirs, here in settings.sizes.items()}
    model["mlp"] = ACTIVATIONS[model["mlp"]]
    if settings.dropout in config:
        model["dropout"] = config[settings.dropout]
    if settings is VIT:
        model["published_num_classes"] = count_classes(config)
    if settings is T5:
        model["share_embeddings"] = "all" if scales_output(config) else "inputs"
    return {"name": folder.resolve().name, **settings.model, **model, "init": str(folder)}


def activation_key(settings: Settings) -> str:
    return next(theirs for theirs, here in settings.sizes.items() if here == "mlp")


def scales_output(config: Mapping[str, Any]) -> bool:
    """Whether a T5 has a tied and scaled output layer, as in the paper and not in version 1.1."""
    return config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)


def class_names(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of a classifier's classes, None where nobody gave them names."""
    labels = config.get("id2label") or {}
    names = tuple(labels[key] for key in sorted(labels, key=int))
    return names if names and not names[0].startswith("LABEL_") else None


def count_classes(config: Mapping[str, Any]) -> int | None:
    """The classes of a classifier, two where its config.json does not say; None for a body alone."""
    is_classifier = any(name.endswith("ForImageClassification") for name in config.get("architectures") or ())
    return len(config.get("id2label") or {}) or config.get("num_labels") or (2 if is_classifier else None)
