"""Fitting weights into a model: other names, image and patch sizes, channels, classes.

Shapes: N tokens, D width, C channels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.config import UserError, choices_text
from vitlab.models.base import as_model
from vitlab.models.encoder import ACTIVATIONS, GATED
from vitlab.models.heads import STD, TextModel
from vitlab.models.weights.options import differing_options, format_options, options_of
from vitlab.models.weights.resample import (
    PREFIX,
    find_grid,
    first_convolution,
    move_token_positions,
    resample_kernels,
    resample_positions,
)
from vitlab.models.weights.timm_names import name_in_timm

HEADS = ("auto", "keep", "new")
HINTS = {  # part of a tensor's name: the option that a model without this tensor lacks
    "norm_pre.": "{place}.norm_pre=true (CLIP)",
    "fc_norm.": "{place}.fc_norm=true",
    "ls1.": "{place}.layer_scale=1e-5",
    "q_norm.": "{place}.mixer.qk_norm=true",
    "attn_pool.": "model=timm:NAME, which has attention pooling (SigLIP)",
}


@dataclass(frozen=True)
class Weights:
    """A state dict and what is known of its model; `origin` names it in messages."""

    state: Mapping[str, Tensor]
    origin: str
    grid_size: tuple[int, int] | None = None  # of the patches; None: a square grid
    classes: Sequence[str] | None = None
    mean: Sequence[float] | None = None  # of the training images' pixels (0..1); None: unknown
    std: Sequence[float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of its model, see `options_of`; those that are known
    tokens: int | None = None  # of its tokenizer; further rows of its embeddings are padding
    advice: str = ""  # for who loads them
    label: str = "init"  # the setting that messages name, before its value
    place: str = "model"  # the settings of the model that they are loaded into


@dataclass
class LoadReport:
    """What happened to each parameter: names as in the model, for `unused` as in the source."""

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
            lines += [f"  {what}: {shorten(names, 6)}"] if (names := vars(self)[what]) else []
        lines += [f"  {self.advice}"] if self.advice else []
        return "\n".join(lines)


def describe_weights(model: nn.Module, state: Mapping[str, Tensor], origin: str, **known: Any) -> Weights:
    """The weights of a model that is at hand, if only on the meta device."""
    patches = as_model(model).patches
    return Weights(state, origin, patches and patches.grid_size, options=options_of(model), **known)


def fit(model: nn.Module, weights: Weights, head: str = "auto", classes: Sequence[str] | None = None) -> LoadReport:
    """Load weights into a model, in place; the report says what was resized, new, missing or unused.

    Names are this project's or timm's. Position and patch embeddings of another size are resampled as in timm, and the
    first convolution takes another number of channels. Of learned token positions, the first are taken where the
    source has more, and of rows for tokens those that its tokenizer has. `head` is "keep", "new" or "auto": new where
    the number of classes or their names, as far as they are known (`classes` are the model's), differ. A new head
    starts at zero (Dosovitskiy et al., 2021, section 3.2), that of a text model normal, as in BERT and GPT.

    Heads and prefix tokens may be missing in either. Raises UserError, with the model unchanged, where any other
    tensor is missing in either or does not fit, and where options such as the number of attention heads differ.
    """
    if head not in HEADS:
        raise UserError(f"head={head}: unknown; {choices_text(str(head), HEADS)}")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.state.items()):
        raise UserError(f"{weights.label}={weights.origin}: expected a state dict, tensors by name")
    current = model.state_dict()
    source = {name: cast(value, current.get(name)) for name, value in rename_to(model, weights.state).items()}
    problems = [line for name, value in source.items() if name in current for line in check(name, value, current[name])]
    if problems:
        raise UserError(f"{weights.label}={weights.origin}: {'; '.join(problems[:3])}")
    check_same_model(model, source, weights)
    heads, convolution = head_names(model), first_convolution(model)
    keep = head == "keep" or (head == "auto" and same_head(heads, source, current, weights.classes, classes))
    check_options(model, weights, with_head=keep and bool(heads))
    check_tied(current, source, weights)

    report = LoadReport(weights.origin, advice=weights.advice)
    state: dict[str, Tensor] = {}
    for name, old in current.items():
        if name in heads and not keep:
            report.new.append(name)
            state[name] = start_head(model, old)
            continue
        if name not in source:
            report.missing.append(name)
            continue
        value = source[name]
        if name == "pos_embed" and (grid := find_grid(model, old, value)) is not None:
            fitted = resample_positions(value, old, grid, source, weights.grid_size)
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
            report.resized.append(f"{name} ({shape(value)} -> {shape(old)})")
        report.loaded.append(name)
        state[name] = fitted
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(f"{weights.label}={weights.origin}: {'; '.join(problems[:3])}{more}")
    moved = move_token_positions(model, source, weights.grid_size)
    state |= moved
    report.resized += [f"{name} (with its position)" for name in moved]
    report.unused = [name for name in source if name not in current and not has_buffer(model, name, source[name])]
    model.load_state_dict(state, strict=False)
    return report


def check_same_model(model: nn.Module, source: Mapping[str, Tensor], weights: Weights) -> None:
    """Raise UserError where a source and a model differ in more than heads, prefix tokens and sizes."""
    current = model.state_dict()
    if not any(name in source for name in current if not optional(model, name)):
        raise UserError(
            f"{weights.label}={weights.origin}: none of its parameters is one of the model's: "
            f"it has {', '.join([*source][:3])} ..., the model {', '.join([*current][:3])} ..."
        )
    surplus = [n for n in source if n not in current and not optional(model, n) and not has_buffer(model, n, source[n])]
    lacking = [n for n in current if n not in source and not optional(model, n)]
    differences = [f"the model has no {shorten(surplus)}"] if surplus else []
    differences += [f"the weights have no {shorten(lacking)}"] if lacking else []
    if differences:
        hints = [
            hint.format(place=weights.place) for part, hint in HINTS.items() if any(part in name for name in surplus)
        ]
        fix = f"give {' and '.join(hints)}" if hints else "give the model the options of the one that they are from"
        raise UserError(f"{weights.label}={weights.origin}: weights of another model: {'; '.join(differences)}; {fix}")


def check_options(model: nn.Module, weights: Weights, *, with_head: bool) -> None:
    """Raise UserError where a model has other options than the one that the weights are from.

    A head that is new need not be read as the source's was.
    """
    differing = differing_options(weights.options, options_of(model))
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
    """Raise UserError where one parameter of the model has several names, and a source other values for each."""
    names: dict[int, str] = {}
    for name, value in own.items():
        first = names.setdefault(value.data_ptr(), name)
        if {first, name} <= source.keys() and not torch.equal(source[first], source[name]):
            raise UserError(
                f"{weights.label}={weights.origin}: {first} and {name} are the same in the model, not in these weights;"
                f" give {weights.place}.share_embeddings={'inputs' if name == 'output.weight' else 'none'}"
            )


def optional(model: nn.Module, name: str) -> bool:
    """Whether a parameter may be missing: of a head or a prefix token, or the step count of a batch norm.

    A model with a decoder must get one; a classifier that only takes the encoder leaves it out.
    """
    if isinstance(model, TextModel):
        children = {child for child, _ in model.named_children()}
        return name.partition(".")[0] not in {"text", "decoder"} & children
    module = name.rpartition(".")[0]
    return (
        name in PREFIX
        or module in as_model(model).head_modules
        or name.startswith("pre_logits.")
        or "num_batches_" in name
    )


def cast(value: Tensor, old: Tensor | None) -> Tensor:
    """A tensor in the precision of the model's own."""
    same_kind = old is not None and value.is_floating_point() and old.is_floating_point()
    return value.to(old.dtype) if same_kind else value


def check(name: str, value: Tensor, old: Tensor) -> Iterator[str]:
    """Problems of a tensor whatever its shape."""
    if value.is_floating_point() != old.is_floating_point():
        yield f"{name} is {value.dtype}, in the model {old.dtype}"
    elif value.is_floating_point() and not value.isfinite().all():
        yield f"{name} has values that are not finite"


def rename_to(model: nn.Module, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A state dict in the model's names; it may be in timm's."""
    current = model.state_dict()
    names = {name_in_timm(model, name): name for name in current}
    if sum(name in current for name in state) >= sum(name in names for name in state):
        return state
    return {names.get(name, name): value for name, value in state.items()}


def head_names(model: nn.Module) -> list[str]:
    """The parameters of the classifier, and of a distillation token's."""
    heads = as_model(model).head_modules
    return [name for name in model.state_dict() if name.rpartition(".")[0] in heads]


def start_head(model: nn.Module, parameter: Tensor) -> Tensor:
    """The first value of a parameter of a new head."""
    start = torch.zeros_like(parameter)
    # text heads that started at zero learned less: docs/lab-notes.md
    return nn.init.normal_(start, std=STD) if isinstance(model, TextModel) and start.dim() > 1 else start


def same_head(
    heads: Sequence[str],
    source: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    source_classes: Sequence[str] | None,
    classes: Sequence[str] | None,
) -> bool:
    """Whether a source's head is for the model's classes."""
    if source_classes is not None and classes is not None and tuple(source_classes) != tuple(classes):
        return False
    if any(name.startswith("pre_logits.") for name in source) != any(name.startswith("pre_logits.") for name in own):
        return False  # its input is another one
    present = [name for name in heads if name in source]
    return bool(present) and all(source[name].shape == own[name].shape for name in present)


def has_buffer(model: nn.Module, name: str, value: Tensor) -> bool:
    """Whether a tensor of the source is a fixed one of the model, such as sine positions."""
    buffer = dict(model.named_buffers()).get(name)
    return buffer is not None and buffer.shape == value.shape and torch.allclose(buffer, value.to(buffer), atol=1e-6)


def is_by_token(name: str) -> bool:
    """Whether a parameter of a model of text has a row for each token of the vocabulary."""
    return name.endswith(".embed.tokens.weight") or name in ("output.weight", "bias")


def misfit(name: str, value: Tensor, old: Tensor) -> str:
    """Why a tensor does not fit, and the fix where there is one."""
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


def shorten(names: Sequence[str], most: int = 2) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
