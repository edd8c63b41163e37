"""Fourier mixing (Lee-Thorp et al., 2022, FNet, arXiv 2105.03824, section 3.2): no parameters.

Shapes: B batch, N tokens, D model width.
"""

import torch
from torch import Tensor, nn

from vitlab.config.schema.fields import Choice
from vitlab.models.mixers import Mixer, MixerSpec


class Fourier(Mixer):
    """The real part of the discrete Fourier transform over the tokens and the width."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        # in float32: the transforms have no bfloat16
        return self.drop(torch.fft.fft2(x.float(), dim=(1, 2)).real.to(x.dtype))


def build(config: Choice, spec: MixerSpec) -> Fourier:
    return Fourier(spec.dropout)
