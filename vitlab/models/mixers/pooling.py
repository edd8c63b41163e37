"""Average pooling over the grid of patches (Yu et al., 2022, MetaFormer, arXiv 2111.11418, section 3.2).

Shapes: B batch, N patches, D model width.
"""

import torch.nn.functional as F
from torch import Tensor

from vitlab.config.schema.fields import Choice
from vitlab.models.mixers import Mixer, MixerSpec


class Pooling(Mixer):
    """The mean of each patch's kernel x kernel neighbours less the patch, for the residual path adds it; no parameters.

    At the border the mean is of the patches that are there.
    """

    def __init__(self, grid_size: tuple[int, int], kernel: int):
        super().__init__()
        self.grid_size = grid_size
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        grid = x.transpose(1, 2).unflatten(2, self.grid_size)
        pooled = F.avg_pool2d(grid, self.kernel, stride=1, padding=self.kernel // 2, count_include_pad=False)
        return (pooled - grid).flatten(2).transpose(1, 2)


def build(config: Choice, spec: MixerSpec) -> Pooling:
    spec.refuse_prefix(config.name)
    spec.check_kernel(config.kernel)
    return Pooling(spec.grid_size, config.kernel)
