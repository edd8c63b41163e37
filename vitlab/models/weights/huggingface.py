"""ViT, BERT, GPT-2, GPT-NeoX, ESM and T5 as folders of Hugging Face's transformers: config.json and model.safetensors.

Their weights differ in names, in the order of queries, keys and values, and in GPT-2's transposed matrices. Shapes:
H heads, K head width.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from vitlab.config import DescribeConfig, UserError, compose, first_line
from vitlab.config.schema.models import ACTIVATIONS, ModelConfig, class_names, read_config, read_model, scales_output
from vitlab.data.text.tokenization import from_file
from vitlab.files import replacing, write_json
from vitlab.models import build, described_shape
from vitlab.models.counting import count
from vitlab.models.encoder import TokenBatchNorm
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.heads import Bert, LanguageModel, TextModel
from vitlab.models.mixers.attention import Attention
from vitlab.models.text import TextEncoder
from vitlab.models.vit import ViT
from vitlab.models.weights import t5
from vitlab.models.weights.architectures import READABLE, T5, WRITABLE, Architecture
from vitlab.models.weights.load import LoadReport, Weights, describe_weights, fit, shorten
from vitlab.models.weights.options import mlp_name

TIED = ("lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
# in files of older versions
BUFFERS = (".attn.bias", ".attn.masked_bias", "position_ids", ".EncDecAttention.relative_attention_bias.weight")
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # (inputs, outputs)


def load_huggingface(folder: str | Path) -> tuple[ViT | Bert | LanguageModel | EncoderDecoder, LoadReport]:
    """A ViT, BERT, GPT-2, GPT-NeoX or T5 from its folder, in eval mode, and what happened to each weight.

    A ViT has the folder's classes; without a classifier it gives features (B, D), after the pooler where there is one.
    Heads of a model of text that the folder lacks are new. Raises UserError for other folders and for options that
    this project's models do not have.
    """
    config, weights = read_huggingface(folder)
    model = build(config.model, **described_shape(config))
    return model.eval(), fit(model, weights)


def read_huggingface(folder: str | Path) -> tuple[ModelConfig, Weights]:
    """The model of a folder, as a DescribeConfig, and its weights in this project's names. Raises UserError."""
    folder = Path(folder)
    read_config(folder)  # a problem there is said first
    try:
        state = load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder}: cannot read model.safetensors ({first_line(error)})") from None
    return interpret(folder, state, str(folder))


def interpret(folder: Path, state: Mapping[str, Tensor], origin: str) -> tuple[ModelConfig, Weights]:
    """The same of weights in transformers' names that belong to a folder's config.json."""
    config, model = read_config(folder), read_model(folder)
    kind, num_classes = config["model_type"], None
    state = rename_state(state, READABLE[kind])
    if kind == "gpt_neox":
        heads = config["num_attention_heads"]
        for name in (name for name in state if ".mixer.qkv." in name):  # (H * 3 * K, ...) -> (3 * H * K, ...)
            value = state[name].unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
            state[name] = reorder_rotary(value, heads, back=True)
    if kind == "t5":
        state = t5.from_t5(state, scales_output(config))
        model["share_embeddings"] = t5.sharing(state)
    if kind == "vit":
        model["pre_logits"] = "pre_logits.0.weight" in state
        num_classes = len(state["head.weight"]) if "head.weight" in state else 0
    try:
        described = compose(DescribeConfig, base={"model": model, "num_classes": num_classes})
        shell = count.meta(described.model, **described_shape(described))
    except (UserError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise UserError(f"{folder}: cannot build a model of config.json's sizes ({first_line(error)})") from error
    sizes = {"classes": class_names(config), "tokens": count_tokens(folder)}
    return described, describe_weights(shell, state, origin, **sizes)


def count_tokens(folder: Path) -> int | None:
    """The tokens of a folder's tokenizer, None without one that can be read: whoever uses it says why."""
    with contextlib.suppress(UserError):
        return from_file(folder).size


def rename_from_huggingface(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The weights of a ViT, BERT, GPT-2 or T5 in this project's names; others as they are."""
    for architecture in READABLE.values():
        if architecture.probe and {architecture.probe, architecture.prefix + architecture.probe} & state.keys():
            renamed = rename_state(state, architecture)
            return t5.from_t5(renamed, t5.seems_scaled(renamed)) if architecture is T5 else renamed
    return state


def rename_state(state: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """Weights of an architecture in this project's names, queries, keys and values joined; others as they are."""
    renamed = {}
    for name, value in state.items():
        if (name in TIED and architecture is not T5) or name.endswith(BUFFERS):
            continue
        theirs = name.removeprefix(architecture.prefix)
        here = rename(theirs, architecture.names) or theirs
        renamed[here] = value.T if theirs.endswith(TRANSPOSED) and value.dim() == 2 else value
    for name in [name for name in renamed if ".q." in name]:
        parts = [renamed.pop(name.replace(".q.", f".{part}."), None) for part in "qkv"]
        if all(part is not None for part in parts):
            renamed[name.replace(".q.", ".qkv.")] = torch.cat(parts)
    return renamed


def save_huggingface(model: nn.Module, folder: str | Path, **config: Any) -> list[str]:
    """Write a model as a folder that transformers loads; returns the names of the weights that it has no place for.

    A ViT as ViTForImageClassification; a causal language model as GPT2LMHeadModel, with rotary positions as
    GPTNeoXForCausalLM; a BERT as BertForPreTraining, with rotary positions as EsmForMaskedLM, which has neither
    segments (its texts are of the first one) nor the next-sentence head; an encoder-decoder with T5's options as
    T5ForConditionalGeneration. `config` are further keys of config.json. Raises UserError for a model with options
    that these do not have.
    """
    kind = choose_architecture(model)
    architecture = WRITABLE[kind]
    body = model if kind == "vit" else model.text
    state, left_out = {name: value.detach().cpu() for name, value in model.state_dict().items()}, []
    if kind == "esm":
        left_out = [name for name in state if name.startswith(("pooler.", "next_sentence."))]
        state = fold_segments({name: value for name, value in state.items() if name not in left_out})
    if kind == "t5":
        t5.check_writable(model)
        state = t5.to_t5(state)
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        tensors |= split_attention(name, value, kind, body.encoder.blocks[0].mixer)
    names = {name: rename(name, [(here, theirs) for theirs, here in architecture.names]) for name in tensors}
    if kind != "t5":
        check_writable(body, architecture, names)
    theirs = {
        (name if name.startswith(architecture.heads) else architecture.prefix + name): (
            tensors[here].T if name.endswith(TRANSPOSED) else tensors[here]
        ).contiguous()
        for here, name in names.items()
    }
    if kind == "bert":  # its class asks for both names
        theirs["cls.predictions.decoder.bias"] = theirs["cls.predictions.bias"].clone()
    sizes = t5.describe_sizes(model) if kind == "t5" else describe_sizes(body)
    settings = {key: sizes[here] for key, here in architecture.settings.sizes.items()}
    if kind == "t5":  # whether the output layer is tied, and scaled
        tied = model.output.weight is model.text.embed.tokens.weight
        settings |= {"tie_word_embeddings": tied, "scale_decoder_outputs": tied}
    if kind == "vit":  # without names transformers makes a classifier of two classes
        settings["id2label"] = {str(index): f"LABEL_{index}" for index in range(model.head.out_features)}
    settings |= {"model_type": kind, "architectures": [architecture.model_class], **architecture.settings.fixed}
    settings |= config
    write_json(Path(folder) / "config.json", settings)
    with replacing(Path(folder) / "model.safetensors") as file:
        file.write(save(theirs, metadata={"format": "pt"}))
    return left_out


def choose_architecture(model: nn.Module) -> str:
    """The model_type that a model is written as. Raises UserError."""
    if isinstance(model, ViT):
        return "vit"
    if isinstance(model, (Bert, LanguageModel)) and isinstance(model.text, TextEncoder):
        rotary = model.text.rotary is not None
        if isinstance(model, Bert):
            return "esm" if rotary else "bert"
        return "gpt_neox" if rotary else "gpt2"
    if isinstance(model, EncoderDecoder):
        return "t5"
    name = type(model.text if isinstance(model, TextModel) else model).__name__
    what = type(model).__name__ if name == "TextEncoder" else name
    raise UserError(f"transformers has no {what}; export to a .safetensors file instead")


def check_writable(body: nn.Module, architecture: Architecture, names: Mapping[str, str | None]) -> None:
    """Raise UserError for options and weights that an architecture does not have."""
    mixer, activation = body.encoder.blocks[0].mixer, mlp_name(body.encoder.blocks[0].mlp)
    options = {
        "model.norm=batchnorm": isinstance(body.encoder.blocks[0].norm1, TokenBatchNorm),
        f"model.mixer={type(mixer).__name__.lower()}": type(mixer) is not Attention,
        f"model.mlp={activation}": activation not in architecture.settings.activations,
    }
    if isinstance(body, ViT):
        options[f"model.pool={body.pool}"] = body.pool != "token"
        options["positions but learned ones of all tokens"] = body.prefix_positions != body.num_prefix_tokens
    if isinstance(mixer, Attention):
        options["model.head_width"] = mixer.proj.in_features != mixer.proj.out_features
    expected = [name for rule in architecture.names for name in expand(rule[1], len(body.encoder.blocks))]
    surplus = [option for option, given in options.items() if given]
    surplus = surplus or [name for name, theirs in names.items() if theirs is None or name.startswith("pre_logits.")]
    lacking = [name for name in expected if name not in names and not name.startswith("pre_logits.")]
    if surplus or lacking:
        raise UserError(
            f"transformers' {architecture.model_class} "
            + (f"has no {shorten(surplus)}" if surplus else f"needs {shorten(lacking)}, which the model does not have")
            + "; export to a .safetensors file instead"
        )


def expand(here: str, depth: int) -> Iterator[str]:
    """The parameters of a rule's right side, of all layers."""
    suffixes = [""] if here[-1] != "." else ["weight", "bias"]
    suffixes = ["weight"] if here.endswith(("tokens.", "segments.")) else suffixes
    for layer in range(depth if "{i}" in here else 1):
        yield from (here.replace("{i}", str(layer)) + suffix for suffix in suffixes)


def rename(name: str, rules: Iterable[tuple[str, str]]) -> str | None:
    """A name by the first rule whose left side it begins with; None without one."""
    for source, target in rules:
        if match := re.match(re.escape(source).replace(r"\{i\}", r"(\d+)"), name):
            return target.replace("{i}", match[1] if match.groups() else "") + name[match.end() :]
    return None


def split_attention(name: str, value: Tensor, kind: str, mixer: nn.Module) -> dict[str, Tensor]:
    """A parameter as an architecture has it: queries, keys and values apart, or in its order."""
    if ".qkv." not in name or type(mixer) is not Attention or kind == "gpt2":
        return {name: value}
    if kind == "gpt_neox":
        value = reorder_rotary(value, mixer.heads)  # (3 * H * K, ...) -> (H * 3 * K, ...)
        return {name: value.unflatten(0, (3, mixer.heads, -1)).transpose(0, 1).flatten(0, 2)}
    value = reorder_rotary(value, mixer.heads) if kind == "esm" else value
    return {name.replace(".qkv.", f".{part}."): v for part, v in zip("qkv", value.chunk(3), strict=True)}


def reorder_rotary(qkv: Tensor, heads: int, back: bool = False) -> Tensor:
    """Rotary pairs (2i, 2i + 1) of queries and keys to transformers' (i, i + K/2), or back; shape (3 * H * K, ...)."""
    q, k, v = qkv.unflatten(0, (3, heads, -1))
    order = torch.arange(q.shape[1]).view(-1, 2).T.flatten()
    order = order.argsort() if back else order
    return torch.stack([q[:, order], k[:, order], v]).flatten(0, 2)


def fold_segments(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights without segments: the first one's vector is part of each token's, and no longer of the output layer."""
    tokens, segments = state["text.embed.tokens.weight"], state.pop("text.embed.segments.weight", None)
    inputs = tokens.clone() if segments is None else tokens + segments[0]
    return {**state, "text.embed.tokens.weight": inputs, "decoder.weight": tokens}


def describe_sizes(body: nn.Module) -> dict[str, Any]:
    """The sizes of a model in this project's terms, the activation in transformers'."""
    block = body.encoder.blocks[0]
    mlp = next(theirs for theirs, here in ACTIVATIONS.items() if here == mlp_name(block.mlp))
    sizes = {"depth": len(body.encoder.blocks), "heads": block.mixer.heads, "mlp_width": block.mlp.fc1.out_features}
    sizes |= {"mlp": mlp, "norm_eps": block.norm1.eps}
    if isinstance(body, ViT):
        embed = body.patch_embed
        image_size, patch_size = (
            size[0] if size[0] == size[1] else list(size) for size in (embed.image_size, embed.patch_size)
        )
        sizes |= {"published_image_size": image_size, "published_channels": embed.proj.in_channels}
        return {**sizes, "patch_size": patch_size, "width": body.width}
    embed = body.embed
    sizes |= {"published_vocabulary": embed.tokens.num_embeddings, "published_length": embed.length}
    sizes |= {"width": embed.tokens.embedding_dim}
    return {**sizes, "segments": embed.segments and embed.segments.num_embeddings}
