"""The classification task: its loss and metrics by hand."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.learning import build, mean_loss
from vitlab.config import UserError
from vitlab.data.base import ImageData, Split
from vitlab.data.loader import eval_loader
from vitlab.studies.experiment import count_right
from vitlab.studies.outcomes import Outcomes
from vitlab.tasks.base import fill

CLASSES, CHANNELS, SIZE = 5, 3, (7, 11)


def images(count):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, CHANNELS, *SIZE), dtype=np.uint8)
    return Split(np.arange(count, dtype=np.int64) * 3 % CLASSES, pixels.__getitem__)


def data(count=17):
    return ImageData("toy", tuple("abcde"), SIZE, CHANNELS, images(count), images(count))


def task(*overrides):
    return build(["data.mean=[0.25,0.5,0.75]", "data.std=[0.5,0.25,0.125]", *overrides], data())[0]


class Fixed(nn.Module):
    """A model that looks nothing up: its logits are its images' first pixels, one for each class."""

    def forward(self, batch):
        return batch[:, 0].flatten(1)[:, :CLASSES]


def cross_entropy(logits, label, smoothing=0.0):
    """-sum over classes of (target share) * log(probability), of one image."""
    total = math.log(sum(math.exp(x) for x in logits))
    shares = [smoothing / CLASSES + (1 - smoothing) * (c == label) for c in range(CLASSES)]
    return sum(share * (total - x) for share, x in zip(shares, logits, strict=True))


def test_a_batch_is_augmented_only_with_a_generator():
    found = task("data.augment.flip=true", "data.augment.shift=2")
    batch = next(iter(eval_loader(data().test, batch_size=17)))
    plain = found.prepare(batch)[0]
    first, again, other = (found.prepare(batch, torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, plain)
    assert torch.equal(found.prepare(batch)[0], plain)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_the_mean_cross_entropy(smoothing):
    found = task(f"recipe.label_smoothing={smoothing}")
    batch, labels = found.prepare(next(iter(eval_loader(data().test, batch_size=6))))
    logits = Fixed()(batch)
    by_hand = [
        cross_entropy(row.tolist(), label, smoothing) for row, label in zip(logits, labels.tolist(), strict=True)
    ]
    assert mean_loss(found, Fixed(), (batch, labels)).item() == pytest.approx(sum(by_hand) / 6, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("batch_size", [5, 17, 100])
def test_metrics_are_those_of_all_images_also_with_a_short_last_batch(batch_size, smoothing):
    """17 images in batches of 5, 5, 5 and 2: a mean of batch means would be another number. Smoothing trains."""
    found = task(f"recipe.label_smoothing={smoothing}")
    metrics, logits, labels = found.metrics(), [], []
    for raw in eval_loader(data().test, batch_size=batch_size):
        batch = found.prepare(raw)
        fill(metrics, found.measure(Fixed(), batch))
        logits += Fixed()(batch[0]).tolist()
        labels += batch[1].tolist()
    assert len(labels) == 17
    result = {name: value.item() for name, value in metrics.compute().items()}
    right = sum(row.index(max(row)) == label for row, label in zip(logits, labels, strict=True))
    assert 0 < right < 17
    assert result["accuracy"] == pytest.approx(right / 17)
    expected = sum(cross_entropy(row, label) for row, label in zip(logits, labels, strict=True)) / 17
    assert result["loss"] == pytest.approx(expected, rel=1e-5)


def test_balanced_weights_are_those_of_the_training_subset():
    one = task("recipe.class_weights=balanced")
    one.loss(Fixed(), (torch.rand(2, 3, 7, 11), torch.tensor([0, 3])))  # as the forecast of a run's operations asks
    one.train_on(np.array([0, 1, 5, 10, 15, 16]))  # labels 0 3 0 0 0 3: two classes occur
    assert one.weights.tolist() == pytest.approx([6 / (2 * 4), 3, 3, 6 / (2 * 2), 3])
    images, labels = torch.rand(7, 3, 7, 11), torch.tensor([0, 3, 0, 3, 0, 0, 3])
    losses = F.cross_entropy(Fixed()(images), labels, reduction="none")
    wanted = (losses * torch.tensor([0.75, 1.5, 0.75, 1.5, 0.75, 0.75, 1.5])).sum()
    assert one.loss(Fixed(), (images, labels)).item() == pytest.approx(wanted.item(), rel=1e-5)
    assert task().loss(Fixed(), (images, labels)).item() == pytest.approx(losses.sum().item(), rel=1e-5)


def test_a_metric_that_is_not_measured_is_refused_with_those_that_are():
    with pytest.raises(UserError, match=r"task\.metric=map: is not measured here.*macro_f1"):
        task("task.metric=map")
    task("task.metric=balanced_accuracy")


def test_right_answers_are_counted_by_class():
    right = np.array([1, 0] * 8 + [1], dtype=np.float32)  # of labels 0 3 1 4 2 0 3 ...
    found = count_right(task(), Outcomes("accuracy", right, np.ones(17, dtype=np.int32)))["by_class"]
    labels = np.arange(17) * 3 % CLASSES
    assert found == {name: [int(right[labels == c].sum()), int((labels == c).sum())] for c, name in enumerate("abcde")}
    assert count_right(task(), Outcomes("loss", right, np.ones(17, dtype=np.int32))) == {}
