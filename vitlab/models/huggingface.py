"""ViT, BERT, GPT-2, GPT-NeoX, ESM and T5 as folders of Hugging Face's transformers: config.json and model.safetensors.

Their weights differ in names, in the order of queries, keys and values, and in GPT-2's transposed matrices. T5's
attention and embeddings are not scaled, but its tied output layer is. Here attention and embeddings are (Vaswani et
al., 2017), so T5's queries are multiplied by sqrt(K) and its embeddings divided by sqrt(D): the same function.

Shapes: H heads, K head width, D width, V vocabulary.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from typing_extensions import TypedDict

from vitlab.config import DescribeConfig, UserError, compose, first_line
from vitlab.config.errors import parse_json
from vitlab.config.schema import models as schema
from vitlab.config.schema.models import (
    ACTIVATIONS,
    ModelConfig,
    Settings,
    class_names,
    read_config,
    read_model,
    scales_output,
)
from vitlab.data.text.tokenization import from_file
from vitlab.files import check_regular, read_utf8, reading, replacing, write_json
from vitlab.models import build, counting, described_shape
from vitlab.models.encoder import TokenBatchNorm
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.mixers.attention import Attention
from vitlab.models.text import Bert, LanguageModel, TextEncoder, TextModel
from vitlab.models.vit import ViT
from vitlab.models.weights import LoadReport, Weights, describe_weights, fit, mlp_name, shorten, unwrap


@dataclass(frozen=True)
class Architecture:
    """One `model_type` of transformers: tables of (theirs, here); `{i}` in a name is the layer."""

    model_class: str
    prefix: str  # of the body's names in a model with a head
    heads: tuple[str, ...]  # what the names of heads begin with: they have no prefix
    names: tuple[tuple[str, str], ...]
    settings: Settings  # its config.json
    probe: str = ""  # a name that tells a file of this architecture


def encoder_names(body: str, norm1: str, norm2: str) -> tuple[tuple[str, str], ...]:
    """Names of layers with BERT's parts: separate queries, keys and values, an intermediate and an output layer."""
    layer = "encoder.layer.{i}."
    return (
        (f"{layer}attention.{body}.query.", "blocks.{i}.mixer.q."),
        (f"{layer}attention.{body}.key.", "blocks.{i}.mixer.k."),
        (f"{layer}attention.{body}.value.", "blocks.{i}.mixer.v."),
        (f"{layer}attention.output.dense.", "blocks.{i}.mixer.proj."),
        (f"{layer}{norm1}.", "blocks.{i}.norm1."),
        (f"{layer}intermediate.dense.", "blocks.{i}.mlp.fc1."),
        (f"{layer}output.dense.", "blocks.{i}.mlp.fc2."),
        (f"{layer}{norm2}.", "blocks.{i}.norm2."),
    )


def inside(prefix: str, names: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((theirs, prefix + here) for theirs, here in names)


VIT = Architecture(
    model_class="ViTForImageClassification",
    prefix="vit.",
    heads=("classifier.",),
    names=(
        ("embeddings.cls_token", "cls_token"),
        ("embeddings.position_embeddings", "pos_embed"),
        ("embeddings.patch_embeddings.projection.", "patch_embed.proj."),
        *inside("encoder.", encoder_names("attention", "layernorm_before", "layernorm_after")),
        ("layernorm.", "encoder.norm."),
        ("classifier.", "head."),
        ("pooler.dense.", "pre_logits.0."),  # of a ViTModel
    ),
    settings=schema.VIT,
    probe="encoder.layer.0.attention.attention.query.weight",
)
BERT = Architecture(
    model_class="BertForPreTraining",
    prefix="bert.",
    heads=("cls.",),
    names=(
        ("embeddings.word_embeddings.", "text.embed.tokens."),
        ("embeddings.position_embeddings.weight", "text.embed.positions"),
        ("embeddings.token_type_embeddings.", "text.embed.segments."),
        ("embeddings.LayerNorm.", "text.embed.norm."),
        *inside("text.encoder.", encoder_names("self", "attention.output.LayerNorm", "output.LayerNorm")),
        ("pooler.dense.", "pooler."),
        ("cls.predictions.transform.dense.", "transform."),
        ("cls.predictions.transform.LayerNorm.", "norm."),
        ("cls.predictions.bias", "bias"),
        ("cls.seq_relationship.", "next_sentence."),
    ),
    settings=schema.BERT,
    probe="encoder.layer.0.attention.self.query.weight",
)
GPT2 = Architecture(
    model_class="GPT2LMHeadModel",
    prefix="transformer.",
    heads=(),
    names=(
        ("wte.", "text.embed.tokens."),
        ("wpe.weight", "text.embed.positions"),
        ("h.{i}.ln_1.", "text.encoder.blocks.{i}.norm1."),
        ("h.{i}.attn.c_attn.", "text.encoder.blocks.{i}.mixer.qkv."),
        ("h.{i}.attn.c_proj.", "text.encoder.blocks.{i}.mixer.proj."),
        ("h.{i}.ln_2.", "text.encoder.blocks.{i}.norm2."),
        ("h.{i}.mlp.c_fc.", "text.encoder.blocks.{i}.mlp.fc1."),
        ("h.{i}.mlp.c_proj.", "text.encoder.blocks.{i}.mlp.fc2."),
        ("ln_f.", "text.encoder.norm."),
    ),
    settings=schema.GPT2,
    probe="h.0.attn.c_attn.weight",
)
GPT_NEOX = Architecture(  # a causal language model with rotary positions
    model_class="GPTNeoXForCausalLM",
    prefix="gpt_neox.",
    heads=(),
    names=(
        ("embed_in.", "text.embed.tokens."),
        ("layers.{i}.input_layernorm.", "text.encoder.blocks.{i}.norm1."),
        ("layers.{i}.attention.query_key_value.", "text.encoder.blocks.{i}.mixer.qkv."),
        ("layers.{i}.attention.dense.", "text.encoder.blocks.{i}.mixer.proj."),
        ("layers.{i}.post_attention_layernorm.", "text.encoder.blocks.{i}.norm2."),
        ("layers.{i}.mlp.dense_h_to_4h.", "text.encoder.blocks.{i}.mlp.fc1."),
        ("layers.{i}.mlp.dense_4h_to_h.", "text.encoder.blocks.{i}.mlp.fc2."),
        ("final_layer_norm.", "text.encoder.norm."),
    ),
    settings=schema.GPT_NEOX,
)
ESM = Architecture(  # a masked language model with rotary positions, pre-norm; written only
    model_class="EsmForMaskedLM",
    prefix="esm.",
    heads=("lm_head.",),
    names=(
        ("embeddings.word_embeddings.", "text.embed.tokens."),
        *inside("text.encoder.", encoder_names("self", "attention.LayerNorm", "LayerNorm")),
        ("encoder.emb_layer_norm_after.", "text.encoder.norm."),
        ("lm_head.dense.", "transform."),
        ("lm_head.layer_norm.", "norm."),
        ("lm_head.decoder.weight", "decoder.weight"),
        ("lm_head.bias", "bias"),
    ),
    settings=schema.ESM,
)


def t5_names(body: str, stack: str, parts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Names of T5's encoder or decoder: `parts` are those of a layer, each with a norm."""
    theirs, here = f"{body}.block.{{i}}.layer.", f"{stack}.encoder.blocks.{{i}}."
    names = {
        "mixer": [(f"SelfAttention.{part}.", f"mixer.{ours}.") for part, ours in zip("qkvo", T5_PARTS, strict=True)],
        "cross": [(f"EncDecAttention.{part}.", f"cross.{ours}.") for part, ours in zip("qkvo", T5_PARTS, strict=True)],
        "mlp": [
            (f"DenseReluDense.{part}.", f"mlp.{ours}.")
            for part, ours in (("wi", "fc1"), ("wi_0", "fc1_g"), ("wi_1", "fc1_x"), ("wo", "fc2"))
        ],
    }
    norms = {"mixer": "norm1.", "cross": "norm_cross.", "mlp": "norm2."}
    rules = [(f"{body}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{stack}.relative.bias")]
    for place, part in enumerate(parts):
        ours = [*names[part], ("layer_norm.", norms[part])]
        rules += [(f"{theirs}{place}.{name}", f"{here}{other}") for name, other in ours]
    return (*rules, (f"{body}.final_layer_norm.", f"{stack}.encoder.norm."))


T5_PARTS = ("q", "k", "v", "proj")
T5 = Architecture(
    model_class="T5ForConditionalGeneration",
    prefix="",
    heads=(),
    names=(
        *t5_names("encoder", "text", ("mixer", "mlp")),
        *t5_names("decoder", "decoder", ("mixer", "cross", "mlp")),
        ("shared.", "text.embed.tokens."),
        ("lm_head.", "output."),
    ),
    settings=schema.T5,
    probe="encoder.block.0.layer.0.SelfAttention.q.weight",
)
READABLE = {"vit": VIT, "bert": BERT, "gpt2": GPT2, "gpt_neox": GPT_NEOX, "t5": T5}
WRITABLE = {**READABLE, "esm": ESM}
TIED = ("lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
# in files of older versions
BUFFERS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")
BUFFERS += ("position_ids", "token_type_ids", ".EncDecAttention.relative_attention_bias.weight")
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
    path = folder / "model.safetensors"
    check_regular(path, str(path))
    with reading(
        str(path), "write it as one file by transformers' save_pretrained, or give init=FILE of other weights"
    ):
        state = load_file(path)
    return interpret(folder, state, str(folder))


def interpret(folder: Path, state: Mapping[str, Tensor], origin: str) -> tuple[ModelConfig, Weights]:
    """The same of weights in transformers' names that belong to a folder's config.json."""
    config, model = read_config(folder), read_model(folder)
    kind, num_classes = config["model_type"], None
    known: dict[str, Any] = {"classes": class_names(config), "tokens": count_tokens(folder)}
    with reading(origin, "its tensors need the shapes of config.json's sizes"):
        state = rename_state(unwrap(state)[0], READABLE[kind])
        if kind == "gpt_neox":
            heads = config["num_attention_heads"]
            for name in (name for name in state if ".mixer.qkv." in name):  # (H * 3 * K, ...) -> (3 * H * K, ...)
                value = state[name].unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
                state[name] = reorder_rotary(value, heads, back=True)
        if kind == "t5":
            state = from_t5(state, scales_output(config))
            model["share_embeddings"] = t5_sharing(state)
        if kind == "vit":
            model["pre_logits"] = "pre_logits.0.weight" in state
            num_classes, _ = state["head.weight"].shape if "head.weight" in state else (0, 0)
            known |= read_preprocessor(folder, config["image_size"])
    try:
        described = compose(DescribeConfig, base={"model": model, "num_classes": num_classes})
        shell = counting.meta(described.model, **described_shape(described))
    except (UserError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise UserError(f"{folder}: cannot build a model of config.json's sizes ({first_line(error)})") from error
    return described, describe_weights(shell, state, origin, **known)


# the keys of a preprocessor_config.json that say what a model has seen
SEEN = {"image_mean": list[float] | None, "image_std": list[float] | None, "size": int | dict[str, int] | None}
Preprocessor = TypedDict("Preprocessor", SEEN, total=False)


def read_preprocessor(folder: Path, image_size: Any) -> dict[str, Any]:
    """The mean and deviation of a folder's pictures, and advice where they have another size. Raises UserError."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return {}
    advice = "give one that transformers wrote, or delete it"
    found = parse_json(Preprocessor, read_utf8(path, str(folder)), f"{folder}: {path.name}", advice)
    size, wanted = found.get("size"), {*(image_size if isinstance(image_size, list) else [image_size])}
    differs = size and {*(size.values() if isinstance(size, dict) else [size])} != wanted
    advice = f"{path.name} makes pictures of size {size}, config.json says {image_size}" if differs else ""
    return {"mean": found.get("image_mean"), "std": found.get("image_std"), "advice": advice}


def count_tokens(folder: Path) -> int | None:
    """The tokens of a folder's tokenizer, None without one that can be read: whoever uses it says why."""
    with contextlib.suppress(UserError):
        return from_file(folder).size


def rename_from_huggingface(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The weights of a ViT, BERT, GPT-2 or T5 in this project's names; others as they are."""
    for architecture in READABLE.values():
        if architecture.probe and {architecture.probe, architecture.prefix + architecture.probe} & state.keys():
            renamed = rename_state(state, architecture)
            return from_t5(renamed, seems_scaled(renamed)) if architecture is T5 else renamed
    return state


def rename_state(state: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """Weights of an architecture in this project's names, queries, keys and values joined; others as they are."""
    renamed = {}
    for name, value in state.items():
        if (name in TIED and architecture is not T5) or name.endswith(BUFFERS):
            continue
        theirs = name.removeprefix(architecture.prefix)
        theirs = theirs.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
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
        check_t5_writable(model)
        state = to_t5(state)
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
    sizes = describe_sizes(body)
    if kind == "t5":
        sizes["decoder_depth"] = len(model.decoder.encoder.blocks)
        sizes["head_width"] = body.encoder.blocks[0].mixer.proj.in_features // sizes["heads"]
    settings = {key: sizes[here] for key, here in (*architecture.settings.sizes.items(), *architecture.settings.rates)}
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


def compare_huggingface(model: nn.Module, folder: str | Path, shape: Mapping[str, Any]) -> float | None:
    """The largest difference of a folder's logits in transformers from the model's, over the largest logit.

    On random inputs of the shape that the model was built for; None without transformers.
    """
    try:
        import transformers
    except ImportError:
        return None
    transformers.logging.disable_progress_bar()
    theirs = getattr(transformers, WRITABLE[choose_architecture(model)].model_class).from_pretrained(folder).eval()
    inputs = [  # 0 is the padding of ESM
        one.normal_() if one.is_floating_point() else one[:, :9].random_(1, shape["vocabulary"])
        for one in counting.inputs(shape, 3, "cpu")
    ]
    with torch.inference_mode():
        wanted = model.eval().cpu()(*inputs)
        wanted = model.masked_logits(wanted) if isinstance(model, Bert) else wanted
        found = theirs(inputs[0], **dict(zip(["decoder_input_ids"], inputs[1:], strict=False)))[0]
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6))


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
    sizes = {"depth": len(body.encoder.blocks), "heads": block.mixer.heads, "mlp_width": block.mlp.fc2.in_features}
    sizes |= {"mlp": mlp, "norm_eps": block.norm1.eps, "dropout": block.mixer.proj_drop.p}
    sizes["attention_dropout"] = block.mixer.attention_dropout
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


T5_TIED = ("text.embed.tokens.weight", "decoder.embed.tokens.weight", "output.weight")


def seems_scaled(state: Mapping[str, Tensor]) -> bool:
    """Whether weights without a config.json have a scaled output layer: those of version 1.1 have one of their own."""
    output, shared = state.get("output.weight"), state.get("text.embed.tokens.weight")
    return output is None or shared is None or torch.equal(output, shared)


def from_t5(state: Mapping[str, Tensor], scaled: bool) -> dict[str, Tensor]:
    """Weights of a T5 in this project's names, with this project's scales; `scaled`: its output layer is, too."""
    renamed = {name: scale_queries(name, value, state) for name, value in state.items() if "embed_tokens." not in name}
    shared = state.get("text.embed.tokens.weight", state.get("encoder.embed_tokens.weight"))
    if shared is None:
        return renamed
    output, small = state.get("output.weight", shared), shared.shape[1] ** -0.5
    return {
        **renamed,
        **dict.fromkeys(T5_TIED[:2], shared * small),
        "output.weight": output * small if scaled else output,
    }


def to_t5(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of `from_t5`; a tied output layer is left out."""
    renamed = {
        name: scale_queries(name, value, state, back=True) for name, value in state.items() if name not in T5_TIED
    }
    inputs, _, output = (state[name] for name in T5_TIED)
    tied = {} if torch.equal(inputs, output) else {"output.weight": output}
    return {**renamed, **tied, "text.embed.tokens.weight": inputs * inputs.shape[1] ** 0.5}


def scale_queries(name: str, value: Tensor, state: Mapping[str, Tensor], back: bool = False) -> Tensor:
    """Queries, keys and values (3 * H * K, D) with queries times sqrt(K), or divided by it."""
    if not name.endswith(".qkv.weight"):
        return value
    heads = state[f"{name.partition('.')[0]}.relative.bias"].shape[1]
    inner = len(value) // 3
    factor = (inner // heads) ** (-0.5 if back else 0.5)
    return torch.cat([value[:inner] * factor, value[inner:]])


def t5_sharing(state: Mapping[str, Tensor]) -> str:
    """The `model.share_embeddings` of weights in this project's names: version 1.1 has an output layer of its own."""
    tied = T5_TIED[0] in state and torch.equal(state[T5_TIED[0]], state[T5_TIED[2]])
    return "all" if tied else "inputs"


def check_t5_writable(model: nn.Module) -> None:
    """Raise UserError for options of an encoder-decoder that T5 does not have."""
    block, embeds = model.text.encoder.blocks[0], [body.embed.tokens.weight for body in (model.text, model.decoder)]
    mlp, mixer = mlp_name(block.mlp), type(block.mixer).__name__.lower()
    options = {
        f"model.mixer={mixer}": type(block.mixer) is not Attention,
        "positions but model.positions=relative": model.text.relative is None,
        "norm but model.norm=rmsnorm": not isinstance(block.norm1, nn.RMSNorm),
        "model.norm_first=false": not block.norm_first,
        "model.bias=true": block.mlp.fc2.bias is not None,
        f"model.mlp={mlp}": mlp not in T5.settings.activations,
        "separate embeddings of source and target": embeds[0] is not embeds[1],
    }
    if surplus := [option for option, given in options.items() if given]:
        raise UserError(
            f"transformers' {T5.model_class} has no {', no '.join(surplus)}; export to a .safetensors file instead"
        )
