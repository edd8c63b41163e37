"""Random erasing, mixup and CutMix: what comes out, against the same by hand; nothing global is touched."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from tests.learning import generator
from vitlab.config import TrainConfig, compose
from vitlab.data.augment import Mixing
from vitlab.training.distributed import ALONE
from vitlab.training.module import TrainingModule

B, C, H, W, CLASSES = 101, 3, 19, 23, 7


def mixing(*overrides):
    return Mixing(compose(TrainConfig, [f"recipe.{o}" for o in overrides]).recipe, CLASSES)


def batch():
    images = torch.randn(B, C, H, W, generator=torch.Generator().manual_seed(1))
    return images, torch.arange(B) * 3 % CLASSES


def test_mixup_is_a_share_of_each_image_and_the_rest_of_its_neighbour():
    images, labels = batch()
    mixed, target = mixing("mixup=0.8")(images, labels, generator())
    row = int((labels != labels.roll(1)).nonzero()[0])
    share = target[row, labels[row]].item()
    assert 0.01 < share < 0.99
    torch.testing.assert_close(mixed, share * images + (1 - share) * images.roll(1, 0))
    one_hot = F.one_hot(labels, CLASSES).float()
    torch.testing.assert_close(target, share * one_hot + (1 - share) * one_hot.roll(1, 0))


def test_cutmix_shows_a_part_of_the_neighbour_and_its_share_of_the_label():
    images, labels = batch()
    mixed, target = mixing("cutmix=1")(images, labels, generator())
    taken = (mixed != images).any(1)
    assert 0 < taken[0].sum() < H * W
    assert torch.equal(mixed, torch.where(taken[:1, None], images.roll(1, 0), images))
    row = int((labels != labels.roll(1)).nonzero()[0])
    assert target[row, labels[row]].item() == pytest.approx(1 - int(taken[0].sum()) / (H * W), abs=1e-5)


def test_with_both_on_half_of_the_batches_are_cut():
    images, labels = batch()
    either, cuts = mixing("mixup=1", "cutmix=1"), 0
    for seed in range(80):
        mixed, _ = either(images, labels, generator(seed))
        cuts += bool(((mixed == images) | (mixed == images.roll(1, 0))).all())
    assert cuts / 80 == pytest.approx(0.5, abs=0.15)


def test_erasing_puts_noise_into_a_part_of_some_images():
    images, labels = torch.full((B, C, H, W), 9.0), torch.arange(B) % CLASSES
    erased, same = mixing("random_erasing=0.25")(images.clone(), labels, generator())
    assert same is labels
    changed = (erased != images).any(1)
    assert changed.flatten(1).any(1).float().mean().item() == pytest.approx(0.25, abs=0.1)
    noise = erased[changed[:, None].expand_as(erased)]
    assert noise.mean().item() == pytest.approx(0, abs=0.05)
    assert noise.std().item() == pytest.approx(1, abs=0.05)


def test_a_batch_is_prepared_outside_autocast():
    """In bfloat16 the places of pixels would be off by half a pixel at 224."""
    seen = []

    class Task:
        metric = None

        def prepare(self, batch, generator):
            seen.append(torch.is_autocast_enabled("cpu"))
            return batch

        def count_targets(self, batch):
            return torch.tensor([len(batch[0])])

        def loss(self, model, batch):
            seen.append(torch.is_autocast_enabled("cpu"))
            return torch.zeros(1, requires_grad=True)

        def metrics(self):
            return None

    config, settings = SimpleNamespace(recipe=None, seed=0), SimpleNamespace(accumulate=1)
    run = SimpleNamespace(model=torch.nn.Identity(), trained=Task(), config=config, settings=settings, ranks=ALONE)
    module = TrainingModule(run)
    with torch.autocast("cpu", torch.bfloat16):
        module.training_step([torch.zeros(2)], 0)
    assert seen == [False, True]
