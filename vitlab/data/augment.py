"""Batched augmentation and normalisation, on the device that holds the batch."""

from collections.abc import Sequence

import torch
from torch import Tensor


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
