"""Images as models take them: bytes to floats of mean 0 and deviation 1, on the device that holds the batch."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

IN_CACHE = 2**20  # values that are normalised together on a CPU


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
