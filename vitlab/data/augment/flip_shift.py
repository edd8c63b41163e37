"""Mirroring and shifting: random crops of a padded image, as for CIFAR (He et al., 2016, section 4.2)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vitlab.config.schema.fields import setting

if TYPE_CHECKING:
    from torch import Generator, Tensor

ORDER = 20


@dataclass(frozen=True)
class Config:
    flip: bool = False  # mirror half of the images
    shift: int = setting(0, least=0)  # pad by this many pixels, crop at random


def apply(images: "Tensor", config: Any, recipe: Any, generator: "Generator") -> "Tensor":
    return augment(images, config.flip, config.shift, generator)


def augment(images: "Tensor", flip: bool, shift: int, generator: "Generator") -> "Tensor":
    """Mirror half of the images left to right, and move each by up to `shift` pixels either way, zeros coming in.

    images (B, C, H, W) -> the same; the very tensor when both are off. Each image draws its
    own flip and its own shifts, less than a side, from `generator`, which may be on the CPU when the batch is not.
    Before `normalize` zero is black.
    """
    if not flip and not shift:
        return images
    import torch

    drawn = {"generator": generator, "device": generator.device}
    moves, mirrored = torch.zeros(2, len(images), 1, dtype=torch.int64), torch.zeros(len(images), 1)
    if shift:
        moves = torch.randint(-shift, shift + 1, moves.shape, **drawn)
    if flip:
        mirrored = torch.randint(0, 2, mirrored.shape, **drawn)
    return gather_pixels(images, shift, moves.to(images.device), mirrored.to(images.device, torch.bool))


def gather_pixels(images: "Tensor", shift: int, moves: "Tensor", mirrored: "Tensor") -> "Tensor":
    """`augment` with (rows, columns) (2, B, 1) to move and bool (B, 1), without waiting for a device."""
    import torch

    B, C, H, W = images.shape
    rows = torch.arange(H, device=images.device) + moves[0]
    columns = torch.arange(W, device=images.device) + moves[1]
    inside = ((rows >= 0) & (rows < H))[:, None, :, None] & ((columns >= 0) & (columns < W))[:, None, None, :]
    columns = torch.where(mirrored, W - 1 - columns, columns)
    source = rows.clamp(0, H - 1)[:, :, None] * W + columns.clamp(0, W - 1)[:, None, :]
    taken = images.reshape(B, C, H * W).gather(2, source.view(B, 1, H * W).expand(B, C, H * W)).view(B, C, H, W)
    return taken * inside if shift else taken
