"""Batched augmentation and normalisation, on the device that holds the batch."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ATTEMPTS = 10  # to find a crop that fits, as in torchvision
IN_CACHE = 2**20  # values that are normalised together on a CPU
LARGE = 48 * 48  # pixels of images that a CPU crops faster one by one


def normalize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 (B, C, H, W) -> float32 (B, C, H, W): (x / 255 - mean) / std, with 1 or C means and deviations."""
    channels = images.shape[1]
    assert len(mean) in (1, channels), f"{len(mean)} means for {channels} channels"
    assert len(std) in (1, channels), f"{len(std)} deviations for {channels} channels"
    factor, offset = normalization(tuple(mean), tuple(std), images.device)
    out = torch.empty(images.shape, device=images.device)
    together = IN_CACHE // images.shape[1:].numel() if images.device.type == "cpu" else len(images)
    for part, into in zip(images.split(max(1, together)), out.split(max(1, together)), strict=True):
        # bytes times floats would be converted in small pieces, twice as slowly
        into.copy_(part).mul_(factor).sub_(offset)
    return out


@lru_cache(maxsize=16)  # making them takes as long as a small batch, and on a GPU waits for it
def normalization(mean: Sequence[float], std: Sequence[float], device: torch.device) -> tuple[Tensor, Tensor]:
    """What `normalize` multiplies by and subtracts: each (1, C or 1, 1, 1)."""
    with torch.inference_mode(False):  # else those of an evaluation could not be used in training
        mean, std = (torch.tensor(v, dtype=torch.float32, device=device).view(1, -1, 1, 1) for v in (mean, std))
        return 1 / (255 * std), mean / std


def augment(images: Tensor, flip: bool, shift: int, generator: torch.Generator) -> Tensor:
    """Mirror half of the images left to right, and move each by up to `shift` pixels either way, zeros coming in.

    images (B, C, H, W) -> the same; the very tensor when both are off. Each image draws its
    own flip and its own shifts, less than a side, from `generator`, which may be on the CPU when the batch is not.
    Before `normalize` zero is black.
    """
    if not flip and not shift:
        return images
    drawn = {"generator": generator, "device": generator.device}
    moves, mirrored = torch.zeros(2, len(images), 1, dtype=torch.int64), torch.zeros(len(images), 1)
    if shift:
        moves = torch.randint(-shift, shift + 1, moves.shape, **drawn)
    if flip:
        mirrored = torch.randint(0, 2, mirrored.shape, **drawn)
    return gather_pixels(images, shift, moves.to(images.device), mirrored.to(images.device, torch.bool))


def gather_pixels(images: Tensor, shift: int, moves: Tensor, mirrored: Tensor) -> Tensor:
    """`augment` with (rows, columns) (2, B, 1) to move and bool (B, 1), without waiting for a device."""
    B, C, H, W = images.shape
    rows = torch.arange(H, device=images.device) + moves[0]
    columns = torch.arange(W, device=images.device) + moves[1]
    inside = ((rows >= 0) & (rows < H))[:, None, :, None] & ((columns >= 0) & (columns < W))[:, None, None, :]
    columns = torch.where(mirrored, W - 1 - columns, columns)
    source = rows.clamp(0, H - 1)[:, :, None] * W + columns.clamp(0, W - 1)[:, None, :]
    taken = images.reshape(B, C, H * W).gather(2, source.view(B, 1, H * W).expand(B, C, H * W)).view(B, C, H, W)
    return taken * inside if shift else taken


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
    boxes = crop_boxes((B, H, W), scale, aspect, generator).to(images.device)
    return (resize_boxes if images.device.type == "cpu" and H * W >= LARGE else sample_boxes)(images, boxes)


def sample_boxes(images: Tensor, boxes: Tensor) -> Tensor:
    """uint8 (B, C, H, W) -> each one's box, of `crop_boxes`, as large as the whole; all at a time."""
    B, _, H, W = images.shape
    top, left, height, width = boxes
    rows, columns = sample_places(top, height, H), sample_places(left, width, W)
    grid = torch.stack([columns[:, None, :].expand(B, H, W), rows[:, :, None].expand(B, H, W)], dim=-1)
    out = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return out.round_().to(images.dtype)


def resize_boxes(images: Tensor, boxes: Tensor) -> Tensor:
    """The same within a grey level by torch's kernel for bytes, six times as fast on one core of a CPU.

    That kernel uses one thread, so as many as torch has take a part of the images each.
    """
    with torch.inference_mode(False):  # else the threads, which are in no such mode, could not write to it
        out = torch.empty(images.shape, dtype=torch.uint8)

    def resize(part: np.ndarray) -> None:
        for row, (top, left, height, width) in zip(part, boxes[:, part].T.int().tolist(), strict=True):
            box = images[row : row + 1, :, top : top + height, left : left + width]
            box = box.contiguous(memory_format=torch.channels_last)  # it goes through that in any case, and back
            out[row] = F.interpolate(box, images.shape[2:], mode="bilinear")[0]

    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(resize, np.array_split(np.arange(len(images)), threads)))
    return out


def crop_boxes(
    shape: tuple[int, int, int], scale: Sequence[float], aspect: Sequence[float], generator: torch.Generator
) -> Tensor:
    """(top, left, height, width) in whole pixels of a random box of each of B images of H x W: float32 (4, B)."""
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
