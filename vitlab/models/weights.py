"""Fitting weights of one model into another: other names, image and patch sizes, channels, classes.

Shapes: N tokens, D width, C channels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from timm.models import adapt_input_conv
from torch import Tensor, nn

from vitlab.config import UserError


@dataclass(frozen=True)
class Weights:
    """A state dict and what is known of the model it is of; `origin` is how to call it."""

    state: Mapping[str, Tensor]
    origin: str
    grid_size: tuple[int, int] | None = None  # of its patches; none: square
    classes: Sequence[str] | None = None


@dataclass
class LoadReport:
    """What became of each parameter: names as the model has them, `unexpected` as the source has them."""

    origin: str
    loaded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)  # `name (from -> to)`; these are loaded too
    new: list[str] = field(default_factory=list)  # the head, begun at zero
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.origin}: {len(self.loaded)} of {len(self.loaded) + len(self.new) + len(self.missing)} loaded"]
        for what in ("resized", "new", "missing", "unexpected"):
            names = getattr(self, what)
            shown = ", ".join(names[:6]) + (f", ... ({len(names)} in all)" if len(names) > 6 else "")
            lines += [f"  {what}: {shown}"] if names else []
        return "\n".join(lines)


def fit(model: nn.Module, weights: Weights, head: str = "auto", classes: Sequence[str] | None = None) -> LoadReport:
    """Load weights into a model; the report says what was resized, begun anew, missing or not used.

    Names are this project's or timm's. Position embeddings and patches of another size are resampled as timm does, the
    first convolution takes another number of channels. `head` is "keep", "new" (zeros: Dosovitskiy et al., 2021,
    section 3.2) or "auto": new where the number of classes or, as far as known, their names (`classes` of the model)
    are others. Raises UserError, the model unchanged, where a shape does not fit or no name does.
    """
    found, mine = in_names_of(model, weights.state), model.state_dict()
    report = LoadReport(weights.origin)
    state: dict[str, Tensor] = {}
    problems = []
    heads, first = head_names(model), first_convolution(model)
    keep = head == "keep" or (head == "auto" and same_head(heads, found, mine, weights.classes, classes))
    for name, old in mine.items():
        if name in heads and not keep:
            report.new.append(name)
            state[name] = torch.zeros_like(old)
            continue
        if name not in found:
            report.missing.append(name)
            continue
        value = found[name]
        if name == "pos_embed" and value.shape[-1] == old.shape[-1]:
            fitted = positions(value, old, model.patch_embed.grid_size, weights)
        elif first is not None and name == first[0]:
            fitted = kernels(value, first[1])
        else:
            fitted = value
        if fitted.shape != old.shape:
            problems.append(f"{name} {shape(value)} does not fit into {shape(old)}")
            continue
        if fitted is not value:
            report.resized.append(f"{name} ({shape(value)} -> {shape(old)})")
        report.loaded.append(name)
        state[name] = fitted
    report.unexpected = [name for name in found if name not in mine]
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
    present = [name for name in heads if name in found]
    return bool(present) and all(found[name].shape == mine[name].shape for name in present)


def first_convolution(model: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """The convolution that reads the images, with its weight's name."""
    convolutions = ((f"{name}.weight", m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d))
    return next(convolutions, None)


def kernels(weight: Tensor, target: nn.Conv2d) -> Tensor:
    """(D, C, Y, X) for the target's channels and, where it embeds patches, for its patch size."""
    if weight.dim() != 4:
        return weight
    if weight.shape[1] != target.in_channels:
        weight = adapt_input_conv(target.in_channels, weight, base_chans=weight.shape[1])
    if weight.shape[2:] != target.kernel_size and target.kernel_size == target.stride:
        weight = resample_patch_embed(weight, list(target.kernel_size))
    return weight


def positions(value: Tensor, old: Tensor, grid: tuple[int, int], weights: Weights) -> Tensor:
    """(1, prefix + N, D) for the model's grid. Prefix tokens beyond the source's keep what `old` has.

    A source that does not say its grid is taken to have the model's when it has as many places, else a square one.
    """
    if weights.grid_size is None and value.shape == old.shape:
        return value
    prefix, source_grid = old.shape[1] - math.prod(grid), weights.grid_size or square_grid(value.shape[1], weights)
    had = value.shape[1] - math.prod(source_grid)
    if had == prefix and tuple(source_grid) == tuple(grid):
        return value
    patches = resample_abs_pos_embed(value[:, had:], list(grid), old_size=list(source_grid), num_prefix_tokens=0)
    return torch.cat([value[:, : min(had, prefix)], old[:, had:prefix], patches], dim=1)


def square_grid(places: int, weights: Weights) -> tuple[int, int]:
    """The grid of a table with so many places, some for the prefix tokens that the source has, or none."""
    tokens = sum(weights.state[k].shape[1] for k in ("cls_token", "dist_token", "reg_token") if k in weights.state)
    for prefix in (tokens, 0):
        side = math.isqrt(max(places - prefix, 0))
        if side and side * side == places - prefix:
            return side, side
    raise UserError(
        f"init={weights.origin}: pos_embed has {places} places, {tokens} for prefix tokens and the rest no square: "
        "give a run's folder, which says its grid"
    )


def shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"
