"""Training items that lie on a GPU as they are read, so that a batch is gathered and augmented there.

A batch then costs the copy of its indices, and the processor waits for nothing.
"""

import numpy as np
import torch
from torch import Tensor

from vitlab.data.base import Split, is_decoded
from vitlab.data.items import Items

SHARE = 0.25  # of a GPU's free memory, at most
CHUNK = 4096  # items copied at a time


class Resident(Items):
    """A split's items at `indices`, on a device."""

    def __init__(self, split: Split, indices: np.ndarray, device: torch.device):
        super().__init__(split)
        rows = np.unique(indices)
        self.places = np.zeros(len(split), dtype=np.int64)
        self.places[rows] = np.arange(len(rows))
        like = super().__getitems__(rows[:1])
        self.items, self.targets = (part.new_empty((len(rows), *part.shape[1:]), device=device) for part in like)
        for first in range(0, len(rows), CHUNK):
            chunk = slice(first, first + CHUNK)
            self.items[chunk], self.targets[chunk] = super().__getitems__(rows[chunk])

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        places = torch.from_numpy(self.places[indices])
        if self.items.is_cuda:
            places = places.pin_memory().to(self.items.device, non_blocking=True)
        return self.items.index_select(0, places), self.targets.index_select(0, places)


def has_room(split: Split, indices: np.ndarray, device: torch.device) -> bool:
    """Whether a device is a GPU that the items of a cached split leave enough memory."""
    if device.type != "cuda" or not is_decoded(split.read):
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return len(indices) * split.read(indices[:1]).nbytes <= SHARE * free
