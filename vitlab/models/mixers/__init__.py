"""Token mixers, which exchange information between tokens. One file and one YAML each.

A mixer maps tokens (B, N, D) to (B, N, D): `mixer(x)`. One that attends also takes `mask` and, as cross-attention,
`context`; one that hides later tokens `causal` and `cache`; one that takes rotary positions `rotary`. A mixer's module
has `build(config, spec) -> nn.Module`, called once per layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn


class Mixer(nn.Module):
    """The base class of mixers, which says what one can do; a module without it has none of this."""

    attends = False  # by `vitlab.models.kernels.attention`, so masks, caches and analyses of attention apply
    takes_rotary = False
    hides_later = False  # a token's output depends on it and those before it, where `causal` is given
    in_timm = False  # timm has the very same layer; a derived class says so again

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.in_timm = vars(cls).get("in_timm", False)


def traits_of(mixer: nn.Module) -> type[Mixer]:
    """The class whose attributes say what a mixer can do."""
    return type(mixer) if isinstance(mixer, Mixer) else Mixer


def refuse_lacking(name: str, mixer: nn.Module, **wanted: Mapping[str, bool]) -> None:
    """Raise ValueError where a setting (`key=value`: whether it was given) needs what the mixer `name` cannot do."""
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

    @staticmethod
    def check_kernel(kernel: int) -> None:
        """Raise ValueError for a side that has no middle, or none that a grid of patches needs."""
        if kernel % 2 == 0 or not 1 <= kernel < 1000:
            raise ValueError(f"model.mixer.kernel={kernel}: give an odd number from 1 to 999")

    def refuse_prefix(self, name: str) -> None:
        """Raise ValueError for prefix tokens, which a mixer over the grid of patches would never mix."""
        if self.prefix_tokens:
            raise ValueError(
                f"model.mixer={name} mixes patches only; give model.pool=mean without model.class_token, "
                "model.registers and model.distillation"
            )
