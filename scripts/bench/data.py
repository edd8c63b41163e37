"""Normalised training batches: vitlab's loader against torchvision's transforms in torch's DataLoader.

    uv run python scripts/bench/data.py --quick

Both sides give the same number of float32 batches of the same shape, an epoch at a time, the start of workers included.
torchvision's is as in its references: a PIL image a sample, its transforms, a worker for each core; in a process of
its own, for ours has glibc keep freed memory, as a run has.

- Small images, uint8 in memory: shifted by up to 4 pixels, flipped, normalised. vitlab uses no workers.
- A folder of JPEGs, 500 x 375, 100 kB each: random crops resized to 224, flipped, normalised. vitlab decodes at each
  read with as many workers; reads its cache; or fills the empty cache first. Its crops are of the centre of a picture
  at 224 pixels, as its runs make them, torchvision's of the whole file.

The pictures are made first, in a temporary folder: parts of scikit-learn's photographs. Three minutes on two cores.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import rounds
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

from vitlab import data
from vitlab.config import load
from vitlab.data.base import Split
from vitlab.data.loader import train_loader
from vitlab.hardware import count_cores, keep_freed_memory
from vitlab.tasks.images import ImagePreparation

SMALL, SMALL_SIDE, SMALL_BATCH, SHIFT = 25_600, 32, 256, 4
DIFFERENT, COPIES, CLASSES, WIDTH, HEIGHT = 256, 8, 4, 500, 375  # pictures
QUALITY = 97
SIDE, BATCH, AREA = 224, 64, (0.08, 1.0)


def make_folder(root: Path) -> float:
    """Write train/, and a few pictures as val/ and test/; the mean size of the different ones in kB."""
    generator, sizes, photographs = np.random.default_rng(0), [], load_sample_images().images
    for number in range(DIFFERENT):
        photograph = photographs[number % len(photographs)]
        top, left = generator.integers(len(photograph) - HEIGHT), generator.integers(photograph.shape[1] - WIDTH)
        path = root / "train" / f"class{number % CLASSES}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph[top : top + HEIGHT, left : left + WIDTH]).save(path, quality=QUALITY)
        sizes.append(path.stat().st_size / 1000)
        for copy in range(1, COPIES):
            shutil.copyfile(path, path.with_stem(f"{number}-{copy}"))
        for part in ("val", "test") if number < CLASSES else ():
            (root / part / path.parent.name).mkdir(parents=True)
            shutil.copyfile(path, root / part / path.parent.name / path.name)
    return float(np.mean(sizes))


def time_epoch(batches: Callable[[], Iterable[Tensor]], images: int, side: int) -> float:
    """Seconds until all batches have come, from before there is a loader."""
    started, seen = time.perf_counter(), 0
    for batch in batches():
        assert batch.dtype == torch.float32, batch.dtype
        assert batch.shape[1:] == (3, side, side), batch.shape
        seen += len(batch)
    assert seen == images, f"{seen} images, not {images}"
    return time.perf_counter() - started


def read_ours(train: Split, prepare: ImagePreparation, batch: int, workers: int) -> Iterator[Tensor]:
    """An epoch as a run reads it."""
    generator, rows = torch.Generator().manual_seed(0), np.arange(len(train))
    steps = len(train) // batch
    for images, _ in train_loader(train, rows, batch_size=batch, steps=steps, seed=0, workers=workers):
        yield prepare(images, generator)


def read_peer(dataset: Dataset, batch: int) -> Iterator[Tensor]:
    loader = DataLoader(dataset, batch, shuffle=True, num_workers=count_cores(), drop_last=True)
    return (images for images, _ in loader)


def time_peer(elsewhere: Executor, dataset: Dataset, batch: int, images: int, side: int) -> float:
    return elsewhere.submit(time_epoch, partial(read_peer, dataset, batch), images, side).result()


def compose(crop: Callable, mean: Iterable[float], std: Iterable[float]) -> transforms.Compose:
    last = (transforms.ToTensor(), transforms.Normalize(tuple(mean), tuple(std)))
    return transforms.Compose([crop, transforms.RandomHorizontalFlip(), *last])


class InMemory(Dataset):
    """Images as torchvision's CIFAR10 gives them."""

    def __init__(self, images: np.ndarray, transform: Callable[[Image.Image], Tensor]):
        self.images, self.transform = images.transpose(0, 2, 3, 1).copy(), transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), 0


def measure_small(repeats: int, elsewhere: Executor) -> rounds.Row:
    images = np.random.default_rng(0).integers(0, 256, (SMALL, 3, SMALL_SIDE, SMALL_SIDE), dtype=np.uint8)
    split = Split(np.zeros(SMALL, dtype=np.int64), images.__getitem__)
    config = load("data", {"name": "cifar10", "augment": {"flip": True, "shift": SHIFT}})
    prepare = ImagePreparation(load("recipe", "adamw"), config)
    dataset = InMemory(images, compose(transforms.RandomCrop(SMALL_SIDE, SHIFT), config.mean, config.std))
    ours = partial(time_epoch, partial(read_ours, split, prepare, SMALL_BATCH, 0), SMALL, SMALL_SIDE)
    peer = partial(time_peer, elsewhere, dataset, SMALL_BATCH, SMALL, SMALL_SIDE)
    return rounds.compare(f"{SMALL:,} small images in memory, an epoch", ours, peer, repeats, floor=10)


def measure_folder(repeats: int, elsewhere: Executor, root: Path, cache: Path) -> Iterator[rounds.Row]:
    augment = {"crop_scale": list(AREA), "flip": True, "shift": 0}
    config = load("data", {"name": "imagefolder", "root": str(root), "image_size": SIDE, "augment": augment})
    recipe, images = load("recipe", "adamw"), DIFFERENT * COPIES

    def read(kept: str, empty: bool = False) -> Iterator[Tensor]:
        if empty:
            shutil.rmtree(cache, ignore_errors=True)
        found = data.load(replace(config, cache=kept))
        workers = 0 if found.cached else count_cores()  # as trainer.workers=auto
        return read_ours(found.train, ImagePreparation(recipe, config), BATCH, workers)

    dataset = datasets.ImageFolder(
        root / "train", compose(transforms.RandomResizedCrop(SIDE, AREA), config.mean, config.std)
    )
    peer = partial(time_peer, elsewhere, dataset, BATCH, images, SIDE)
    for name, options, floor in (
        ("decoding", ("never",), 1.3),
        ("the empty cache filled first", ("auto", True), None),
        ("from the cache", ("auto",), None),
    ):
        ours = partial(time_epoch, partial(read, *options), images, SIDE)
        yield rounds.compare(f"{images:,} JPEGs at {SIDE}, an epoch: {name}", ours, peer, repeats, floor=floor)
    first, later = partial(time_epoch, partial(read, "auto", True), images, SIDE), ours
    training = (first() + sum(later() for _ in range(9)), sum(peer() for _ in range(10)))
    yield rounds.make_row(f"{images:,} JPEGs at {SIDE}, ten epochs, cache filled first", [training], floor=1.3)


def measure(quick: bool) -> Iterator[rounds.Row]:
    repeats = 3 if quick else 9
    torch.set_num_threads(1)  # that of the main process; workers have one each
    # forked, for in a spawned process DataLoader would spawn its workers, which import torch for each epoch
    with ProcessPoolExecutor(1, get_context("fork")) as elsewhere, tempfile.TemporaryDirectory() as folder:
        elsewhere.submit(os.getpid).result()  # it is there before the next line
        keep_freed_memory()
        yield measure_small(repeats, elsewhere)
        root, cache = Path(folder) / "pictures", Path(folder) / "cache"
        os.environ["VITLAB_CACHE"] = str(cache)
        size = make_folder(root)
        print(f"({DIFFERENT * COPIES:,} JPEGs of {WIDTH} x {HEIGHT}, {size:.0f} kB each; {count_cores()} cores)")
        yield from measure_folder(repeats, elsewhere, root, cache)


if __name__ == "__main__":
    rounds.main(__doc__, measure)
