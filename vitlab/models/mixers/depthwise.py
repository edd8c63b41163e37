"""Depthwise convolution over the grid of patches (as in ConvMixer, Trockman and Kolter, 2022, arXiv 2201.09792), and of
a causal model over its tokens.

Shapes: B batch, N tokens, D model width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.config.schema.fields import Choice
from vitlab.models.mixers import Mixer, MixerSpec
from vitlab.models.mixers.attention import KeyValueCache


class DepthwiseConvolution(Mixer):
    """A kernel x kernel convolution for each channel, zeros around the grid."""

    def __init__(self, width: int, grid_size: tuple[int, int], kernel: int, dropout: float = 0.0):
        super().__init__()
        self.grid_size = grid_size
        self.conv = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        return self.drop(self.conv(x.transpose(1, 2).unflatten(2, self.grid_size)).flatten(2).transpose(1, 2))


class CausalConvolution(Mixer):
    """A convolution over a token and the `kernel` - 1 before it, zeros before the first (van den Oord et al., 2016)."""

    hides_later = True

    def __init__(self, width: int, kernel: int, dropout: float = 0.0):
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, groups=width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, causal: bool = True, cache: KeyValueCache | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D); with a cache x are the tokens that follow those in it."""
        reads = x.shape[1] + self.conv.kernel_size[0] - 1
        if cache is not None:
            x = cache.extend(x[:, None], x[:, None, :, :0])[0][:, 0, -reads:]
        return self.drop(self.conv(F.pad(x.transpose(1, 2), (reads - x.shape[1], 0))).transpose(1, 2))


def build(config: Choice, spec: MixerSpec) -> DepthwiseConvolution | CausalConvolution:
    spec.refuse_prefix(config.name)
    spec.check_kernel(config.kernel)
    if spec.causal:
        return CausalConvolution(spec.width, config.kernel, spec.dropout)
    return DepthwiseConvolution(spec.width, spec.grid_size, config.kernel, spec.dropout)
