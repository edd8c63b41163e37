"""Token mixers, which exchange information between tokens. One file and one YAML each.

A mixer maps tokens (B, N, D) to (B, N, D): `mixer(x)`. Attention also takes `mask`, `causal`, `rotary` and, as
cross-attention, `context`; other mixers raise TypeError for them. A mixer's module has
`build(config, spec) -> nn.Module`, called once per layer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MixerSpec:
    """The model around a mixer. Its tokens are `prefix_tokens`, then a grid of patches row by row."""

    width: int
    heads: int
    head_width: int
    grid_size: tuple[int, int]
    prefix_tokens: int
    dropout: float
    norm: "Callable[[int], nn.Module]"
    bias: bool = True  # of the linear layers of attention

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
