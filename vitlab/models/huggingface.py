"""ViT, DINOv2, BERT, GPT-2 and T5 as folders of Hugging Face's transformers: config.json and model.safetensors.

transformers has other names, separate queries, keys and values, and in GPT-2 transposed matrices. T5's scale factors
are folded into the weights when they are loaded: T5 scales neither attention nor embeddings, but its tied output layer.
This project scales attention and embeddings (Vaswani et al., 2017), so queries are multiplied by sqrt(K) and embeddings
divided by sqrt(D).

Shapes: H heads, K head width, D width, V vocabulary.
"""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor, nn
from typing_extensions import TypedDict

from vitlab.config import DescribeConfig, UserError, compose, extent, first_line, resolved
from vitlab.config.errors import parse_json
from vitlab.config.identity import flatten
from vitlab.config.schema.models import ACTIVATIONS, ARCHITECTURES, Architecture, ModelConfig, read_folder
from vitlab.data.augment import normalize
from vitlab.data.text.tokenization import from_file
from vitlab.files import check_regular, read_utf8, reading, replacing, write_json
from vitlab.models import build, counting, described_shape
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.text import Bert, Classifier, LanguageModel, TextEncoder
from vitlab.models.vit import ViT
from vitlab.models.weights import LoadReport, Weights, describe_weights, format_options, load_into, unwrap

# their `model_type`
KINDS = {ViT: "vit", Bert: "bert", Classifier: "bert", LanguageModel: "gpt2", EncoderDecoder: "t5"}
ANSWERS = "BertForQuestionAnswering"
# other names of tied weights, and buffers in files of older versions
LEFT_OUT = ("lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias", ".attn.bias")
LEFT_OUT += (".attn.masked_bias", "position_ids", "token_type_ids", ".EncDecAttention.relative_attention_bias.weight")
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # (inputs, outputs)
SEEN = {"image_mean": list[float] | None, "image_std": list[float] | None}
Preprocessor = TypedDict("Preprocessor", SEEN, total=False)


def load_huggingface(folder: str | Path) -> tuple[ViT | Bert | LanguageModel | EncoderDecoder, LoadReport]:
    """Load a ViT, BERT, GPT-2 or T5 from its folder, in eval mode, and report on each weight.

    A ViT has the folder's classes. A ViT without a classifier gives features (B, D), after the pooler if there is one.
    A text model's heads are new if the folder lacks them. Raises UserError for other folders and for options that this
    project's models do not have.
    """
    config, weights = read_huggingface(folder)
    model = build(config.model, **described_shape(config))
    return model.eval(), load_into(model, weights)


def read_huggingface(
    folder: str | Path, state: Mapping[str, Tensor] | None = None, origin: str = ""
) -> tuple[ModelConfig, Weights]:
    """Read the model of a folder, as a DescribeConfig, and its weights in this project's names. Raises UserError.

    Give `state`, weights in transformers' names from the file `origin`, to use these in place of the folder's.
    """
    folder, origin = Path(folder), origin or str(folder)
    config, model = read_folder(folder)
    if state is None:
        path = folder / "model.safetensors"
        check_regular(path, str(path))
        with reading(
            str(path), "write it as one file by transformers' save_pretrained, or give init=FILE of other weights"
        ):
            state = load_file(path)
    kind, num_classes = config["model_type"], None
    names = [str(name) for _, name in sorted((config.get("id2label") or {}).items())]
    known: dict[str, Any] = {"classes": tuple(names) if names and not names[0].startswith("LABEL_") else None}
    known |= {"classes": ()} if "qa_outputs.weight" in state else {}  # its two outputs are places, not classes
    with contextlib.suppress(UserError):  # without a readable tokenizer: whoever uses it says why
        known["tokens"] = from_file(folder).size
    with reading(origin, "its tensors need the shapes of config.json's sizes"):
        state = rename_state(unwrap(state)[0], ARCHITECTURES[kind])
        if kind == "t5":
            state = from_t5(state, scaled=model["share_embeddings"] == "all")
        if kind in ("vit", "dinov2"):
            model["pre_logits"] = "pre_logits.0.weight" in state
            if kind == "dinov2" and "head.weight" in state:  # it reads the class token, then the mean of the patches
                weight, of_mean = state["head.weight"].chunk(2, dim=1)
                state["head.weight"] = weight
                if of_mean.any():
                    del state["head.weight"], state["head.bias"]
                    known["advice"] = "its classifier reads the mean of the patches, too: left out"
            num_classes, _ = state["head.weight"].shape if "head.weight" in state else (0, 0)
            path = folder / "preprocessor_config.json"
            if path.is_file():
                text, advice = read_utf8(path, str(folder)), "give one that transformers wrote, or delete it"
                found = parse_json(Preprocessor, text, f"{folder}: {path.name}", advice)
                known |= {"mean": found.get("image_mean"), "std": found.get("image_std")}
    try:
        described = compose(DescribeConfig, base={"model": model, "num_classes": num_classes})
        shell = counting.meta(described.model, **described_shape(described))
    except (UserError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise UserError(f"{folder}: cannot build a model of config.json's sizes ({first_line(error)})") from error
    return described, describe_weights(shell, state, origin, **known)


def rename_from_huggingface(state: Mapping[str, Tensor], origin: str) -> Mapping[str, Tensor]:
    """Rename the weights of a ViT, BERT, GPT-2 or T5 to this project's names; other weights stay as they are."""
    with reading(origin, "give the folder of transformers that it is from"):
        found = {kind: rename_state(state, architecture) for kind, architecture in ARCHITECTURES.items()}
        kind, renamed = max(found.items(), key=lambda pair: len(pair[1].keys() - state.keys()))
        if any(".qkv." in name for name in renamed.keys() - state.keys()):
            return from_t5(renamed) if kind == "t5" else renamed
    return state


def rename_state(state: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """Rename an architecture's weights to this project's names and join queries, keys and values; keep other names."""
    renamed = {}
    for name, value in state.items():
        theirs = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        here = rename(theirs, architecture.names) or rename(architecture.prefix + theirs, architecture.names)
        if here is not None or not name.endswith(LEFT_OUT):
            renamed[here or name] = value.T if name.endswith(TRANSPOSED) and value.dim() == 2 else value
    for name in [name for name in renamed if ".q." in name]:
        parts = [renamed.pop(name.replace(".q.", f".{part}."), None) for part in "qkv"]
        if all(part is not None for part in parts):
            renamed[name.replace(".q.", ".qkv.")] = torch.cat(parts)
    return renamed


def rename(name: str, rules: Mapping[str, str]) -> str | None:
    """Rename by the first rule whose left side begins the name; None if no rule fits."""
    for source, target in rules.items():
        if match := re.match(re.escape(source).replace(r"\{i\}", r"(\d+)"), name):
            return target.replace("{i}", match[1] if match.groups() else "") + name[match.end() :]
    return None


def save_huggingface(model: nn.Module, folder: str | Path, model_class: str | None = None, **config: Any) -> None:
    """Write a model of `vitlab.models.build` as a folder for transformers.

    A ViT becomes a ViTForImageClassification, with LayerScale a Dinov2ForImageClassification, a causal language model
    a GPT2LMHeadModel, a BERT a BertForPreTraining, its classifiers a BertForSequenceClassification, a
    BertForTokenClassification or, as `model_class`, a BertForQuestionAnswering, and an encoder-decoder a
    T5ForConditionalGeneration. `config` are further keys of config.json. Raises UserError if that class lacks an option
    of the model.
    """
    kind = choose_kind(model)
    architecture = ARCHITECTURES[kind]
    model_class = model_class or architecture.model_class
    if isinstance(model, Classifier):
        model_class = (
            model_class if model_class == ANSWERS else f"BertFor{'Token' if model.each else 'Sequence'}Classification"
        )
        choices = {**architecture.choices, **({} if model.each else {"pool": ("token",)})}
        architecture = replace(architecture, model_class=model_class, choices=choices)
    check_writable(model.vitlab_config, architecture)
    sizes, state = describe_sizes(model), {name: value.detach().cpu() for name, value in model.state_dict().items()}
    rules = {here: theirs for theirs, here in architecture.names.items()}
    rules |= {"head.": "qa_outputs."} if model_class == ANSWERS else {}
    theirs: dict[str, Tensor] = {}
    for name, value in (to_t5(state) if kind == "t5" else state).items():
        parts = {name: value}
        if kind != "gpt2" and ".qkv." in name:
            parts = {name.replace(".qkv.", f".{part}."): v for part, v in zip("qkv", value.chunk(3), strict=True)}
        theirs |= {rename(here, rules): part for here, part in parts.items()}
    theirs = {name: (v.T if name.endswith(TRANSPOSED) else v).contiguous() for name, v in theirs.items()}
    if kind == "dinov2":  # its classifier reads the mean of the patches, too
        theirs["classifier.weight"] = F.pad(theirs["classifier.weight"], (0, sizes["width"]))
        config["use_mask_token"] = False
    if isinstance(model, Bert):  # its class asks for both names
        theirs["cls.predictions.decoder.bias"] = theirs["cls.predictions.bias"].clone()
    settings = {key: sizes[here.split()[0]] for key, here in architecture.keys.items()}
    if kind == "t5":  # whether the output layer is tied, and scaled
        settings |= dict.fromkeys(("tie_word_embeddings", "scale_decoder_outputs"), sizes["share_embeddings"] == "all")
    if hasattr(model, "head"):  # without names transformers makes a classifier of two classes
        settings["id2label"] = {str(index): f"LABEL_{index}" for index in range(model.head.out_features)}
    settings |= {"model_type": kind, "architectures": [model_class], **architecture.fixed, **config}
    write_json(Path(folder) / "config.json", settings)
    with replacing(Path(folder) / "model.safetensors") as file:
        file.write(save(theirs, metadata={"format": "pt"}))


def compare_huggingface(
    model: nn.Module, folder: str | Path, mean: Sequence[float] = (), std: Sequence[float] = ()
) -> float | None:
    """Compare a folder's logits in transformers with the model's: the largest difference over the largest logit.

    The inputs are random. Given `mean` and `std` of the model's pictures, transformers reads them by the folder's
    preprocessing, and a model that reads texts from both sides gets texts by the folder's tokenizer. None without
    transformers.
    """
    try:
        import transformers
    except ImportError:
        return None
    transformers.logging.disable_progress_bar()
    (model_class,) = transformers.AutoConfig.from_pretrained(folder).architectures
    theirs = getattr(transformers, model_class).from_pretrained(folder).eval()
    inputs = [  # 0 may be padding, of which transformers warns
        one.normal_() if one.is_floating_point() else one[:, :9].random_(1, model.vocabulary)
        for one in counting.inputs(model.vitlab_shape, 3, "cpu")
    ]
    given = dict(zip(["input_ids", "decoder_input_ids"], inputs, strict=False))
    if mean:
        pixels = (inputs[0].sigmoid() * 255).byte()
        inputs = [normalize(pixels, list(mean), list(std))]
        read = transformers.AutoImageProcessor.from_pretrained(folder)
        given = read(list(pixels.numpy()), input_data_format="channels_first", return_tensors="pt")
    elif "image_size" in model.vitlab_shape:
        given = {"pixel_values": inputs[0]}
    elif model_class.startswith("Bert") and (Path(folder) / "tokenizer_config.json").is_file():
        roles = from_file(folder)
        text = roles.decode(inputs[0][0, :5].tolist())
        given = transformers.AutoTokenizer.from_pretrained(folder)(text, truncation=True, return_tensors="pt")
        inputs = [torch.tensor([[roles.start, *roles.ids(text)[: model.sequence_length - 2], roles.end]])]
    with torch.inference_mode():
        wanted = model.eval().cpu()(*inputs)
        wanted = model.masked_logits(wanted) if isinstance(model, Bert) else wanted
        outputs = theirs(**given)
        found = torch.stack(outputs[:2], dim=-1) if model_class == ANSWERS else outputs[0]
    if found.shape != wanted.shape:  # other tokens
        return math.inf
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6))


def choose_kind(model: nn.Module) -> str:
    """Choose the `model_type` under which to write a model. Raises UserError."""
    kind = KINDS.get(type(model))
    is_causal = isinstance(model, Classifier) and (not isinstance(model.text, TextEncoder) or model.text.causal)
    if kind is None or not model.classifies or is_causal:
        what = "causal or recurrent classifier with a bias" if is_causal else type(model).__name__
        what += "" if kind is None or model.classifies else " without a head"
        raise UserError(f"transformers has no {what}; export to a .safetensors file instead")
    if kind == "vit" and model.vitlab_config.layer_scale:
        kind, width, hidden = "dinov2", model.width, model.vitlab_config.mlp_width or 0
        if hidden % width:
            raise UserError(f"transformers' Dinov2 has no model.mlp_width={hidden}, only multiples of {width}")
    return kind


# settings that change no logits or follow from others
UNSEEN = {"family", "recipe", "init", "published_length", "published_num_classes", "drop_path", "scaled_residuals"}
UNSEEN |= {"class_token", "mixer.kind", "mixer.attends", "mlp_width"}


def check_writable(config: ModelConfig, architecture: Architecture) -> None:
    """Raise UserError if an architecture lacks settings of a model."""
    same = compose(DescribeConfig, base={"model": {"name": config.name, **architecture.model}}).model
    expected, given = (dict(flatten(resolved(one), choices=True)) for one in (same, config))
    if given.get("head_width") and given["head_width"] * given["heads"] == given["width"]:
        del given["head_width"]
    choices = architecture.choices
    free = {*" ".join(architecture.keys.values()).split(), *UNSEEN} - choices.keys()
    surplus = {
        key.removesuffix(".name"): value
        for key, value in given.items()
        if key in expected.keys() - free and value not in choices.get(key, [expected[key]])
    }
    if surplus:
        what = f"{architecture.model_class} has no {format_options(surplus, 'model.')}"
        raise UserError(f"transformers' {what}; export to a .safetensors file instead")


def describe_sizes(model: nn.Module) -> dict[str, Any]:
    """Return a model's settings and the sizes of its inputs, with transformers' name of the activation."""
    sizes = vars(model.vitlab_config) | {f"published_{key}": value for key, value in model.vitlab_shape.items()}
    sizes["mlp"] = next(theirs for theirs, here in ACTIVATIONS.items() if here == sizes["mlp"])
    derived = {"mlp_width": 4 * sizes["width"], "head_width": sizes["width"] // sizes["heads"]}
    for key, value in {**derived, "decoder_depth": sizes["depth"]}.items():
        sizes[key] = sizes.get(key) or value
    sizes["mlp_ratio"] = sizes["mlp_width"] // sizes["width"]
    for key in {"published_image_size", "patch_size"} & sizes.keys():
        height, width = extent(sizes[key])
        sizes[key] = height if height == width else [height, width]
    return sizes


T5_TIED = ("text.embed.tokens.weight", "decoder.embed.tokens.weight", "output.weight")


def from_t5(state: Mapping[str, Tensor], scaled: bool | None = None) -> dict[str, Tensor]:
    """Fold T5's scale factors into its weights, which have this project's names.

    `scaled`: whether T5 scales its output layer; by default if this is tied to the embeddings, as before version 1.1.
    """
    shared = state[T5_TIED[0]]
    output, small = state.get(T5_TIED[2], shared), shared.shape[1] ** -0.5
    if torch.equal(output, shared) if scaled is None else scaled:
        output = output * small
    return {**scale_queries(state, 0.5), **dict.fromkeys(T5_TIED[:2], shared * small), T5_TIED[2]: output}


def to_t5(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `from_t5`; leave out a tied output layer."""
    inputs, decoder, output = T5_TIED
    tied = (decoder, output) if torch.equal(state[inputs], state[output]) else (decoder,)
    scaled = {**scale_queries(state, -0.5), inputs: state[inputs] * state[inputs].shape[1] ** 0.5}
    return {name: value for name, value in scaled.items() if name not in tied}


def scale_queries(state: Mapping[str, Tensor], power: float) -> dict[str, Tensor]:
    """Multiply the queries in each joined weight (3 * H * K, D) by K to this power."""
    scaled = dict(state)
    for name in (name for name in state if name.endswith(".qkv.weight")):
        queries, *others = state[name].chunk(3)
        heads = state[f"{name.partition('.')[0]}.relative.bias"].shape[1]
        scaled[name] = torch.cat([queries * (len(queries) // heads) ** power, *others])
    return scaled
