"""Crops, flips and shifts.

Random crops resized to the whole image (Szegedy et al., 2015), as torchvision's RandomResizedCrop; mirroring, and
random crops of a padded image, as for CIFAR (He et al., 2016, section 4.2).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

ORDER = 10
ATTEMPTS = 10  # to find a crop that fits, as in torchvision
LARGE = 48 * 48  # pixels of images that a CPU crops faster one by one


def apply(images: Tensor, config: Any, recipe: Any, generator: Generator) -> Tensor:
    images = crop(images, config.crop_scale, generator, config.crop_aspect)
    return augment(images, config.flip, config.shift, generator)


def crop(
    images: Tensor, scale: Sequence[float] | None, generator: Generator, aspect: Sequence[float] = (3 / 4, 4 / 3)
) -> Tensor:
    """Cut out of each image a random share of its area, of some aspect, and resize it bilinearly to the whole.

    uint8 (B, C, H, W) -> uint8 (B, C, H, W); the very tensor without a `scale`, [least, most] of the area; `aspect` is
    [least, most] of width to height. torchvision's RandomResizedCrop for a batch: area uniform, logarithm of the aspect
    uniform, boxes of whole pixels; when none of 10 attempts fits, the largest central box.
    """
    if scale is None:
        return images
    B, _, H, W = images.shape
    boxes = crop_boxes((B, H, W), scale, aspect, generator).to(images.device)
    return (resize_boxes if images.device.type == "cpu" and H * W >= LARGE else sample_boxes)(images, boxes)


def crop_boxes(
    shape: tuple[int, int, int], scale: Sequence[float], aspect: Sequence[float], generator: Generator
) -> Tensor:
    """Draw a random box for each of B images of H x W: float32 (4, B), top, left, height, width in whole pixels."""
    B, H, W = shape
    area, tilt, x, y = torch.rand(4, ATTEMPTS, B, generator=generator, device=generator.device)
    area = (scale[0] + (scale[1] - scale[0]) * area) * (H * W)
    low, high = (math.log(value) for value in aspect)
    ratio = torch.exp(low + (high - low) * tilt)
    width, height = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
    fits = (width >= 1) & (width <= W) & (height >= 1) & (height <= H)
    left, top = (x * (W - width + 1)).floor().clamp(max=W - 1), (y * (H - height + 1)).floor().clamp(max=H - 1)
    first = fits.int().argmax(0).expand(4, 1, B)  # the first attempt that fits
    boxes = torch.stack([top, left, height, width]).gather(1, first)[:, 0]
    # else the largest central box whose aspect is in the range
    tall, wide = H, W
    if aspect[0] > W / H:
        tall = round(W / aspect[0])
    elif aspect[1] < W / H:
        wide = round(H * aspect[1])
    central = boxes.new_tensor(((H - tall) // 2, (W - wide) // 2, tall, wide))
    return torch.where(fits.any(0), boxes, central[:, None])


def sample_boxes(images: Tensor, boxes: Tensor) -> Tensor:
    """Enlarge each image's box of `crop_boxes` to the whole image, all images at once: uint8 (B, C, H, W)."""

    def sample(start: Tensor, size: Tensor, pixels: int) -> Tensor:
        """Place samples along a side, (B, pixels), -1 to 1, none beyond the centres of a box's outermost pixels."""
        steps = (torch.arange(pixels, device=start.device) + 0.5) / pixels
        inside = (steps * size[:, None] - 0.5).clamp(min=0).minimum(size[:, None] - 1)
        return (2 * (start[:, None] + inside) + 1) / pixels - 1

    B, _, H, W = images.shape
    top, left, height, width = boxes
    rows, columns = sample(top, height, H), sample(left, width, W)
    grid = torch.stack([columns[:, None, :].expand(B, H, W), rows[:, :, None].expand(B, H, W)], dim=-1)
    out = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return out.round_().to(images.dtype)


def resize_boxes(images: Tensor, boxes: Tensor) -> Tensor:
    """Enlarge boxes as `sample_boxes` does, within a grey level, by torch's byte kernel: 6x as fast on a CPU core.

    The kernel uses one thread, so the images are divided among as many threads as torch has.
    """
    from concurrent.futures import ThreadPoolExecutor

    with torch.inference_mode(False):  # else the threads, which are in no such mode, could not write to it
        out = torch.empty(images.shape, dtype=torch.uint8)

    def resize(part: np.ndarray) -> None:
        for row, (top, left, height, width) in zip(part, boxes[:, part].T.int().tolist(), strict=True):
            box = images[row : row + 1, :, top : top + height, left : left + width]
            box = box.contiguous(memory_format=torch.channels_last)  # interpolate would convert it anyway, and back
            out[row] = F.interpolate(box, images.shape[2:], mode="bilinear")[0]

    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(resize, np.array_split(np.arange(len(images)), threads)))
    return out


def augment(images: Tensor, flip: bool, shift: int, generator: Generator) -> Tensor:
    """Mirror half of the images left to right, and move each by up to `shift` pixels either way, zeros coming in.

    images (B, C, H, W) keep their shape; the very tensor when both are off. Each image draws its own flip and its own
    shifts, less than a side, from `generator`. Before `normalize` zero is black.
    """
    if not flip and not shift:
        return images
    drawn = {"generator": generator, "device": generator.device}
    B, C, H, W = images.shape
    moves, mirrored = torch.zeros(2, B, 1, dtype=torch.int64), torch.zeros(B, 1)
    if shift:
        moves = torch.randint(-shift, shift + 1, moves.shape, **drawn)
    if flip:
        mirrored = torch.randint(0, 2, mirrored.shape, **drawn)
    moves, mirrored = moves.to(images.device), mirrored.to(images.device, torch.bool)
    rows = torch.arange(H, device=images.device) + moves[0]
    columns = torch.arange(W, device=images.device) + moves[1]
    inside = ((rows >= 0) & (rows < H))[:, None, :, None] & ((columns >= 0) & (columns < W))[:, None, None, :]
    columns = torch.where(mirrored, W - 1 - columns, columns)
    source = rows.clamp(0, H - 1)[:, :, None] * W + columns.clamp(0, W - 1)[:, None, :]
    taken = images.reshape(B, C, H * W).gather(2, source.view(B, 1, H * W).expand(B, C, H * W)).view(B, C, H, W)
    return taken * inside if shift else taken
