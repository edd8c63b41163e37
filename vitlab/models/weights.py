"""Load weights into a model, also weights in timm's names or of other image and patch sizes, channels and classes.

Shapes: N tokens or patches, D width, C channels, Y x X pixels of a kernel.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import timm.layers
import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from timm.models import adapt_input_conv
from torch import Tensor, nn

from vitlab.config import UserError, choices_text
from vitlab.config.schema.models import ModelConfig, TimmConfig
from vitlab.formatting import cut_names
from vitlab.models.base import as_model
from vitlab.models.encoder import ACTIVATIONS, GATED
from vitlab.models.mixers import MODULES
from vitlab.models.mixers.simple import TokenMLP
from vitlab.models.resnet import ResNet
from vitlab.models.text import STD, TextModel
from vitlab.models.vit import ViT

BLOCK = re.compile(r"(?:encoder\.)?blocks\.(\d+)\.")
HEADS = ("auto", "keep", "new")
NAMES = {"name", "kind", "modality", "family", "recipe", "init", "size"}  # keys that change no weights of a model
HINTS = {  # part of a tensor's name: the option that a model without this tensor lacks
    "norm_pre.": "{place}.norm_pre=true (CLIP)",
    "fc_norm.": "{place}.fc_norm=true",
    "ls1.": "{place}.layer_scale=1e-5",
    "q_norm.": "{place}.mixer.qk_norm=true",
    "attn_pool.": "model=timm:NAME, which has attention pooling (SigLIP)",
}


@dataclass(frozen=True)
class Weights:
    """A state dict and the known facts about its model. Messages call the state dict `origin`."""

    state: Mapping[str, Tensor]
    origin: str
    grid_size: tuple[int, int] | None = None  # of the patches; None: a square grid
    classes: Sequence[str] | None = None
    mean: Sequence[float] | None = None  # of the training images' pixels (0..1); None: unknown
    std: Sequence[float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of its model, as far as known: see `options_of`
    config: ModelConfig | None = None  # of its model, where a run tells it
    tokens: int | None = None  # of its tokenizer; further rows of its embeddings are padding
    advice: str = ""  # for who loads them
    label: str = "init"  # the setting that messages name, before its value
    place: str = "model"  # the settings of the model that they are loaded into


@dataclass
class LoadReport:
    """What happened to each parameter. Names are the model's, but in `unused` the source's."""

    origin: str
    loaded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)  # `name (from -> to)`; these are loaded too
    new: list[str] = field(default_factory=list)  # the head
    missing: list[str] = field(default_factory=list)  # other heads and prefix tokens that the source lacks
    unused: list[str] = field(default_factory=list)  # heads and prefix tokens that the model lacks
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"{self.origin}: {len(self.loaded)} of {len(self.loaded) + len(self.new) + len(self.missing)} loaded"]
        for what in ("resized", "new", "missing", "unused"):
            lines += [f"  {what}: {cut_names(names, 6)}"] if (names := vars(self)[what]) else []
        lines += [f"  {self.advice}"] if self.advice else []
        return "\n".join(lines)


# a body's first weight and what other programs write before it; a captioner's `image.`, a hybrid's stem stay
FIRST = r"patch_embed\.proj|layer1\.0\.conv1"
FIRST += r"|((vit|dinov2|bert)\.)?embeddings\.(patch_embeddings\.projection|word_embeddings)"
BODY = re.compile(rf"(?!image\.|patch_embed\.)((?:\w+\.)*?)(?:{FIRST}|(transformer\.)?wte|shared)\.weight")
MOMENTUM = ("encoder_k.", "momentum_encoder.")  # MoCo's slow copies of encoder_q. and base_encoder.


def unwrap(state: Mapping[str, Any], origin: str = "") -> tuple[dict[str, Tensor], str]:
    """Strip what all tensors of a body have before their names; say in a line which tensors are left out.

    Raises UserError for several bodies, such as a student and a teacher.
    """
    tensors = {str(name).replace("_orig_mod.", ""): v for name, v in state.items() if isinstance(v, Tensor)}
    found = dict.fromkeys(match[1] for name in tensors if (match := BODY.fullmatch(name)))
    bodies = [body for body in found if not body.endswith(MOMENTUM)] or [*found]
    if len(bodies) > 1 and len({re.sub(r"\d+", "", body) for body in bodies}) > 1:
        problem = f"holds several models, {', '.join(body or 'one without a prefix' for body in bodies)}"
        raise UserError(f"init={origin}: {problem}; save the tensors of one of them alone, by torch.save")
    if len(bodies) != 1:  # of another model, or one with several stages
        return {re.sub(r"^(?:module\.|model\.)+", "", name): value for name, value in tensors.items()}, ""
    (prefix,) = bodies
    others = [name for name in tensors if not name.startswith(prefix)]
    inside = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    return inside, f"left out, as not below {prefix}: {cut_names(others, 2)}" if others else ""


def describe_weights(model: nn.Module, state: Mapping[str, Tensor], origin: str, **known: Any) -> Weights:
    """Describe weights by their model, which may be on the meta device."""
    patches = as_model(model).patches
    return Weights(state, origin, patches and patches.grid_size, options=options_of(model), **known)


def load_into(
    model: nn.Module, weights: Weights, head: str = "auto", classes: Sequence[str] | None = None
) -> LoadReport:
    """Load weights into a model, in place; report what was resized, new, missing or unused.

    Position and patch embeddings of another size are resampled as in timm, and the first convolution is adapted to the
    model's channels. A model with fewer learned token positions takes the first ones; rows of token embeddings beyond
    the source's tokenizer are dropped. A new head starts at zero (Dosovitskiy et al., 2021, section 3.2), or normal in
    a text model, as in BERT and GPT. Heads and prefix tokens may be missing in the source or in the model.
    `head` is "keep", "new" or "auto", which makes a new head if the model's `classes` differ from the source's, in
    number or in their known names. Raises UserError, and leaves the model unchanged, if another tensor is missing or
    does not fit, or options such as the number of attention heads differ.
    """
    if head not in HEADS:
        raise UserError(f"head={head}: unknown; {choices_text(str(head), HEADS)}")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.state.items()):
        raise UserError(f"{weights.label}={weights.origin}: expected a state dict, tensors by name")
    current = model.state_dict()
    source, names = weights.state, {name_in_timm(model, name): name for name in current}
    if sum(name in current for name in source) < sum(name in names for name in source):  # they are in timm's names
        source = {names.get(name, name): value for name, value in source.items()}
    problems = [line for name, value in source.items() if name in current for line in check(name, value, current[name])]
    if problems:
        raise UserError(f"{weights.label}={weights.origin}: {'; '.join(problems[:3])}")
    check_same_model(model, source, weights)
    heads, convolution = head_names(model), first_convolution(model)
    keep = head == "keep" or (head == "auto" and same_head(heads, source, current, weights.classes, classes))
    check_options(options_of(model), weights, with_head=keep and bool(heads))
    check_tied(current, source, weights)

    report = LoadReport(weights.origin, advice=weights.advice)
    positions = fit_positions(model, source, weights.grid_size)
    state: dict[str, Tensor] = {}
    for name, old in current.items():
        if name in heads and not keep:
            report.new.append(name)
            state[name] = torch.zeros_like(old)
            if isinstance(model, TextModel) and old.dim() > 1:  # those at zero learned less: notes/lab-notes.md
                nn.init.normal_(state[name], std=STD)
            continue
        if name not in source:
            report.missing.append(name)
            continue
        value = source[name]
        if name in positions:
            fitted = positions[name]
        elif convolution is not None and name == convolution[0]:
            fitted = resample_kernels(value, convolution[1])
        elif (name.endswith(".embed.positions") or (is_by_token(name) and len(old) == weights.tokens)) and (
            len(value) > len(old)
        ):  # the first rows: of positions, or of all tokens there are
            fitted = value[: len(old)]
        else:
            fitted = value
        if fitted.shape != old.shape:
            problems += [line for line in [misfit(name, value, old)] if line not in problems]  # said once where shared
            continue
        if fitted is not value:
            moved = name in positions and name != "pos_embed"
            report.resized.append(f"{name} ({'with its position' if moved else f'{shape(value)} -> {shape(old)}'})")
        report.loaded.append(name)
        state[name] = fitted
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(f"{weights.label}={weights.origin}: {'; '.join(problems[:3])}{more}")
    report.unused = [name for name in source if name not in current and not has_buffer(model, name, source[name])]
    model.load_state_dict(state, strict=False)
    return report


def check_same_model(model: nn.Module, source: Mapping[str, Tensor], weights: Weights) -> None:
    """Raise UserError if a source and a model differ in more than heads, prefix tokens and sizes."""
    current = model.state_dict()
    if not any(name in source for name in current if not optional(model, name)):
        raise UserError(
            f"{weights.label}={weights.origin}: none of its parameters is one of the model's: "
            f"it has {', '.join([*source][:3])} ..., the model {', '.join([*current][:3])} ..."
        )
    surplus = [n for n in source if n not in current and not optional(model, n) and not has_buffer(model, n, source[n])]
    lacking = [n for n in current if n not in source and not optional(model, n)]
    differences = [f"the model has no {cut_names(surplus, 2)}"] if surplus else []
    differences += [f"the weights have no {cut_names(lacking, 2)}"] if lacking else []
    if differences:
        hints = [
            hint.format(place=weights.place) for part, hint in HINTS.items() if any(part in name for name in surplus)
        ]
        depth = {
            side: len({m[1] for n in names if (m := BLOCK.match(n))})
            for side, names in (("source", source), ("own", current))
        }
        if depth["source"] and depth["source"] != depth["own"]:
            hints.append(f"{weights.place}.depth={depth['source']}")
        if ours := weights.config and getattr(model, "vitlab_config", None):
            both = {key: value for key, value in vars(weights.config).items() if key in vars(ours) and key not in NAMES}
            differing = {key: value for key, value in both.items() if value != vars(ours)[key]}
            hints = [format_options(differing, f"{weights.place}.")] if differing else hints
        fix = f"give {' and '.join(hints)}" if hints else "choose the model that they are from, or model=timm:NAME"
        raise UserError(f"{weights.label}={weights.origin}: weights of another model: {'; '.join(differences)}; {fix}")


def check_options(options: Mapping[str, Any], weights: Weights, *, with_head: bool) -> None:
    """Raise UserError if a model's options differ from the options of the weights' model.

    The option `pool` counts `with_head` alone: a new head learns to read whatever the model gives it.
    """
    both = {key: (value, options[key]) for key, value in weights.options.items() if key in options}
    differing = {key: pair for key, pair in both.items() if pair[0] != pair[1]}
    if not with_head:
        differing.pop("pool", None)
    if differing:
        theirs, ours = ({key: pair[side] for key, pair in differing.items()} for side in (0, 1))
        is_known = theirs.get("mlp", "gelu") in {**ACTIVATIONS, **GATED}
        fix = format_options(theirs, f"{weights.place}.") if is_known else "model=timm:NAME"
        fix += ", or init.head=new" if [*differing] == ["pool"] else ""
        raise UserError(
            f"{weights.label}={weights.origin}: its model has {format_options(theirs)}, this one "
            f"{format_options(ours)}, which gives other outputs from the same weights; give {fix}"
        )


def check_tied(own: Mapping[str, Tensor], source: Mapping[str, Tensor], weights: Weights) -> None:
    """Raise UserError if the model shares one parameter under two names, and the source has two parameters there."""
    names: dict[int, str] = {}
    for name, value in own.items():
        first = names.setdefault(value.data_ptr(), name)
        if {first, name} <= source.keys() and not torch.equal(source[first], source[name]):
            raise UserError(
                f"{weights.label}={weights.origin}: {first} and {name} are the same in the model, not in these weights;"
                f" give {weights.place}.share_embeddings={'inputs' if name == 'output.weight' else 'none'}"
            )


def optional(model: nn.Module, name: str) -> bool:
    """Tell whether a parameter may be missing: of a head or a prefix token, or the step count of a batch norm.

    A model with a decoder needs the source's; a classifier has none and leaves it out.
    """
    if isinstance(model, TextModel):
        children = {child for child, _ in model.named_children()}
        return name.partition(".")[0] not in {"text", "decoder"} & children
    module = name.rpartition(".")[0]
    return (
        name in (*PREFIX, "mask_token", "n_averaged")  # of self-supervised training and of averaging
        or module in as_model(model).head_modules
        or name.startswith("pre_logits.")
        or "num_batches_" in name
    )


def check(name: str, value: Tensor, old: Tensor) -> Iterator[str]:
    """Yield a tensor's problems that no resampling mends: its type, values that are not finite, its dimensions."""
    if value.is_floating_point() != old.is_floating_point():
        yield f"{name} is {value.dtype}, in the model {old.dtype}"
    elif value.is_floating_point() and not value.isfinite().all():
        yield f"{name} has values that are not finite"
    elif value.dim() != old.dim() or not value.numel():
        yield f"{name} {shape(value)} does not fit into {shape(old)}"


def head_names(model: nn.Module) -> list[str]:
    """List the parameters of the classifier, and of a distillation token's classifier."""
    heads = as_model(model).head_modules
    return [name for name in model.state_dict() if name.rpartition(".")[0] in heads]


def same_head(
    heads: Sequence[str],
    source: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    source_classes: Sequence[str] | None,
    classes: Sequence[str] | None,
) -> bool:
    """Tell whether a source's head predicts the model's classes."""
    if source_classes is not None and classes is not None and tuple(source_classes) != tuple(classes):
        return False
    if any(name.startswith("pre_logits.") for name in source) != any(name.startswith("pre_logits.") for name in own):
        return False  # its input is another one
    present = [name for name in heads if name in source]
    return bool(present) and all(source[name].shape == own[name].shape for name in present)


def has_buffer(model: nn.Module, name: str, value: Tensor) -> bool:
    """Tell whether the model has a source's tensor as a fixed buffer, such as sine positions."""
    buffer = dict(model.named_buffers()).get(name)
    return buffer is not None and buffer.shape == value.shape and torch.allclose(buffer, value.to(buffer), atol=1e-6)


def is_by_token(name: str) -> bool:
    """Tell whether a parameter of a model of text has a row for each token of the vocabulary."""
    return name.endswith(".embed.tokens.weight") or name in ("output.weight", "bias")


def misfit(name: str, value: Tensor, old: Tensor) -> str:
    """Explain why a tensor does not fit, and the fix if there is one."""
    same_width = value.shape[1:] == old.shape[1:]
    if is_by_token(name) and same_width:
        return (
            f"its vocabulary has {len(value)} tokens, the model's has {len(old)}; both need the same tokenizer: give "
            "data.tokenizer the path of its tokenizer.json"
        )
    if name.endswith(".embed.positions") and same_width:
        key = "target_length" if name.startswith("decoder.") else "length"
        return f"it has positions for {len(value)} tokens, the model takes {len(old)}; give data.{key}={len(value)}"
    return f"{name} {shape(value)} does not fit into {shape(old)}"


def shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"


OPTIONS = {"causal", "heads", "mlp", "norm_eps", "pool", "positions", "score"}  # they change no weight's shape
TIMM_ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "ReLU": "relu"}  # by class


def options_of(model: nn.Module) -> dict[str, Any]:
    """Return the OPTIONS of a model by name; a captioner has those of its image model.

    timm keeps no configuration of a built model, so they are read from its modules.
    """
    config = vars(getattr(model, "vitlab_config", None) or TimmConfig())
    config = vars(config["encoder"]) if "encoder" in config else config
    if "timm_name" not in config:
        mixer = config["mixer"].kind if "mixer" in config else "attention"
        found = {key: value for key, value in config.items() if key in OPTIONS} | {"mixer": mixer}
        return {key: found[key] for key in sorted(found) if key != "heads" or mixer not in MODULES}
    options: dict[str, Any] = {}
    for module in model.modules():
        match module:
            case timm.layers.Attention():
                options.setdefault("heads", module.num_heads)
            case nn.LayerNorm() | timm.layers.RmsNorm():
                options.setdefault("norm_eps", module.eps)
            case timm.layers.SwiGLU():
                options.setdefault("mlp", "swiglu")
            case timm.layers.Mlp() | timm.layers.GluMlp():
                name = type(module.act).__name__
                options.setdefault("mlp", TIMM_ACTIVATIONS.get(name, name))
    return dict(sorted(options.items()))


def format_options(options: Mapping[str, Any], prefix: str = "") -> str:
    """Format options as the command line takes them with the prefix `model.`: `heads=4 norm_eps=1e-05`."""
    return " ".join(
        f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items()
    )


PREFIX = ("cls_token", "dist_token", "reg_token")  # in their order before the patches
Grid = tuple[int, int]  # rows, columns


def first_convolution(model: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """Find the convolution that reads the images, with its weight's name."""
    convolutions = ((f"{name}.weight", m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d))
    return next(convolutions, None)


def resample_kernels(weight: Tensor, target: nn.Conv2d) -> Tensor:
    """Resample kernels (D, C, Y, X) for the target's channels and, if it embeds patches, for its patch size."""
    if weight.shape[1] != target.in_channels and target.groups == 1:
        weight = adapt_input_conv(target.in_channels, weight, base_chans=weight.shape[1])
    if weight.shape[2:] != target.kernel_size and target.kernel_size == target.stride:
        weight = resample_patch_embed(weight, list(target.kernel_size))
    return weight


def fit_positions(model: nn.Module, source: Mapping[str, Tensor], source_grid: Grid | None) -> dict[str, Tensor]:
    """Resample a source's learned positions for the model's grid of patches: `pos_embed` (1, prefix + N, D).

    Without a `source_grid`, as many positions as the model's mean the model's grid, and another number a square. A
    prefix token without a position in the source gets zeros; a prefix token that the source lacks keeps the model's
    position. If the model has positions for patches alone, the positions of prefix tokens are added to these tokens.
    Returns {} for other designs of positions. Raises UserError if the source's grid cannot be inferred.
    """
    current, patches = model.state_dict(), as_model(model).patches
    value, old = source.get("pos_embed"), current.get("pos_embed")
    if patches is None or value is None or old is None or not value.dim() == old.dim() == 3:
        return {}
    prefix = old.shape[1] - math.prod(patches.grid_size)
    if prefix < 0 or value.shape[2] != old.shape[2] or (source_grid is None and value.shape == old.shape):
        return {}
    tokens = {name: source[name] for name in PREFIX if name in source}
    count = sum(token.shape[1] for token in tokens.values())
    source_grid = source_grid or infer_square(value.shape[1], (count, 1, 0) if "cls_token" in tokens else (count, 0))
    source_prefix = value.shape[1] - math.prod(source_grid)
    fitted, own = {}, value[:, :source_prefix]
    if source_prefix and isinstance(model, ViT) and not model.prefix_positions:
        lengths = [token.shape[1] for token in tokens.values()] if count == source_prefix else [source_prefix]
        places = own.split(lengths, dim=1) if source_prefix in (count, 1) else ()  # 1: of the class token alone
        moved = zip(tokens.items(), places, strict=False)
        fitted = {name: token + place for (name, token), place in moved if name in current}
    if (source_prefix, tuple(source_grid)) != (prefix, patches.grid_size):
        grid = resample_abs_pos_embed(
            value[:, source_prefix:], list(patches.grid_size), old_size=list(source_grid), num_prefix_tokens=0
        )
        zeros = value.new_zeros(1, max(0, count - source_prefix), value.shape[2])
        first = torch.cat([own, zeros], dim=1)[:, :prefix]
        fitted["pos_embed"] = torch.cat([first, old[:, first.shape[1] : prefix], grid], dim=1)
    return fitted


def infer_square(length: int, prefixes: Sequence[int]) -> Grid:
    """Infer the square grid of positions with one of these numbers of prefix tokens. Raises UserError."""
    for prefix in prefixes:
        side = math.isqrt(max(length - prefix, 0))
        if side and side * side == length - prefix:
            return side, side
    raise UserError(
        f"init: pos_embed has {length} positions for {prefixes[0]} prefix tokens and a grid that is not square; give a "
        "run's folder, which holds the grid's size"
    )


def name_in_timm(model: nn.Module, name: str) -> str:
    """Return a parameter's name in timm's VisionTransformer, VisionTransformerDistilled, MlpMixer or ResNet.

    Other models keep their names.
    """
    if isinstance(model, ResNet):
        name = name.replace("stem.0.", "conv1.").replace("stem.1.", "bn1.").replace("head.", "fc.")
        return re.sub(r"^stages\.(\d+)\.", lambda match: f"layer{int(match[1]) + 1}.", name)
    if not isinstance(model, ViT):
        return name
    name = name.removeprefix("encoder.").replace("pre_logits.0.", "pre_logits.fc.")
    if not isinstance(model.encoder.blocks[0].mixer, TokenMLP):
        return name.replace(".mixer.", ".attn.")
    name = name.replace("patch_embed.", "stem.").replace(".mlp.", ".mlp_channels.")
    return name.replace(".mixer.mlp_channels.", ".mlp_tokens.")


def find_lacking(model: nn.Module) -> str:
    """List a model's options that timm's models do not have; "" if there are none."""
    if not isinstance(model, ViT):
        return ""
    config, kind = model.vitlab_config, model.vitlab_config.mixer.kind
    inner = (config.head_width or config.width // config.heads) * config.heads
    lacking = {
        f"mixer={kind}": kind not in ("attention", "token_mlp"),
        f"head_width={config.head_width}": kind == "attention" and inner != config.width,
        "positions or prefix tokens": kind == "token_mlp" and (model.num_prefix_tokens or model.pos_embed is not None),
        "norm_first=false": not config.norm_first,
        "norm=batchnorm": config.norm == "batchnorm",
        "positions=rotary": config.positions == "rotary",
    }
    return ", ".join(option for option, lacks in lacking.items() if lacks)
