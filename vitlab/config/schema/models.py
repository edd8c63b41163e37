"""The dataclasses of models, one for each kind, and which one the config.json of a Hugging Face folder describes.

Imports no torch.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Optional, Union

from omegaconf import MISSING
from typing_extensions import TypedDict

from vitlab.config.errors import UserError, choices_text, first_line, parse_json, raise_all
from vitlab.config.schema.fields import (
    LARGEST_DEPTH,
    LARGEST_IMAGE,
    LARGEST_LAYER,
    LARGEST_LENGTH,
    NO_EFFECT,
    WEIGHTS,
    Choice,
    Extent,
    Modality,
    choice,
    setting,
)


@choice("model", "")
class ModelConfig(Choice):
    modality: Modality = setting("image", fixed=True)  # what the model takes
    family: str = ""  # groups models in figures; empty: the module that defines the model
    recipe: str = setting("adamw", affects=WEIGHTS, fixed=True)  # the recipe when the user names none
    init: Optional[str] = setting(None, affects=NO_EFFECT, fixed=True)  # the first weights when the user names none


ATTENDS = {"mixer.attends": (True,)}


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Settings that all transformers have."""

    size: Optional[float] = setting(None, above=0, most=1e4, affects=NO_EFFECT)  # times the parameters of the blocks
    depth: int = setting(12, least=1, most=LARGEST_DEPTH)
    width: int = setting(768, least=1, most=LARGEST_LAYER)
    heads: int = setting(12, least=1, most=LARGEST_LAYER)
    # width / heads when not given
    head_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER, when=ATTENDS)
    mlp_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # 4 * width when not given
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "gelu"
    norm: Literal["layernorm", "rmsnorm", "batchnorm"] = "layernorm"
    norm_eps: float = setting(1e-6, above=0, most=1)
    norm_first: bool = True  # pre-norm; else post-norm
    dropout: float = setting(0.0, least=0, most=0.99)
    attention_dropout: float = setting(0.0, least=0, most=0.99, when=ATTENDS)  # of the weights of attention
    drop_path: float = setting(0.0, least=0, most=0.99)


@choice("model", "vit")
class ViTConfig(TransformerConfig):
    """A vision transformer (Dosovitskiy et al., 2021, arXiv 2010.11929).

    A run has the images and classes of its data; `describe` and `build_model` take the published ones.
    """

    family: str = "vit"
    published_image_size: Optional[Extent] = setting(None, least=1, most=LARGEST_IMAGE, affects=NO_EFFECT)
    published_channels: Optional[int] = setting(None, least=1, most=LARGEST_LAYER, affects=NO_EFFECT)
    published_num_classes: Optional[int] = setting(None, least=0, most=10**8, affects=NO_EFFECT)
    patch_size: Union[int, list[int], Literal["auto"]] = setting(16, least=1)  # auto: see `checks.choose_patch`
    # blocks per stage of a ResNet before the patches; none: the image's own
    stem: list[int] = setting([], least=1, most=1000)
    # channels of these stages, of a ResNet for small images (configs/model/resnet_nano.yaml); none: a BiT ResNet's
    stem_widths: list[int] = setting([], least=1, most=LARGEST_LAYER)
    mixer: Any = setting("attention", group="mixer")
    positions: Literal["learned", "sincos1d", "sincos2d", "rotary", "none"] = "learned"
    pool: Literal["token", "mean", "none"] = "token"
    class_token: Optional[bool] = None  # when not given: where pool=token
    registers: int = setting(0, least=0, most=LARGEST_LAYER)
    distillation: bool = False  # DeiT's second token and head
    # learned positions for class token and registers too
    prefix_positions: bool = setting(True, when={"positions": ("learned",)})
    layer_scale: Optional[float] = setting(None, above=0, most=1e6)  # where its factors start; none: no LayerScale
    norm_pre: bool = False  # a norm before the first block and no bias in the patch embedding, as in CLIP
    fc_norm: bool = False  # the last norm after pooling, as in timm's mean-pooled models, not before
    pre_logits: bool = False  # the paper's pre-training head: a hidden tanh layer before the linear one


@choice("model", "timm")
class TimmConfig(ModelConfig):
    """Any model of timm, by its name there."""

    timm_name: str = MISSING
    pretrained: bool = False
    # auto: ImageNet's stem (stride 4) from 65 pixels up, else a 3x3 convolution of stride 1, as is usual for CIFAR
    stem: Literal["auto", "imagenet", "small"] = "imagenet"
    options: dict[str, Any] = setting({})  # passed to timm.create_model


@choice("model", "resnet")
class ResNetConfig(ModelConfig):
    """A basic-block ResNet of any width and depth with a stride-1 stem, for small images."""

    family: str = "resnet"
    size: Optional[float] = setting(None, above=0, most=1e4, affects=NO_EFFECT)  # times the parameters of the blocks
    layers: list[int] = setting([1, 1, 1], least=1, most=LARGEST_DEPTH)  # blocks per stage
    widths: list[int] = setting([16, 32, 64], least=1, most=LARGEST_LAYER)  # channels of each stage


@choice("model", "color_histogram")
class ColorHistogramConfig(ModelConfig):
    family: str = "histogram"
    bins: int = setting(6, least=2, most=32)  # of a channel; bins ** channels in all


@dataclass(frozen=True)
class TextModelConfig(ModelConfig):
    """A model of text. A run has the vocabulary and the length of its data; `describe` counts with the published."""

    modality: Modality = setting("text", fixed=True)
    published_vocabulary: Optional[int] = setting(None, least=1, most=10**8, affects=NO_EFFECT)
    published_length: Optional[int] = setting(None, least=1, most=LARGEST_LENGTH, affects=NO_EFFECT)  # tokens


@choice("model", "text")
class TextConfig(TextModelConfig, TransformerConfig):
    """A transformer over tokens: causal as GPT, or seeing both sides as BERT."""

    family: str = "transformer"
    causal: bool = True
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "gelu_tanh"
    mixer: Any = setting("attention", group="mixer")
    positions: Literal["learned", "sincos", "rotary", "relative", "none"] = "learned"
    segments: int = setting(0, least=0, most=LARGEST_LAYER)  # kinds of segment embeddings; 2 for pairs
    # what a classifier reads; token: the last one of a causal model, else the first
    pool: Literal["token", "mean"] = "token"
    norm_eps: float = setting(1e-5, above=0, most=1)
    norm_first: bool = True  # pre-norm; else post-norm, with a norm of the embeddings too, as in BERT
    scaled_residuals: bool = False  # first weights of the layers that add to the residual stream by 1/sqrt(2 depth)


@choice("model", "encoder_decoder")
class EncoderDecoderConfig(TextModelConfig, TransformerConfig):
    """A transformer that reads a source and writes a target (Vaswani et al., 2017)."""

    family: str = "transformer"
    depth: int = setting(6, least=1, most=LARGEST_DEPTH)
    decoder_depth: Optional[int] = setting(None, least=1, most=LARGEST_DEPTH)  # depth when not given
    width: int = setting(512, least=1, most=LARGEST_LAYER)
    heads: int = setting(8, least=1, most=LARGEST_LAYER)
    head_width: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # the decoder attends with any mixer
    attention_dropout: float = setting(0.0, least=0, most=0.99)
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu", "geglu", "geglu_tanh"] = "relu"
    mixer: Any = setting("attention", group="mixer")  # of the encoder
    bias: bool = True  # of the linear layers of attention and MLPs
    positions: Literal["learned", "sincos", "rotary", "relative", "none"] = "sincos"  # relative: T5's
    # one matrix for the embeddings of source and target and for the output; for the last two; for the first; or three
    share_embeddings: Literal["all", "decoder", "inputs", "none"] = "all"
    # batchnorm: of the encoder; the decoder has layernorm
    norm: Literal["layernorm", "rmsnorm", "batchnorm"] = "layernorm"


@choice("model", "captioner")
class CaptionerConfig(TransformerConfig):
    """A vision transformer that a decoder of text looks at; the options are the decoder's."""

    family: str = "captioner"
    encoder: Any = setting("vit_nano", group="model")  # of images: a model of kind vit
    depth: int = setting(6, least=1, most=LARGEST_DEPTH)
    width: int = setting(512, least=1, most=LARGEST_LAYER)
    heads: int = setting(8, least=1, most=LARGEST_LAYER)
    positions: Literal["learned", "sincos", "rotary", "none"] = "learned"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"


@choice("model", "lstm")
class LSTMConfig(TextModelConfig):
    """A stack of recurrent layers over tokens, in both directions unless causal."""

    family: str = "lstm"
    cell: Literal["lstm", "gru", "rnn"] = "lstm"  # rnn: Elman's, with tanh
    causal: bool = True
    depth: int = setting(2, least=1, most=LARGEST_DEPTH)
    width: int = setting(512, least=1, most=LARGEST_LAYER)
    segments: int = setting(0, least=0, most=LARGEST_LAYER)
    pool: Literal["token", "mean"] = "token"  # what a classifier reads, as of a Transformer
    dropout: float = setting(0.0, least=0, most=0.99)


@choice("model", "recurrent")
class RecurrentConfig(TextModelConfig):
    """A recurrent encoder-decoder: Bahdanau et al.'s (2015) encoder, the decoder theirs or Luong et al.'s (2015)."""

    family: str = "rnn"
    cell: Literal["gru", "lstm", "rnn"] = "gru"  # rnn: Elman's, with tanh
    depth: int = setting(1, least=1, most=LARGEST_DEPTH)
    decoder_depth: Optional[int] = setting(None, least=1, most=LARGEST_DEPTH)  # depth when not given
    width: int = setting(512, least=1, most=LARGEST_LAYER)  # of the decoder, and of both directions of the encoder
    embedding: Optional[int] = setting(None, least=1, most=LARGEST_LAYER)  # width when not given
    score: Literal["additive", "dot", "general", "scaled_dot", "cosine", "none"] = "additive"  # none: no attention
    # after: the state after a token attends (Luong et al.); before: that before it (Bahdanau et al.), a token at a time
    attend: Literal["after", "before"] = "after"
    input_feeding: bool = False  # what a token found is read with the next one, one at a time: Luong's
    # one matrix for the embeddings of source and target and for the output; for those of the decoder; or three
    share_embeddings: Literal["all", "decoder", "none"] = "all"
    dropout: float = setting(0.0, least=0, most=0.99)


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
class Architecture:
    """A `model_type` of transformers: its config.json, its weights, and which model it is here."""

    model_class: str
    prefix: str  # of the body's weights, which have none in a file of the body alone
    keys: Mapping[str, str]  # of config.json -> of the model here, or two of them
    # weights, or what their names begin with, there -> here, with `{i}` for the layer; here queries, keys and values
    # are joined
    names: Mapping[str, str]
    fixed: Mapping[str, Any]  # keys of config.json that it may lack, with one value here
    model: Mapping[str, Any]  # keys that all models of this type have here
    choices: Mapping[str, Container[Any]]  # of keys that may have some values here
    optional: tuple[str, ...] = ()  # keys of config.json that it may lack, as it may rates of dropout


ENCODER_KEYS = {
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_width",
    "hidden_act": "mlp",
    "layer_norm_eps": "norm_eps",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
PLAIN_MLPS = ("gelu", "gelu_tanh", "quick_gelu", "relu")


def encoder_names(theirs: str, here: str, attention: str, norm1: str, norm2: str) -> dict[str, str]:
    """Map the names of layers with BERT's parts to ours: separate queries, keys, values, and two layers of an MLP."""
    parts = {f"attention.{attention}.{name}.": f"mixer.{name[0]}." for name in ("query", "key", "value")}
    parts |= {"attention.output.dense.": "mixer.proj.", f"{norm1}.": "norm1.", f"{norm2}.": "norm2."}
    parts |= {"intermediate.dense.": "mlp.fc1.", "output.dense.": "mlp.fc2."}
    return {f"{theirs}.encoder.layer.{{i}}.{part}": f"{here}blocks.{{i}}.{own}" for part, own in parts.items()}


VIT_LAYER = {f"attention.{part}_proj": f"mixer.{part}" for part in "qkv"} | {"attention.o_proj": "mixer.proj"}
VIT_LAYER |= {"layernorm_before": "norm1", "layernorm_after": "norm2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
VIT = Architecture(
    model_class="ViTForImageClassification",
    prefix="vit.",
    keys={
        **ENCODER_KEYS,
        "image_size": "published_image_size",
        "patch_size": "patch_size",
        "num_channels": "published_channels",
    },
    names={
        "vit.embeddings.cls_token": "cls_token",
        "vit.embeddings.position_embeddings": "pos_embed",
        "vit.embeddings.patch_embeddings.projection.": "patch_embed.proj.",
        # of transformers 5 in memory; it writes the names after these to files
        **{f"vit.layers.{{i}}.{a}.": f"encoder.blocks.{{i}}.{b}." for a, b in VIT_LAYER.items()},
        **encoder_names("vit", "encoder.", "attention", "layernorm_before", "layernorm_after"),
        "vit.layernorm.": "encoder.norm.",
        "vit.pooler.dense.": "pre_logits.0.",  # of a ViTModel
        "classifier.": "head.",
    },
    fixed={"qkv_bias": True, "pooler_act": "tanh"},
    model={"kind": "vit", "recipe": "vit_finetune"},
    choices={"mlp": PLAIN_MLPS},
)
DINOV2_LAYER = {f"attention.{part}_proj.": f"mixer.{part}." for part in "qkv"} | {"attention.o_proj.": "mixer.proj."}
DINOV2_LAYER |= {f"layer_scale{n}.lambda1": f"ls{n}.gamma" for n in (1, 2)} | {
    f"mlp.fc{n}.": f"mlp.fc{n}." for n in (1, 2)
}
DINOV2 = replace(
    VIT,
    model_class="Dinov2ForImageClassification",
    prefix="dinov2.",
    keys={key: here for key, here in VIT.keys.items() if key != "intermediate_size"}
    | {"mlp_ratio": "mlp_ratio", "layerscale_value": "layer_scale"},
    names={
        "dinov2.embeddings.cls_token": "cls_token",
        "dinov2.embeddings.mask_token": "mask_token",
        "dinov2.embeddings.position_embeddings": "pos_embed",
        "dinov2.embeddings.patch_embeddings.projection.": "patch_embed.proj.",
        **{f"dinov2.encoder.layer.{{i}}.{a}": f"encoder.blocks.{{i}}.{b}" for a, b in DINOV2_LAYER.items()},
        **{
            there: here
            for there, here in encoder_names("dinov2", "encoder.", "attention", "norm1", "norm2").items()
            if ".mlp." not in here
        },
        "dinov2.layernorm.": "encoder.norm.",
        "classifier.": "head.",
    },
    fixed={"qkv_bias": True, "use_swiglu_ffn": False},
)
BERT = Architecture(
    model_class="BertForPreTraining",
    prefix="bert.",
    keys={
        **ENCODER_KEYS,
        "vocab_size": "published_vocabulary",
        "max_position_embeddings": "published_length",
        "type_vocab_size": "segments",
    },
    names={
        "bert.embeddings.word_embeddings.": "text.embed.tokens.",
        "bert.embeddings.position_embeddings.weight": "text.embed.positions",
        "bert.embeddings.token_type_embeddings.": "text.embed.segments.",
        "bert.embeddings.LayerNorm.": "text.embed.norm.",
        **encoder_names("bert", "text.encoder.", "self", "attention.output.LayerNorm", "output.LayerNorm"),
        "bert.pooler.dense.": "pooler.",
        "cls.predictions.transform.dense.": "transform.",
        "cls.predictions.transform.LayerNorm.": "norm.",
        "cls.predictions.bias": "bias",
        "cls.seq_relationship.": "next_sentence.",
        "qa_outputs.": "head.",
        "classifier.": "head.",
    },
    fixed={
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    model={"kind": "text", "family": "bert", "recipe": "bert_finetune", "causal": False, "norm_first": False},
    # the head has the same activation
    choices={"mlp": ("gelu",), "segments": range(1, LARGEST_LAYER + 1), "pool": ("token", "mean")},
)
GPT2_LAYER = {"ln_1": "norm1", "attn.c_attn": "mixer.qkv", "attn.c_proj": "mixer.proj", "ln_2": "norm2"}
GPT2_LAYER |= {"mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
GPT2 = Architecture(
    model_class="GPT2LMHeadModel",
    prefix="transformer.",
    keys={
        "vocab_size": "published_vocabulary",
        "n_positions": "published_length",
        "n_embd": "width",
        "n_layer": "depth",
        "n_head": "heads",
        "n_inner": "mlp_width",
        "activation_function": "mlp",
        "layer_norm_epsilon": "norm_eps",
        "embd_pdrop": "dropout",
        "resid_pdrop": "dropout",
        "attn_pdrop": "attention_dropout",
    },
    names={
        "transformer.wte.": "text.embed.tokens.",
        "transformer.wpe.weight": "text.embed.positions",
        **{f"transformer.h.{{i}}.{a}.": f"text.encoder.blocks.{{i}}.{b}." for a, b in GPT2_LAYER.items()},
        "transformer.ln_f.": "text.encoder.norm.",
    },
    fixed={
        "tie_word_embeddings": True,
        "add_cross_attention": False,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    },
    model={"kind": "text", "family": "gpt", "recipe": "gpt_finetune", "scaled_residuals": True},
    choices={"mlp": PLAIN_MLPS, "pool": ("token", "mean")},
    optional=("n_inner",),  # four times the width
)
T5_ATTENTION = {"q": "q", "k": "k", "v": "v", "o": "proj"}
T5_PARTS = {  # of a layer here -> its norm here, its name there, its weights
    "mixer": ("norm1", "SelfAttention", T5_ATTENTION),
    "cross": ("norm_cross", "EncDecAttention", T5_ATTENTION),
    "mlp": ("norm2", "DenseReluDense", {"wi": "fc1", "wi_0": "fc1_g", "wi_1": "fc1_x", "wo": "fc2"}),
}


def t5_names(theirs: str, here: str, *parts: str) -> dict[str, str]:
    """Map the names of T5's encoder or decoder, whose layers have these parts, to ours."""
    names = {"block.0.layer.0.SelfAttention.relative_attention_bias.weight": "relative.bias"}
    names |= {"final_layer_norm.": "encoder.norm.", "embed_tokens.": "embed.tokens."}
    for place, part in enumerate(parts):
        norm, name, weights = T5_PARTS[part]
        layer, own = f"block.{{i}}.layer.{place}.", "encoder.blocks.{i}."
        names |= {f"{layer}layer_norm.": f"{own}{norm}."}
        names |= {f"{layer}{name}.{a}.": f"{own}{part}.{b}." for a, b in weights.items()}
    return {f"{theirs}.{there}": f"{here}.{own}" for there, own in names.items()}


T5 = Architecture(
    model_class="T5ForConditionalGeneration",
    prefix="",
    keys={
        "vocab_size": "published_vocabulary",
        "d_model": "width",
        "num_layers": "depth",
        "num_decoder_layers": "decoder_depth",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "mlp_width",
        "feed_forward_proj": "mlp",
        "layer_norm_epsilon": "norm_eps",
        "dropout_rate": "dropout attention_dropout",
    },
    names={
        **t5_names("encoder", "text", "mixer", "mlp"),
        **t5_names("decoder", "decoder", "mixer", "cross", "mlp"),
        "shared.": "text.embed.tokens.",
        "lm_head.": "output.",
    },
    fixed={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    model={
        "kind": "encoder_decoder",
        "recipe": "t5_finetune",
        "positions": "relative",
        "norm": "rmsnorm",
        "bias": False,
        "published_length": 512,  # of its training; relative positions have no limit
    },
    choices={"mlp": ("gelu", "relu", "geglu_tanh", "swiglu"), "share_embeddings": ("all", "inputs")},
    optional=("feed_forward_proj", "num_decoder_layers"),  # relu, and as many layers as the encoder
)
ARCHITECTURES = {"vit": VIT, "dinov2": DINOV2, "bert": BERT, "gpt2": GPT2, "t5": T5}


OF_DATA = ("num_classes", "in_chans", "img_size")  # arguments of timm's models


def is_folder(path: str | Path) -> bool:
    """Tell whether a path is a folder with a config.json."""
    return (Path(path) / CONFIG).is_file()


def timm_model(source: str) -> dict[str, Any]:
    """Return the settings of the model `timm:NAME` with its weights, of `timm:NAME=FILE` with those of the file.

    Raises UserError for no such file.
    """
    name, _, file = source.partition("=")
    if file and is_folder(file):
        raise UserError(f"{source}: {file} is a folder; give {file} alone")
    if file and not Path(file).is_file():
        raise UserError(f"{source}: no such file '{file}'; give weights in timm's names")
    overlay = {"options": {"pretrained_cfg_overlay": {"file": file}}} if file else {}
    return {"name": name, "pretrained": True, **overlay}


class FolderConfig(TypedDict, total=False):
    """The keys of a config.json that are used as they are; the sizes are checked as settings of a model."""

    __pydantic_config__ = {"extra": "allow"}  # noqa: RUF012
    model_type: Optional[str]
    architectures: Optional[list[str]]
    id2label: Optional[dict[int, Union[str, int]]]
    num_labels: Optional[int]


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a folder's config.json: its content, and the choice of the group `model` that it describes.

    Raises UserError for what this project's models lack.
    """
    try:
        text = (folder / CONFIG).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot read config.json ({first_line(error)})") from None
    config = parse_json(FolderConfig, text, f"{folder}: config.json", "give one that transformers wrote")
    kind = config.get("model_type")
    if kind is None and "architecture" in config:  # of timm, whose builder sets what follows from the data
        options = {key: value for key, value in (config.get("model_args") or {}).items() if key not in OF_DATA}
        about = {"kind": "timm", "timm_name": config["architecture"], "options": options}
        return config, {"name": folder.resolve().name, **about, "init": str(folder)}
    if kind not in ARCHITECTURES:
        raise UserError(f"{folder}: config.json has model_type={kind}; choices: {', '.join(ARCHITECTURES)}")
    of = ARCHITECTURES[kind]
    lacking = [key for key, here in of.keys.items() if config.get(key) is None and not here.endswith("dropout")]
    if lacking := [key for key in lacking if key not in of.optional]:
        raise UserError(f"{folder}: config.json lacks {', '.join(lacking)}")
    given = ((config.get(key), here) for key, here in of.keys.items())
    model = {own: value for value, here in given for own in here.split() if value is not None}
    problems = [
        f"{folder}: config.json has {key}={config.get(key)}; vitlab's models have {key}={value}"
        for key, value in of.fixed.items()
        if config.get(key, value) != value
    ]
    activations = {name: here for name, here in ACTIVATIONS.items() if here in of.choices["mlp"]}
    if (activation := str(model.get("mlp", "relu"))) not in activations:
        problems.append(f"{folder}: unknown activation {activation}; {choices_text(activation, activations)}")
    raise_all(problems)
    model["mlp"] = activations[activation]
    if "mlp_ratio" in model:
        model["mlp_width"] = int(model.pop("mlp_ratio") * model["width"])
    if "num_channels" in of.keys:  # a classifier whose config.json does not say has two classes, a body alone none
        classifies = any(name.endswith("ForImageClassification") for name in config.get("architectures") or ())
        count = len(config.get("id2label") or {}) or config.get("num_labels") or (2 if classifies else None)
        model["published_num_classes"] = count
    if of is T5:  # in the paper and not in version 1.1, its output layer is tied and scaled
        scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
        model["share_embeddings"] = "all" if scaled else "inputs"
    return config, {"name": folder.resolve().name, **of.model, **model, "init": str(folder)}
