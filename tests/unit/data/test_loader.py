"""The order of batches: a function of the seed and the step alone."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.configurations import refused
from vitlab.config import UserError
from vitlab.data import loader
from vitlab.data.base import Split
from vitlab.data.loader import StepBatches, eval_loader, train_loader

N = 101


@dataclass(frozen=True)
class Numbered:
    """Images whose pixels say which they are; `broken` cannot be read."""

    broken: int = -1

    def __call__(self, indices):
        if self.broken in indices:
            raise UserError([f"cannot read {self.broken}.jpg", "another"])
        return np.broadcast_to(indices.astype(np.uint8)[:, None, None, None], (len(indices), 3, 5, 7))


def split(**kwargs):
    return Split(np.arange(N) * 3 % 11, Numbered(**kwargs))


def collect(loader):
    batches = list(loader)
    assert len(batches) == len(loader)
    for images, labels in batches:
        assert images.dtype == torch.uint8
        assert labels.dtype == torch.int64
        assert images.shape == (len(labels), 3, 5, 7)
        assert torch.equal(labels, images[:, 0, 0, 0].long() * 3 % 11)
    return [images[:, 0, 0, 0].tolist() for images, _ in batches]


def flat(batches):
    return [item for batch in batches for item in batch]


def test_epochs_are_permutations_joined_end_to_end():
    indices = np.arange(2, 25)  # 23 of them
    stream = np.concatenate(collect(train_loader(split(), indices, batch_size=7, steps=23, seed=3)))
    epochs = stream.reshape(7, 23)
    for epoch in epochs:
        assert np.array_equal(np.sort(epoch), indices)
    assert len({tuple(epoch) for epoch in epochs}) == 7


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_resumed_run_sees_the_same_batches_with_any_number_of_workers(workers):
    indices = np.arange(0, N, 2)
    whole = collect(train_loader(split(), indices, batch_size=8, steps=20, seed=5))
    resumed = collect(train_loader(split(), indices, batch_size=8, steps=20, seed=5, start=13, workers=workers))
    assert resumed == whole[13:]
    assert collect(train_loader(split(), indices, batch_size=8, steps=20, seed=6)) != whole


@pytest.mark.parametrize(("batch_size", "repeats"), [(12, 3), (13, 3), (9, 2), (8, 5), (7, 3), (128, 3), (64, 2)])
def test_repeated_augmentation_holds_each_item_of_the_stream_several_times_and_never_beside_itself(batch_size, repeats):
    options = {"steps": 9, "seed": 5, "start": 2}
    distinct = -(-batch_size // repeats)
    batches = list(StepBatches(np.arange(1009), batch_size, repeats=repeats, **options))
    plain = list(StepBatches(np.arange(1009), distinct, **options))
    assert len(batches) == len(plain) == 7
    for batch, items in zip(batches, plain, strict=True):
        assert len(batch) == batch_size
        assert set(batch) == set(items), "the stream's next items, and no others"
        counts = [batch.count(item) for item in items]
        assert max(counts) <= repeats
        assert min(counts) == batch_size // distinct
        if distinct > 2:
            assert all(a != b for a, b in zip(batch, [*batch[1:], batch[0]], strict=True)), "mixup mixes neighbours"


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_reads_each_image_once_in_order(workers):
    batches = collect(eval_loader(split(), batch_size=10, workers=workers))
    assert [len(b) for b in batches] == [10] * 10 + [1]
    assert flat(batches) == list(range(N))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_reported_without_a_traceback(workers):
    problems = refused(list, eval_loader(split(broken=50), batch_size=10, workers=workers))
    assert problems == ["cannot read 50.jpg", "another"]


@pytest.mark.parametrize(("least_blocks", "least_items"), [(3, 1), (1, 20)])
def test_an_epoch_reads_a_few_blocks_at_a_time_and_every_item_once(monkeypatch, least_blocks, least_items):
    monkeypatch.setattr(loader, "BLOCKS", least_blocks)
    monkeypatch.setattr(loader, "ITEMS", least_items)
    blocks = np.repeat(np.arange(23), 10)
    items = np.flatnonzero(np.arange(230) % 7)  # of a training subset
    stream = np.concatenate(list(StepBatches(items, 10, steps=40, seed=4, start=0, blocks=blocks)))
    epochs = stream[: 2 * len(items)].reshape(2, -1)
    windows = []
    for epoch in epochs:
        assert np.array_equal(np.sort(epoch), items)
        seen = [np.flatnonzero(blocks[epoch] == block) for block in range(23)]
        assert max(np.ptp(places) for places in seen) < 30, "a block's items are within one window of three"
        assert np.mean([np.ptp(places) for places in seen]) > 15, "and mixed with those of the others there"
        windows.append({frozenset(blocks[epoch[k : k + 20]]) for k in range(0, 60, 20)})
    assert windows[0] != windows[1], "other blocks together"
