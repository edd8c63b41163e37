"""Fitting weights of one model into another: other names, image and patch sizes, channels, classes.

Shapes: N tokens, D width, C channels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vitlab.config import UserError, choices_text
from vitlab.models.heads import STD
from vitlab.models.weights.resample import first_convolution, grid_of, kernels, positions, tokens_with_positions

HEADS = ("auto", "keep", "new")


@dataclass(frozen=True)
class Weights:
    """A state dict and what is known of the model it is of; `origin` is how to call it."""

    state: Mapping[str, Tensor]
    origin: str
    grid_size: tuple[int, int] | None = None  # of its patches; none: square
    classes: Sequence[str] | None = None
    mean: Sequence[float] | None = None  # of the pixels (0..1) that it was trained on; none: not known
    std: Sequence[float] | None = None


@dataclass
class LoadReport:
    """What became of each parameter: names as the model has them, `unexpected` as the source has them."""

    origin: str
    loaded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)  # `name (from -> to)`; these are loaded too
    new: list[str] = field(default_factory=list)  # the head
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)  # heads of the source that the model has not
    unexpected: list[str] = field(default_factory=list)
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"{self.origin}: {len(self.loaded)} of {len(self.loaded) + len(self.new) + len(self.missing)} loaded"]
        for what in ("resized", "new", "missing", "unused", "unexpected"):
            names = getattr(self, what)
            shown = ", ".join(names[:6]) + (f", ... ({len(names)} in all)" if len(names) > 6 else "")
            lines += [f"  {what}: {shown}"] if names else []
        lines += [f"  {self.advice}"] if self.advice else []
        return "\n".join(lines)


def fit(model: nn.Module, weights: Weights, head: str = "auto", classes: Sequence[str] | None = None) -> LoadReport:
    """Load weights into a model; the report says what was resized, begun anew, missing or not used.

    Names are this project's or timm's. Position embeddings and patches of another size are resampled as timm does, the
    first convolution takes another number of channels; of learned positions of tokens, the first are taken where the
    source has more. `head` is "keep", "new" or "auto": new where the number of classes or, as far as known, their names
    (`classes` of the model) are others. A new head begins at zero (Dosovitskiy et al., 2021, section 3.2), that of a
    text model normal, as BERT's and GPT's. Raises UserError, the model unchanged, where a shape does
    not fit or no name does.
    """
    if head not in HEADS:
        raise UserError(f"head={head}: unknown; {choices_text(str(head), HEADS)}")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.state.items()):
        raise UserError(f"init={weights.origin}: a state dict has tensors by name, and nothing else")
    mine = model.state_dict()
    found = {name: as_type(value, mine.get(name)) for name, value in in_names_of(model, weights.state).items()}
    unfit = [line for name, value in found.items() if name in mine for line in unloadable(name, value, mine[name])]
    if unfit:
        raise UserError(f"init={weights.origin}: {'; '.join(unfit[:3])}")
    report = LoadReport(weights.origin)
    state: dict[str, Tensor] = {}
    problems = []
    heads, first = head_names(model), first_convolution(model)
    keep = head == "keep" or (head == "auto" and same_head(heads, found, mine, weights.classes, classes))
    for name, old in mine.items():
        if name in heads and not keep:
            report.new.append(name)
            state[name] = begun(model, old)
            continue
        if name not in found:
            report.missing.append(name)
            continue
        value = found[name]
        if name == "pos_embed" and (grid := grid_of(model, old, value)) is not None:
            fitted = positions(value, old, grid, found, weights.grid_size)
        elif first is not None and name == first[0]:
            fitted = kernels(value, first[1])
        elif name == "text.embed.positions" and len(value) > len(old):
            fitted = value[: len(old)]
        else:
            fitted = value
        if fitted.shape != old.shape:
            problems.append(misfit(name, value, old))
            continue
        if fitted is not value:
            report.resized.append(f"{name} ({shape(value)} -> {shape(old)})")
        report.loaded.append(name)
        state[name] = fitted
    moved = tokens_with_positions(model, found, weights.grid_size)
    state |= moved
    report.resized += [f"{name} (with its position)" for name in moved]
    left = [name for name in found if name not in mine and not has_fixed(model, name, found[name])]
    report.unused = [name for name in left if hasattr(model, "text") and not name.startswith("text.")]
    report.unexpected = [name for name in left if name not in report.unused]
    if not report.loaded and not problems:
        problems.append(
            f"none of its parameters is one of the model's: it has {', '.join([*found][:3])} ..., the model "
            f"{', '.join([*mine][:3])} ..."
        )
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(f"init={weights.origin}: {'; '.join(problems[:3])}{more}")
    model.load_state_dict(state, strict=False)
    return report


def as_type(value: Tensor, old: Tensor | None) -> Tensor:
    """A parameter in the model's own precision."""
    same_kind = old is not None and value.is_floating_point() and old.is_floating_point() and not value.is_quantized
    return value.to(old.dtype) if same_kind else value


def unloadable(name: str, value: Tensor, old: Tensor) -> Iterator[str]:
    """What makes a tensor no parameter, whatever its shape."""
    if value.layout != torch.strided or value.is_meta or value.is_quantized:
        yield f"{name} is no plain tensor of numbers"
    elif value.is_floating_point() != old.is_floating_point():
        yield f"{name} is of {value.dtype}, the model's of {old.dtype}"
    elif value.is_floating_point() and not value.isfinite().all():
        yield f"{name} has values that are not finite"
    elif not value.numel() and old.numel():
        yield f"{name} is empty"


def in_names_of(model: nn.Module, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A state dict in the model's names, whether it is in these already or in timm's."""
    own = model.state_dict()
    if not hasattr(model, "timm_name"):
        return state
    table = {model.timm_name(name): name for name in own}
    if sum(name in own for name in state) >= sum(name in table for name in state):
        return state
    return {table.get(name, name): value for name, value in state.items()}


def head_names(model: nn.Module) -> list[str]:
    """The parameters of the classifier, or of two where there is a distillation token."""
    known = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ("head", "head_dist")
    known = (known,) if isinstance(known, str) else known
    return [name for name in model.state_dict() if name.rpartition(".")[0] in known]


def begun(model: nn.Module, parameter: Tensor) -> Tensor:
    """What a parameter of a new head begins with."""
    new = torch.zeros_like(parameter)
    # text heads that began at zero learnt less: docs/lab-notes.md
    return nn.init.normal_(new, std=STD) if hasattr(model, "text") and new.dim() > 1 else new


def same_head(
    heads: Sequence[str],
    found: Mapping[str, Tensor],
    mine: Mapping[str, Tensor],
    theirs: Sequence[str] | None,
    classes: Sequence[str] | None,
) -> bool:
    """Whether a source's head is for the model's classes."""
    if theirs is not None and classes is not None and tuple(theirs) != tuple(classes):
        return False
    if any(name.startswith("pre_logits.") for name in found) != any(name.startswith("pre_logits.") for name in mine):
        return False  # it reads something else
    present = [name for name in heads if name in found]
    return bool(present) and all(found[name].shape == mine[name].shape for name in present)


def has_fixed(model: nn.Module, name: str, value: Tensor) -> bool:
    """Whether a parameter of the source is what the model has fixed, such as sine positions."""
    mine = dict(model.named_buffers()).get(name)
    return mine is not None and mine.shape == value.shape and torch.allclose(mine, value.to(mine), atol=1e-6)


def misfit(name: str, value: Tensor, old: Tensor) -> str:
    """Why a parameter does not fit, and where there is something to do about it what that is."""
    same_width = value.shape[1:] == old.shape[1:]
    if name == "text.embed.tokens.weight" and same_width:
        return (
            f"its vocabulary has {len(value)} tokens, the model's {len(old)}; both must have the same tokenizer: give "
            "data.tokenizer the path of its tokenizer.json"
        )
    if name == "text.embed.positions" and same_width:
        return f"it has positions for {len(value)} tokens, the model takes {len(old)}; give data.length={len(value)}"
    return f"{name} {shape(value)} does not fit into {shape(old)}"


def shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"
