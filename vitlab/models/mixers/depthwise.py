"""Depthwise convolution over the grid of patches (as in ConvMixer, Trockman and Kolter, 2022, arXiv 2201.09792).

Shapes: B batch, N patches, D model width.
"""

from torch import Tensor, nn

from vitlab.config.schema.fields import Choice
from vitlab.models.mixers import Mixer, MixerSpec


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


def build(config: Choice, spec: MixerSpec) -> DepthwiseConvolution:
    spec.refuse_prefix(config.name)
    spec.check_kernel(config.kernel)
    return DepthwiseConvolution(spec.width, spec.grid_size, config.kernel, spec.dropout)
