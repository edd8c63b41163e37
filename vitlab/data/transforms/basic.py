"""Batched augmentation and normalisation, on the device that holds the batch."""

import math
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.parts import draw

ATTEMPTS = 10  # to find a crop that fits, as in torchvision


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
    rows = torch.arange(H, device=images.device).expand(B, H)
    columns = torch.arange(W, device=images.device).expand(B, W)
    if shift:
        moves = draw(partial(torch.randint, -shift, shift + 1), (2, B, 1), generator, 1).to(images.device)
        rows, columns = rows + moves[0], columns + moves[1]
    inside = ((rows >= 0) & (rows < H))[:, None, :, None] & ((columns >= 0) & (columns < W))[:, None, None, :]
    if flip:
        mirrored = draw(partial(torch.randint, 0, 2), (B, 1), generator).to(images.device, torch.bool)
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
    most] of width to height. torchvision's RandomResizedCrop (Szegedy et al., 2015) for a batch: area uniform,
    logarithm of the aspect uniform, boxes of whole pixels; when none of 10 attempts fits, the largest central box.
    """
    if scale is None:
        return images
    B, _, H, W = images.shape
    top, left, height, width = crop_boxes((B, H, W), scale, aspect, generator).to(images.device)
    rows, columns = sample_places(top, height, H), sample_places(left, width, W)
    grid = torch.stack([columns[:, None, :].expand(B, H, W), rows[:, :, None].expand(B, H, W)], dim=-1)
    out = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return out.round_().to(images.dtype)


def crop_boxes(
    shape: tuple[int, int, int], scale: Sequence[float], aspect: Sequence[float], generator: torch.Generator
) -> Tensor:
    """(top, left, height, width) in whole pixels of a random box of each of B images of H x W: float32 (4, B)."""
    B, H, W = shape
    area, tilt, x, y = draw(torch.rand, (4, ATTEMPTS, B), generator, rows=2)
    area = (scale[0] + (scale[1] - scale[0]) * area) * (H * W)
    low, high = (math.log(value) for value in aspect)
    ratio = torch.exp(low + (high - low) * tilt)
    width, height = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (width >= 1) & (width <= W) & (height >= 1) & (height <= H)
    left, top = (x * (W - width + 1)).floor().clamp(max=W - 1), (y * (H - height + 1)).floor().clamp(max=H - 1)
    first = fits.int().argmax(0).expand(4, 1, B)  # the first attempt that fits
    boxes = torch.stack([top, left, height, width]).gather(1, first)[:, 0]
    return torch.where(fits.any(0), boxes, boxes.new_tensor(central_box(H, W, aspect))[:, None])


def central_box(H: int, W: int, aspect: Sequence[float]) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the largest central box whose aspect is in the range."""
    height, width = H, W
    if aspect[0] > W / H:
        height = round(W / aspect[0])
    elif aspect[1] < W / H:
        width = round(H * aspect[1])
    return (H - height) // 2, (W - width) // 2, height, width


def sample_places(start: Tensor, size: Tensor, pixels: int) -> Tensor:
    """Where `pixels` samples of boxes with these starts and sizes (B,) lie along a side that has as many pixels.

    (B, pixels), from -1 to 1 as `grid_sample` counts; none is beyond the centres of a box's outermost pixels.
    """
    steps = (torch.arange(pixels, device=start.device) + 0.5) / pixels
    inside = (steps * size[:, None] - 0.5).clamp(min=0).minimum(size[:, None] - 1)
    return (2 * (start[:, None] + inside) + 1) / pixels - 1
