"""Batched augmentation and normalisation, on the device that holds the batch."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

ATTEMPTS = 10  # at a crop that fits, as torchvision's


def normalize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 (B, C, H, W) -> float32 (B, C, H, W): (x / 255 - mean) / std, with 1 or C means and deviations."""
    channels = images.shape[1]
    assert len(mean) in (1, channels), f"{len(mean)} means for {channels} channels"
    assert len(std) in (1, channels), f"{len(std)} deviations for {channels} channels"
    mean, std = (
        torch.tensor(list(v), dtype=torch.float32, device=images.device).view(1, -1, 1, 1) for v in (mean, std)
    )
    return (images * (1 / (255 * std))).sub_(mean / std)


def augment(images: Tensor, flip: bool, shift: int, generator: torch.Generator) -> Tensor:
    """Mirror half of the images left to right, and move each by up to `shift` pixels either way, zeros coming in.

    images (B, C, H, W) of any type -> the same; the very tensor when both are off. Each image draws its own flip and
    its own shifts from `generator`, which may be on the CPU when the batch is not. Before `normalize` zero is black.
    """
    if not flip and not shift:
        return images
    B, C, H, W = images.shape
    where = {"generator": generator, "device": generator.device}
    rows = torch.arange(H, device=images.device).expand(B, H)
    columns = torch.arange(W, device=images.device).expand(B, W)
    if shift:
        moves = torch.randint(-shift, shift + 1, (2, B, 1), **where).to(images.device)
        rows, columns = rows + moves[0], columns + moves[1]
    inside = ((rows >= 0) & (rows < H))[:, None, :, None] & ((columns >= 0) & (columns < W))[:, None, None, :]
    if flip:
        mirrored = torch.randint(0, 2, (B, 1), **where).to(images.device, torch.bool)
        columns = torch.where(mirrored, W - 1 - columns, columns)
    source = rows.clamp(0, H - 1)[:, :, None] * W + columns.clamp(0, W - 1)[:, None, :]
    taken = images.reshape(B, C, H * W).gather(2, source.view(B, 1, H * W).expand(B, C, H * W))
    return taken.view(B, C, H, W) * inside if shift else taken.view(B, C, H, W)


def crop(
    images: Tensor,
    scale: Sequence[float] | None,
    generator: torch.Generator,
    aspect: Sequence[float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Cut out of each image a random share of its area, of some aspect, and resize it bilinearly to the whole.

    uint8 (B, C, H, W) -> the same; the very tensor without a `scale`, [least, most] of the area; `aspect` is [least,
    most] of width to height (Szegedy et al., 2015; torchvision's RandomResizedCrop: area uniform, logarithm of the
    aspect uniform, up to 10 attempts that fit).
    """
    if scale is None:
        return images
    B, _, H, W = images.shape
    area, tilt, x, y = torch.rand((4, ATTEMPTS, B), generator=generator, device=generator.device)
    area = (scale[0] + (scale[1] - scale[0]) * area) * (H * W)
    low, high = (math.log(value) for value in aspect)
    ratio = torch.exp(low + (high - low) * tilt)
    width, height = (area * ratio).sqrt() / W, (area / ratio).sqrt() / H  # shares of the sides
    first = ((width <= 1) & (height <= 1)).int().argmax(0, keepdim=True)  # the first that fits, or the very first
    width, height, x, y = (v.gather(0, first)[0] for v in (width.clamp(max=1), height.clamp(max=1), x, y))
    theta = torch.zeros(B, 2, 3, device=width.device)  # output places from -1 to 1 -> input places
    theta[:, 0, 0], theta[:, 1, 1] = width, height
    theta[:, 0, 2], theta[:, 1, 2] = (1 - width) * (2 * x - 1), (1 - height) * (2 * y - 1)
    grid = F.affine_grid(theta.to(images.device), [B, 1, H, W], align_corners=False)
    out = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return out.round_().to(images.dtype)
