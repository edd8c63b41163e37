"""Token mixers without attention: an MLP over the tokens, convolutions, pooling, Fourier's transform.

Shapes: B batch, N tokens, D model width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.config.schema.fields import Choice
from vitlab.models.layers import Mlp
from vitlab.models.mixers import Mixer, MixerSpec
from vitlab.models.mixers.attention import KeyValueCache


class TokenMLP(Mixer):
    """One MLP N -> hidden -> N shared by all channels; so the number of tokens is fixed.

    Tolstikhin et al., 2021, MLP-Mixer, arXiv 2105.01601, section 2.
    """

    def __init__(self, tokens: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.mlp = Mlp(tokens, hidden, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens: x (B, N, D) -> (B, N, D)."""
        return self.mlp(x.transpose(1, 2)).transpose(1, 2)


class DepthwiseConvolution(Mixer):
    """A kernel x kernel convolution for each channel, zeros around the grid of patches.

    As in ConvMixer, Trockman and Kolter, 2022, arXiv 2201.09792.
    """

    def __init__(self, width: int, grid_size: tuple[int, int], kernel: int, dropout: float = 0.0):
        super().__init__()
        self.grid_size = grid_size
        self.conv = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve each channel of the grid: x (B, N, D) -> (B, N, D)."""
        return self.drop(self.conv(x.transpose(1, 2).unflatten(2, self.grid_size)).flatten(2).transpose(1, 2))


class CausalConvolution(Mixer):
    """A convolution over a token and the `kernel` - 1 before it, zeros before the first (van den Oord et al., 2016)."""

    hides_later = True

    def __init__(self, width: int, kernel: int, dropout: float = 0.0):
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, groups=width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, causal: bool = True, cache: KeyValueCache | None = None) -> Tensor:
        """Convolve tokens, x (B, N, D) -> (B, N, D); with a cache, x holds the tokens after the cached ones."""
        reads = x.shape[1] + self.conv.kernel_size[0] - 1
        if cache is not None:
            x = cache.extend(x[:, None], x[:, None, :, :0])[0][:, 0, -reads:]
        return self.drop(self.conv(F.pad(x.transpose(1, 2), (reads - x.shape[1], 0))).transpose(1, 2))


class Pooling(Mixer):
    """The mean of each patch's kernel x kernel neighbours less the patch, for the residual path adds it; no parameters.

    At the border the mean is of the patches that are there. Yu et al., 2022, MetaFormer, arXiv 2111.11418, section 3.2.
    """

    def __init__(self, grid_size: tuple[int, int], kernel: int):
        super().__init__()
        self.grid_size = grid_size
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """Pool neighbours and subtract each patch: x (B, N, D) -> (B, N, D)."""
        grid = x.transpose(1, 2).unflatten(2, self.grid_size)
        pooled = F.avg_pool2d(grid, self.kernel, stride=1, padding=self.kernel // 2, count_include_pad=False)
        return (pooled - grid).flatten(2).transpose(1, 2)


class Fourier(Mixer):
    """The real part of the discrete Fourier transform over the tokens and the width; no parameters.

    Lee-Thorp et al., 2022, FNet, arXiv 2105.03824, section 3.2.
    """

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens and width: x (B, N, D) -> (B, N, D)."""
        # in float32: the transforms have no bfloat16
        return self.drop(torch.fft.fft2(x.float(), dim=(1, 2)).real.to(x.dtype))


def build(config: Choice, spec: MixerSpec) -> Mixer:
    if config.kind == "fourier":
        return Fourier(spec.dropout)
    if config.kind == "token_mlp":
        hidden = spec.width // 2 if config.hidden is None else config.hidden
        return TokenMLP(spec.tokens, hidden, spec.dropout)
    if spec.prefix_tokens:  # which are not on the grid of patches
        raise ValueError(
            f"model.mixer={config.name} mixes patches only; give model.pool=mean without model.class_token, "
            "model.registers and model.distillation"
        )
    if config.kernel % 2 == 0:
        raise ValueError(f"model.mixer.kernel={config.kernel}: give an odd number")
    if config.kind == "pooling":
        return Pooling(spec.grid_size, config.kernel)
    if spec.causal:
        return CausalConvolution(spec.width, config.kernel, spec.dropout)
    return DepthwiseConvolution(spec.width, spec.grid_size, config.kernel, spec.dropout)
