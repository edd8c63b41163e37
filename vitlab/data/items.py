"""Batches of a split's items, read one after another."""

import numpy as np
import torch
from torch.utils.data import Dataset

from vitlab.data.base import Split


class Items(Dataset):
    """A split as torch's DataLoader reads it: a batch at a time."""

    def __init__(self, split: Split):
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """(items as read: images uint8 (B, C, H, W), targets: labels int64 (B,) unless the split has others)"""
        rows = np.asarray(indices, dtype=np.int64)
        items = np.require(self.split.read(rows), requirements=["C", "W"])
        targets = self.split.labels if self.split.targets is None else self.split.targets
        return torch.from_numpy(items), torch.from_numpy(targets[rows])
