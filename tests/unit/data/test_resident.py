"""Items that lie on a device; here it is the CPU."""

import numpy as np
import torch

from vitlab.data import resident
from vitlab.data.base import Split
from vitlab.data.items import Items
from vitlab.data.resident import Resident


def test_batches_are_those_that_are_read(monkeypatch):
    monkeypatch.setattr(resident, "CHUNK", 7)
    images = np.random.default_rng(0).integers(256, size=(101, 3, 5, 7), dtype=np.uint8)
    reads = []

    def read(indices):
        reads.append(len(indices))
        return images[indices]

    split = Split(np.arange(101) * 3 % 11, read)
    chosen = np.array([90, 3, 17, 4, 100, 0, 55, 8, 31])
    placed = Resident(split, chosen, torch.device("cpu"))
    assert reads == [1, 7, 2], "only these, a part at a time after the first"
    for batch in ([100], [4, 90, 4, 31, 0], chosen.tolist()):
        for found, expected in zip(placed.__getitems__(batch), Items(split).__getitems__(batch), strict=True):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)
