"""Options of a model that decide its outputs but not the shapes of its weights: mixer, heads, epsilon, ..."""

import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import timm.layers
from torch import nn

from vitlab.models.encoder import Block, TokenBatchNorm
from vitlab.models.layers import GatedMlp, Mlp
from vitlab.models.mixers.attention import Attention
from vitlab.models.text import TextEncoder
from vitlab.models.vit import ViT

ACTIVATION_NAMES = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "ReLU": "relu"}  # of classes
GATED_NAMES = {"SiLU": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}


def options_of(model: nn.Module) -> dict[str, Any]:
    """These options by their keys under `model.`, sorted, of the first part with each; unknown ones are left out."""
    options: dict[str, Any] = {}
    for module in model.modules():
        options = read_options(module) | options
    return dict(sorted(options.items()))


@singledispatch
def read_options(module: nn.Module) -> dict[str, Any]:
    """The options that one module shows."""
    return {}


@read_options.register
def _(module: ViT) -> dict[str, Any]:
    return {"pool": module.pool}


@read_options.register
def _(module: TextEncoder) -> dict[str, Any]:
    return {"causal": module.causal, "positions": name_positions(module)}


@read_options.register
def _(module: Block) -> dict[str, Any]:
    kind = type(module.mixer)
    kind = Attention if issubclass(kind, Attention) and kind.in_timm else kind  # the same layer, written otherwise
    return {"mixer": kind.__module__.removeprefix("vitlab.models.mixers.")}


@read_options.register
def _(module: Attention) -> dict[str, Any]:
    return {"heads": module.heads}


@read_options.register
def _(module: timm.layers.Attention) -> dict[str, Any]:
    return {"mixer": "attention", "heads": module.num_heads}


@read_options.register(nn.LayerNorm)
@read_options.register(nn.RMSNorm)
@read_options.register(TokenBatchNorm)
@read_options.register(timm.layers.RmsNorm)
def _(module: nn.Module) -> dict[str, Any]:
    return {"norm_eps": module.eps}


@read_options.register(Mlp)
@read_options.register(timm.layers.Mlp)
@read_options.register(timm.layers.GluMlp)
@read_options.register(timm.layers.SwiGLU)
def _(module: nn.Module) -> dict[str, Any]:
    return {"mlp": mlp_name(module)}


def name_positions(text: TextEncoder) -> str:
    """The `positions` of a model of text."""
    if text.rotary is not None:
        return "rotary"
    if text.relative is not None:
        return "relative"
    if text.embed.positions is None:
        return "none"
    return "learned" if isinstance(text.embed.positions, nn.Parameter) else "sincos"


def differing_options(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The options that two models both have, with different values: (that of one, that of the other)."""
    pairs = {key: (one[key], other[key]) for key in one if key in other}
    return {key: pair for key, pair in pairs.items() if not is_same(*pair)}


def is_same(one: Any, other: Any) -> bool:
    # an epsilon may have been rounded to single precision on its way through a file
    return math.isclose(one, other, rel_tol=1e-6) if isinstance(one, float) else one == other


def format_options(options: Mapping[str, Any], prefix: str = "") -> str:
    """`heads=4 norm_eps=1e-05`, as the command line takes them with the prefix `model.`."""
    return " ".join(
        f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items()
    )


def mlp_name(mlp: nn.Module) -> str:
    """The `kind` of `feed_forward` that an MLP is, this project's or timm's; else the class name of its activation."""
    act = mlp.act
    tanh = isinstance(act, nn.GELU) and act.approximate == "tanh"
    name = "gelu_tanh" if tanh else ACTIVATION_NAMES.get(type(act).__name__, type(act).__name__)
    return GATED_NAMES.get(name, name) if isinstance(mlp, (GatedMlp, timm.layers.SwiGLU)) else name
