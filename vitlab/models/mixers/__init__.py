"""Token mixers: what lets the tokens of a sequence see each other. One file and one YAML each.

A mixer maps tokens (B, N, D) to (B, N, D): `mixer(x)`. Attention also takes `mask`, `causal`, `rotary` and, as
cross-attention, `context`; a mixer without such an argument cannot heed it, and Python says so. Its module has
`build(config, spec) -> nn.Module`, called once per layer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MixerSpec:
    """What a mixer may know of the model around it. Tokens are `prefix_tokens`, then a grid of patches row by row."""

    width: int
    heads: int
    head_width: int
    grid_size: tuple[int, int]
    prefix_tokens: int
    dropout: float
    norm: "Callable[[int], nn.Module]"

    @property
    def tokens(self) -> int:
        return self.prefix_tokens + self.grid_size[0] * self.grid_size[1]

    def refuse_prefix(self, name: str) -> None:
        """Raise ValueError where there are tokens that a mixer over the grid alone would never join to it."""
        if self.prefix_tokens:
            raise ValueError(
                f"model.mixer={name} mixes the grid of patches alone: give model.pool=mean, and no model.class_token, "
                "model.registers or model.distillation"
            )
