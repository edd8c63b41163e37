"""Time and memory of what a set of 13 million samples needs before its first step, each in a process of its own.

    uv run python scripts/bench/index.py /tmp/index

A synthetic index of 13,000,000 samples, 21,841 classes and 1,300 shards; and the indexing of 100,000 real samples, from
which that of 13 million follows. Seconds are of the processor, memory is the growth of the largest
resident set. Two minutes on one core of an AMD EPYC.
"""

import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from vitlab.config import load
from vitlab.data.base import Split
from vitlab.data.images.imagefolder import FileImages
from vitlab.data.loader import StepBatches
from vitlab.data.shards.index import Index, Samples, ShardIndex, carve, hash_splits
from vitlab.data.shards.locate import Shard
from vitlab.data.shards.scan import scan_shard
from vitlab.data.subset import nested_order, training_items, write_manifest

SAMPLES, CLASSES, SHARDS, SCANNED = 13_000_000, 21_841, 1_300, 100_000
READ = FileImages("", (), (1, 1))


def open_index(folder: Path) -> Index:
    index = ShardIndex(load("data", "webdataset"), None, {}).open_entry(folder)
    assert index is not None
    return index


def open_split(folder: Path) -> Split:
    train = open_index(folder).splits["train"]
    return Split(train.labels, READ, keys=train.keys, blocks=train.shards)


def make_index(folder: Path) -> None:
    """Carve, hash and write a synthetic one."""
    generator = np.random.default_rng(0)
    samples = Samples(
        generator.integers(0, 2**64, SAMPLES, dtype=np.uint64),
        generator.integers(0, CLASSES, SAMPLES),
        np.repeat(np.arange(SHARDS, dtype=np.int32), SAMPLES // SHARDS),
        np.arange(SAMPLES, dtype=np.int64) % (SAMPLES // SHARDS) * 110_000,
        np.full(SAMPLES, 108_000, dtype=np.uint32),
    )
    splits = carve({"train": samples}, 0.01)
    shards = tuple(Shard(f"/shards/{k}.tar", 10**9, 0) for k in range(SHARDS))
    index = Index(tuple(map(str, range(CLASSES))), shards, splits, hash_splits(splits))
    ShardIndex(load("data", "webdataset"), None, {}).write(index, folder)


def choose_subset(folder: Path) -> None:
    split = open_split(folder)
    assert abs(len(training_items(split, 1_000_000, seed=0)) - 1_000_000) < 5_000


def write_manifests(folder: Path) -> None:
    sizes = [1_000_000, 2_000_000, 4_000_000, 8_000_000, "all"]
    write_manifest(folder / "subsets.json", open_split(folder), open_index(folder).classes, sizes, seed=0)


def draw_epoch(folder: Path) -> None:
    split = open_split(folder)
    next(iter(StepBatches(np.arange(len(split)), 4096, 10, seed=0, start=0, blocks=split.blocks)))


def order_classes(folder: Path) -> None:
    """For comparison: the stratified subsets of a set without keys."""
    nested_order(open_split(folder).labels, seed=0)


def scan(folder: Path) -> None:
    import webdataset

    path = folder / "one.tar"
    if not path.exists():
        with webdataset.TarWriter(str(path)) as writer:
            for k in range(SCANNED):
                writer.write({"__key__": f"n{k:08d}", "cls": k % CLASSES, "jpg": b"image" * 200})
    started = time.process_time()
    assert len(scan_shard(str(path), ("jpg",), "cls").keys) == SCANNED
    took = time.process_time() - started
    print(
        f"  {took / SCANNED * 1e6:.0f} us a sample on one core: 13 million in {took / SCANNED * SAMPLES / 60:.1f} min"
    )


def measure(step, folder: Path) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    step(folder)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{step.__name__}: {time.process_time() - started:.1f} s, {grown:.0f} MB", flush=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for step in (make_index, open_split, choose_subset, write_manifests, draw_epoch, order_classes, scan):
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(step, folder))
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
    size = sum(os.path.getsize(path) for path in folder.glob("*_*.npy"))
    print(f"the index on disk: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
