"""Batches of items, in an order that depends on the seed and the step alone."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from vitlab.config import UserError
from vitlab.data.base import Split

CPU = torch.device("cpu")
BLOCKS, ITEMS = 16, 131_072  # least number shuffled together
Rows = TypeVar("Rows", torch.Tensor, list)


@dataclass(frozen=True)
class Part:
    """Part `number` of `count` equal parts of a batch; a part is consecutive rows."""

    number: int = 0
    count: int = 1

    def of(self, rows: Rows) -> Rows:
        """Return this part of a whole batch's rows; the number of rows must be a multiple of `count`."""
        size = len(rows) // self.count
        return rows[self.number * size : (self.number + 1) * size]


class Items(Dataset):
    """Dataset adapter: the DataLoader fetches whole batches of a Split."""

    def __init__(self, split: Split):
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Read (items, targets) of a batch: images uint8 (B, C, H, W), and the split's targets, else labels (B,)."""
        rows = np.asarray(indices, dtype=np.int64)
        items = np.require(self.split.read(rows), requirements=["C", "W"])
        targets = self.split.labels if self.split.targets is None else self.split.targets
        return torch.from_numpy(items), torch.from_numpy(targets[rows])


class Readable(Items):
    """Items that return a UserError of `read` as the batch: torch would re-raise it with a worker's traceback."""

    def __getitems__(self, indices: list[int]):
        try:
            return super().__getitems__(indices)
        except UserError as error:
            return error


class BatchLoader(DataLoader):
    """A DataLoader over batches of indices. Batches for a GPU lie in pinned memory, so copying them does not block."""

    def __init__(self, split: Split, batches: Iterable[list[int]], workers: int, device: torch.device):
        super().__init__(
            Readable(split),
            batch_sampler=batches,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            collate_fn=as_read,
            generator=torch.Generator(),  # else torch draws from the global one, and a resumed run differs
        )

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        # without workers torch's own iterator does this, too, but slower
        alone = self.num_workers == 0
        for batch in map(self.dataset.__getitems__, self.batch_sampler) if alone else super().__iter__():
            if isinstance(batch, UserError):
                raise batch
            yield [part.pin_memory() for part in batch] if alone and self.pin_memory else batch


@dataclass(frozen=True, eq=False)
class StepBatches:
    """Indices of each step's batch, or of one device's part of the batch.

    Epoch e is a permutation seeded by (seed, e). Epochs are joined end to end, and step k takes items
    [k * batch_size, (k + 1) * batch_size) of that stream, so a run can begin at any step. With `blocks` (Split.blocks
    of all items) an epoch permutes windows of blocks, and the items within a window.

    With `repeats` (repeated augmentation: Hoffer et al., 2020) a step takes ceil(batch_size / repeats) items `repeats`
    times, and drops copies beyond batch_size. Copies are never neighbours, because mixup mixes neighbours.
    """

    indices: np.ndarray  # int64 (N,)
    batch_size: int
    steps: int
    seed: int
    start: int = 0
    repeats: int = 1
    blocks: np.ndarray | None = None
    part: Part | None = None

    def __len__(self) -> int:
        return max(0, self.steps - self.start)

    def __iter__(self) -> Iterator[list[int]]:
        @lru_cache(maxsize=1)
        def epoch(number: int) -> np.ndarray:
            generator = np.random.default_rng([self.seed, number])
            items = self.indices[generator.permutation(len(self.indices))]
            return items if self.blocks is None else join_blocks(items, self.blocks[items], generator)

        distinct, part_of = math.ceil(self.batch_size / self.repeats), (self.part or Part()).of
        for step in range(self.start, self.steps):
            first, last = step * distinct, (step + 1) * distinct
            batch: list[int] = []
            while first < last:
                number, offset = divmod(first, len(self.indices))
                part = epoch(number)[offset : offset + last - first]
                batch += part.tolist()
                first += len(part)
            # the last, partial copy begins at the second item, because mixup mixes the last row with the first
            whole, rest = divmod(self.batch_size, distinct)
            yield part_of(batch * whole + batch[1 : 1 + rest])


def join_blocks(items: np.ndarray, blocks: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Order shuffled items by windows of randomly drawn blocks; the items of a window stay shuffled.

    A window holds at least BLOCKS blocks, and more if these hold fewer than ITEMS items on average. An epoch then reads
    each file once, a few files at a time, and neighbours in a batch still come from many files.
    """
    count = int(blocks.max()) + 1
    window = max(BLOCKS, math.ceil(ITEMS * count / len(items)))
    place = np.empty(count, dtype=np.uint16 if count <= 2**16 else np.int64)  # 16 bits sort ten times as fast
    place[generator.permutation(count)] = np.arange(count) // window
    return items[np.argsort(place[blocks], kind="stable")]


def train_loader(
    split: Split,
    indices: np.ndarray,
    *,
    workers: int = 0,
    device: torch.device = CPU,
    **stream: Any,
) -> DataLoader:
    """Load a batch (items, targets) for each step start..steps-1: batch_size items, or the `part` of them.

    stream: fields of StepBatches. A batch depends on seed and step alone, not on the start or the number of workers.
    """
    return BatchLoader(split, StepBatches(indices, blocks=split.blocks, **stream), workers, device)


def eval_loader(
    split: Split,
    *,
    batch_size: int,
    workers: int = 0,
    indices: np.ndarray | None = None,
    part: Part | None = None,
    device: torch.device = CPU,
) -> DataLoader:
    """Load every item once, or only the items at `indices`, in order; the last batch may be short.

    With `part` load its share only; all parts have equally many batches. Raises UserError for fewer items than parts.
    """
    rows = np.arange(len(split)) if indices is None else np.asarray(indices, dtype=np.int64)
    if part is None or part.count == 1:
        batches = [rows[k : k + batch_size] for k in range(0, len(rows), batch_size)]
    elif len(rows) < part.count:
        raise UserError(f"trainer.devices: {len(rows)} held-out items are fewer than {part.count} devices")
    else:
        most = math.ceil(math.ceil(len(rows) / part.count) / max(2, batch_size))  # batches of the largest part
        batches = np.array_split(np.array_split(rows, part.count)[part.number], most)
    return BatchLoader(split, [batch.tolist() for batch in batches], workers, device)


def as_read(batch):
    return batch
