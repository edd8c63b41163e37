"""Token mixing by an MLP (Tolstikhin et al., 2021, MLP-Mixer, arXiv 2105.01601, section 2).

Shapes: B batch, N tokens, D model width.
"""

from torch import Tensor

from vitlab.config.schema.fields import LARGEST_LAYER, Choice
from vitlab.models.layers import Mlp
from vitlab.models.mixers import Mixer, MixerSpec


class TokenMLP(Mixer):
    """The same MLP N -> hidden -> N for every channel; so the number of tokens is fixed."""

    in_timm = True

    def __init__(self, tokens: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.mlp = Mlp(tokens, hidden, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        return self.mlp(x.transpose(1, 2)).transpose(1, 2)


def build(config: Choice, spec: MixerSpec) -> TokenMLP:
    hidden = spec.width // 2 if config.hidden is None else config.hidden
    if type(hidden) is not int or not 1 <= hidden <= LARGEST_LAYER:
        raise ValueError(f"model.mixer.hidden={hidden}: give a whole number from 1 to {LARGEST_LAYER}")
    return TokenMLP(spec.tokens, hidden, spec.dropout)
