"""Reading the images of shards by their numbers."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import numpy as np

from vitlab.config import UserError, first_line
from vitlab.data.shards.index import Samples
from vitlab.data.shards.locate import Shard, stat_shard


@dataclass(frozen=True, eq=False)
class ShardImages:
    """Decodes images by index: int64 (B,) -> uint8 (B, 3, *size). Files are open during a batch alone."""

    shards: tuple[Shard, ...]
    samples: Samples
    size: tuple[int, int]

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        from vitlab.data.images import decode

        images = np.empty((len(indices), 3, *self.size), dtype=np.uint8)
        problems = []
        for row, path, data in self.read_files(np.asarray(indices)):
            try:
                images[row] = decode.read(BytesIO(data), self.size, channels=3)
            except Exception as error:  # Pillow's readers raise a dozen types for broken files
                offset = self.samples.offsets[indices[row]]
                problems.append(f"{path}: cannot read the image at byte {offset}: {decode.explain(error)}")
        if problems:
            raise UserError(problems)
        return images

    def read_files(self, indices: np.ndarray) -> Iterator[tuple[int, str, bytes]]:
        """(place in `indices`, path of the shard, the image's file), shard by shard and forwards in each."""
        numbers, offsets = self.samples.shards[indices], self.samples.offsets[indices]
        sizes, order = self.samples.sizes[indices], np.lexsort((offsets, numbers))
        for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []:
            shard = self.shards[numbers[rows[0]]]
            try:
                if stat_shard(shard.path) != shard:
                    raise UserError(f"{shard.path}: has changed since it was indexed; run the command again")
                with open(shard.path, "rb", buffering=0) as file:
                    for row in rows:
                        yield int(row), shard.path, os.pread(file.fileno(), int(sizes[row]), int(offsets[row]))
            except OSError as error:
                reason = "the file is missing" if isinstance(error, FileNotFoundError) else first_line(error)
                raise UserError(f"{shard.path}: {reason}; restore the shard and run the command again") from None
