"""The index of a data set's shards: made once, then mapped into the memory of every process.

An entry of the cache holds, for each split, train_keys.npy, train_labels.npy, ... (the arrays of Samples), and
index.json. It is of the shards as they were: with one that has changed it is another entry.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from vitlab.config import UserError, resolved
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.cache.store import Cache, Progress
from vitlab.data.keys import choose_count, hash_key
from vitlab.data.shards.classes import Classes
from vitlab.data.shards.locate import Shard
from vitlab.data.shards.scan import Scan, list_samples, scan_shard
from vitlab.data.split import MAX_VAL_ITEMS, VAL_FRACTION
from vitlab.files import replacing, write_json
from vitlab.formatting import plural

LAYOUT = 1  # of an entry's files
LEAST = 4  # training samples, so that some may be held out
SHOWN = 8  # problems of all shards


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of a split in the order of their shards, (N,) each."""

    keys: np.ndarray  # uint64
    labels: np.ndarray  # int64
    shards: np.ndarray  # int32: the place in Index.shards
    offsets: np.ndarray  # int64, of the image in its shard
    sizes: np.ndarray  # uint32: bytes of the image

    def take(self, rows: np.ndarray) -> "Samples":
        return Samples(*(values[rows] for values in vars(self).values()))


ARRAYS = tuple(field.name for field in fields(Samples))


@dataclass(frozen=True, eq=False)
class Index:
    classes: tuple[str, ...]
    shards: tuple[Shard, ...]
    splits: dict[str, Samples]
    digest: str  # SHA-256 of all keys, labels and sizes of images, and of what lies together


class ShardIndex(Cache[Index]):
    """`shards` are those of each split; of one that is not given a part of the training samples is taken."""

    kind = "shard index"
    without = "the shards will be indexed at each start"

    def __init__(
        self,
        config: ImageDataConfig,
        module: ModuleType,
        shards: dict[str, list[Shard]],
        progress: Progress | None = None,
    ):
        super().__init__(config, module, progress)
        self.shards, self.classes = shards, Classes.of(config)

    def settings(self) -> dict[str, Any]:
        related = {key: resolved(self.config)[key] for key in ("image", "label", "test_share")}
        return {"layout": LAYOUT, "classes": self.classes.names, **related}

    def fingerprint(self) -> Any:
        return self.shards

    def read(self) -> Index:
        scans = {part: self.scan(part) for part in self.shards}
        problems = list(tell_problems(scan for of_split in scans.values() for scan in of_split))
        if not problems:
            classes = self.classes.complete({text for scan in scans["train"] for text in scan.texts})
            for part, of_split in scans.items():
                for shard, scan in zip(self.shards[part], of_split, strict=True):
                    problems += classes.misfits(shard.path, scan)
        if problems:
            more = [f"... and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
            raise UserError([*(f"data={self.config.name}: {line}" for line in problems[:SHOWN]), *more])
        splits, first = {}, 0
        for part in list(scans):
            splits[part] = join(scans.pop(part), classes, first)
            self.refuse_doubles(part, splits[part], first)
            first += len(self.shards[part])
        splits = carve(splits, self.config.test_share)
        shards = tuple(shard for part in self.shards.values() for shard in part)
        return Index(classes.names, shards, splits, hash_splits(splits))

    def scan(self, part: str) -> list[Scan]:
        """Of each shard."""
        scans, total = [], len(self.shards[part])
        for shard in self.shards[part]:
            self.progress(f"indexing {part} shards", len(scans), total)
            scans.append(scan_shard(shard.path, tuple(self.config.image), self.config.label))
        self.progress(f"indexing {part} shards", total, total)
        return scans

    def refuse_doubles(self, part: str, samples: Samples, first: int) -> None:
        ordered = np.sort(samples.keys)
        doubled = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(doubled):
            paths = [self.shards[part][k - first].path for k in samples.shards[samples.keys == doubled[0]]]
            key = next(key for key, _ in list_samples(paths[0]) if hash_key(key) == doubled[0])
            where = f"twice in {paths[0]}" if paths[0] == paths[1] else f"in {paths[0]} and in {paths[1]}"
            several = f" (and {len(doubled) - 1} other keys)" if len(doubled) > 1 else ""
            raise UserError(f"data.{part}: sample {key} is {where}{several}; give each sample a key of its own")

    def write(self, index: Index, entry: Path) -> None:
        for part, samples in index.splits.items():
            for name in ARRAYS:
                with replacing(entry / f"{part}_{name}.npy") as file:
                    np.save(file, vars(samples)[name], allow_pickle=False)
        about = {"classes": index.classes, "splits": list(index.splits), "digest": index.digest}
        write_json(entry / "index.json", {**about, "shards": index.shards})

    def open_entry(self, entry: Path) -> Index | None:
        try:
            about = json.loads((entry / "index.json").read_text())
            splits = {
                part: Samples(*(open_array(entry / f"{part}_{n}.npy") for n in ARRAYS)) for part in about["splits"]
            }
            shards = tuple(Shard(*shard) for shard in about["shards"])
            return Index(tuple(about["classes"]), shards, splits, about["digest"])
        except (OSError, ValueError, KeyError):
            return None


def tell_problems(scans: Iterable[Scan]) -> Iterator[str]:
    """A line for each thing that is wrong, with the place where it is so first and how often it is."""
    first_seen: dict[str, tuple[str, int]] = {}
    for scan in scans:
        for problem, (where, count) in scan.problems.items():
            first, before = first_seen.get(problem, (where, 0))
            first_seen[problem] = first, before + count
    for problem, (first, count) in first_seen.items():
        yield f"{first}: {problem}" + (f" (and {count - 1:,} more like it)" if count > 1 else "")


def open_array(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def join(scans: list[Scan], classes: Classes, first: int) -> Samples:
    """The samples of shards; `first` is the number of the first one."""
    counts = [len(scan.keys) for scan in scans]
    return Samples(
        np.concatenate([scan.keys for scan in scans]),
        np.concatenate([classes.to_labels(scan.texts)[scan.codes] for scan in scans]),
        np.repeat(np.arange(first, first + len(scans), dtype=np.int32), counts),
        np.concatenate([scan.offsets for scan in scans]),
        np.concatenate([scan.sizes for scan in scans]),
    )


def carve(splits: dict[str, Samples], test_share: float) -> dict[str, Samples]:
    """With the test and validation samples that are not given, chosen among the training samples by their keys."""
    train = splits.pop("train")
    if len(train.keys) < LEAST:
        raise UserError(f"data.train: {plural(len(train.keys), 'sample')}; give {LEAST} or more")
    for part, share, most in (("test", test_share, len(train.keys)), ("validation", VAL_FRACTION, MAX_VAL_ITEMS)):
        if part not in splits:
            count = min(max(1, round(share * len(train.keys))), most)
            chosen = choose_count(train.keys, count, part)
            splits[part], train = train.take(np.flatnonzero(chosen)), train.take(np.flatnonzero(~chosen))
    return {"train": train, **splits}


def hash_splits(splits: dict[str, Samples]) -> str:
    digest = hashlib.sha256()
    for part, samples in splits.items():
        digest.update(f"{part} {len(samples.keys)}".encode())
        for values in (samples.keys, samples.labels, samples.sizes, samples.shards):
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
