"""From images to tokens, and where they are.

Shapes: B batch, C channels, Y x X pixels, N patches, D width.
"""

import torch
from torch import Tensor, nn


class PatchEmbed(nn.Module):
    """Non-overlapping patches, each through the same linear layer: (B, C, Y, X) -> (B, N, D), row by row."""

    def __init__(self, image_size: tuple[int, int], patch_size: tuple[int, int], channels: int, width: int):
        super().__init__()
        if any(pixels % patch for pixels, patch in zip(image_size, patch_size, strict=True)):
            raise ValueError(f"patch_size={patch_size} does not divide image_size={image_size}")
        self.image_size = image_size
        self.patch_size = patch_size
        self.grid_size = (image_size[0] // patch_size[0], image_size[1] // patch_size[1])
        self.proj = nn.Conv2d(channels, width, kernel_size=patch_size, stride=patch_size)

    def reset_parameters(self) -> None:
        """LeCun normal over the patch's pixels, zero bias: the paper's code."""
        nn.init.trunc_normal_(self.proj.weight, std=self.proj.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.proj.bias)

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[-2:]) != self.image_size:
            raise ValueError(f"images of {tuple(images.shape[-2:])} pixels, the model takes {self.image_size}")
        return self.proj(images).flatten(2).transpose(1, 2)


def sincos2d(grid_size: tuple[int, int], width: int, prefix_tokens: int = 0, base: float = 10_000.0) -> Tensor:
    """Fixed positions (1, prefix + N, D): sines and cosines of the column in one half of D, of the row in the other.

    Beyer et al., 2022 (arXiv 2205.01580). Prefix tokens get zeros. `width` must be a multiple of 4.
    """
    if width % 4:
        raise ValueError(f"positions=sincos2d needs a width that is a multiple of 4, not {width}")
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in grid_size), indexing="ij")
    rates = base ** -(torch.arange(width // 4, dtype=torch.float32) / max(width // 4 - 1, 1))
    angles = [place.reshape(-1, 1) * rates for place in (columns, rows)]
    table = torch.cat([wave(a) for a in angles for wave in (torch.sin, torch.cos)], dim=1)
    return torch.cat([torch.zeros(prefix_tokens, width), table]).unsqueeze(0)
