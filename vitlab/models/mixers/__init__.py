"""Token mixers, which exchange information between tokens. Each has a YAML.

A mixer maps tokens (B, N, D) to (B, N, D): `mixer(x)`. One that attends also takes `mask` and, as cross-attention,
`context`; one that hides later tokens `causal` and `cache`; one that takes rotary positions `rotary`. A mixer's module
has `build(config, spec) -> nn.Module`, called once per layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from vitlab.config.schema.fields import Choice
from vitlab.registry import implementation

MODULES = {  # of kinds that share one; others have the module of their name
    "plain_attention": "attention",
    **dict.fromkeys(("depthwise", "fourier", "pooling", "token_mlp"), "simple"),
}


class Mixer(nn.Module):
    """The base class of mixers. Attributes say what a mixer can do; other modules can do none of these things."""

    attends = False  # by `vitlab.models.mixers.attention.attention`, so masks, caches and analyses of attention apply
    takes_rotary = False
    hides_later = False  # a token's output depends on it and those before it, where `causal` is given


def traits_of(mixer: nn.Module) -> type[Mixer]:
    """Return the class whose attributes say what a mixer can do."""
    return type(mixer) if isinstance(mixer, Mixer) else Mixer


def refuse_lacking(name: str, mixer: nn.Module, **wanted: Mapping[str, bool]) -> None:
    """Raise ValueError if `mixer` lacks the ability that a given setting needs.

    `wanted` maps abilities to settings: {`key=value`: whether it was given}.
    """
    for ability, settings in wanted.items():
        for setting, given in settings.items():
            if given and not getattr(traits_of(mixer), ability):
                raise ValueError(f"{setting} needs model.mixer=attention, not {name}")


@dataclass(frozen=True)
class MixerSpec:
    """The model around a mixer. Its tokens are `prefix_tokens`, then a grid of patches row by row."""

    width: int
    heads: int
    head_width: int
    grid_size: tuple[int, int]
    prefix_tokens: int
    dropout: float
    norm: Callable[[int], nn.Module]
    bias: bool = True  # of the linear layers of attention
    attention_dropout: float = 0.0
    causal: bool = False

    @property
    def tokens(self) -> int:
        return self.prefix_tokens + self.grid_size[0] * self.grid_size[1]


def build(config: Choice, spec: MixerSpec) -> nn.Module:
    """Build the mixer of one layer. Raises UserError for a kind without a module that builds it."""
    module = implementation("vitlab.models.mixers", MODULES.get(config.kind, config.kind), "build")
    return module.build(config, spec)
