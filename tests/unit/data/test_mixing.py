"""Random erasing, mixup and CutMix: what comes out, against the same by hand; nothing global is touched."""

import random

import pytest
import torch
import torch.nn.functional as F

from vitlab.config import TrainConfig, compose
from vitlab.data.transforms.mixup_cutmix import Mixing
from vitlab.training.module import TrainingModule

B, C, H, W, CLASSES = 101, 3, 19, 23, 7


def mixing(*overrides):
    return Mixing(compose(TrainConfig, [f"recipe.{o}" for o in overrides]).recipe, CLASSES)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch():
    images = torch.randn(B, C, H, W, generator=torch.Generator().manual_seed(1))
    return images, torch.arange(B) * 3 % CLASSES


def test_off_it_gives_the_very_tensors_and_draws_nothing():
    images, labels = batch()
    g = generator()
    state = g.get_state()
    found = mixing()(images, labels, g)
    assert found[0] is images
    assert found[1] is labels
    assert torch.equal(g.get_state(), state)


ALL = ("mixup=0.8", "cutmix=1", "random_erasing=0.5")


def test_it_is_a_function_of_the_generator_and_leaves_the_global_ones_alone():
    images, labels = batch()
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        random.seed(seed)
        states = torch.get_rng_state(), random.getstate()
        found.append(mixing(*ALL)(images.clone(), labels, generator(5)))
        assert torch.equal(torch.get_rng_state(), states[0])
        assert random.getstate() == states[1]
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(found[0][0], mixing(*ALL)(images.clone(), labels, generator(6))[0])


def test_mixup_is_a_share_of_each_image_and_the_rest_of_its_neighbour():
    images, labels = batch()
    mixup, shares = mixing("mixup=0.8"), []
    for seed in range(60):
        mixed, target = mixup(images, labels, generator(seed))
        assert target.shape == (B, CLASSES)
        torch.testing.assert_close(target.sum(1), torch.ones(B))
        row = int((labels != labels.roll(1)).nonzero()[0])
        share = target[row, labels[row]].item()
        torch.testing.assert_close(mixed, share * images + (1 - share) * images.roll(1, 0))
        one_hot = F.one_hot(labels, CLASSES).float()
        torch.testing.assert_close(target, share * one_hot + (1 - share) * one_hot.roll(1, 0))
        shares.append(share)
    shares = torch.tensor(shares)
    assert shares.mean().item() == pytest.approx(0.5, abs=0.15)
    assert shares.std().item() == pytest.approx((1 / (4 * (2 * 0.8 + 1))) ** 0.5, abs=0.08), "of Beta(0.8, 0.8)"


def test_cutmix_shows_a_rectangle_of_the_neighbour_and_its_share_of_the_label():
    images, labels = batch()
    cutmix, shares = mixing("cutmix=1"), []
    for seed in range(60):
        mixed, target = cutmix(images, labels, generator(seed))
        torch.testing.assert_close(target.sum(1), torch.ones(B))
        taken = (mixed != images).any(1)
        assert torch.equal(taken, taken[:1].expand_as(taken)), "the same rectangle for the whole batch"
        assert torch.equal(mixed, torch.where(taken[:, None], images.roll(1, 0), images))
        rows, columns = taken[0].any(1).nonzero(), taken[0].any(0).nonzero()
        area = 0 if not len(rows) else (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1)
        assert taken[0].sum() == area
        row = int((labels != labels.roll(1)).nonzero()[0])
        assert target[row, labels[row]].item() == pytest.approx(1 - int(area) / (H * W), abs=1e-5)
        shares.append(int(area) / (H * W))
    assert min(shares) < 0.1
    assert max(shares) > 0.5


@pytest.mark.parametrize("cut", [0.0, 0.25, 1.0])
def test_with_both_on_a_batch_is_cut_with_the_share_that_was_asked_for(cut):
    images, labels = batch()
    either, cuts = mixing("mixup=1", "cutmix=1", f"cutmix_share={cut}"), 0
    for seed in range(80):
        mixed, _ = either(images, labels, generator(seed))
        cuts += bool(((mixed == images) | (mixed == images.roll(1, 0))).all())
    assert cuts / 80 == pytest.approx(cut, abs=0.0 if cut in (0, 1) else 0.15)


def test_erasing_puts_noise_into_a_rectangle_of_some_images():
    """timm's areas are 2% to a third, of aspect 0.3 to 1 / 0.3."""
    images, labels = torch.full((B, C, H, W), 9.0), torch.arange(B) % CLASSES
    erased, same = mixing("random_erasing=0.25")(images.clone(), labels, generator())
    assert same is labels
    changed = (erased != images).any(1)
    touched = changed.flatten(1).any(1)
    assert touched.float().mean().item() == pytest.approx(0.25, abs=0.1)
    areas = []
    for mask in changed[touched]:
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        height, width = int(rows.max() - rows.min()) + 1, int(columns.max() - columns.min()) + 1
        assert mask.sum() == height * width
        assert 0.25 < height / width < 4
        areas.append(height * width / (H * W))
    assert min(areas) > 0.01
    assert max(areas) < 0.36
    assert max(areas) - min(areas) > 0.15
    noise = erased[changed[:, None].expand_as(erased)]
    assert noise.mean().item() == pytest.approx(0, abs=0.05)
    assert noise.std().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_mixed_labels_is_the_mixed_loss(dtype, smoothing):
    images, labels = batch()
    _, target = mixing("mixup=0.8")(images, labels, generator())
    row = int((labels != labels.roll(1)).nonzero()[0])
    share = target[row, labels[row]].item()
    logits = torch.randn(B, CLASSES).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = F.cross_entropy(logits, target, label_smoothing=smoothing)
    parts = [F.cross_entropy(logits.float(), of, label_smoothing=smoothing) for of in (labels, labels.roll(1))]
    assert found.item() == pytest.approx((share * parts[0] + (1 - share) * parts[1]).item(), rel=1e-3)


def test_a_batch_is_prepared_outside_autocast():
    """In bfloat16 the places of pixels would be off by half a pixel at 224."""
    seen = []

    class Task:
        def prepare(self, batch, generator):
            seen.append(torch.is_autocast_enabled("cpu"))
            return batch

        def loss(self, model, batch):
            seen.append(torch.is_autocast_enabled("cpu"))
            return torch.zeros((), requires_grad=True)

        def metrics(self):
            return None

    module = TrainingModule(torch.nn.Identity(), Task(), None, steps=1, seed=0, shape={}, classes=())
    with torch.autocast("cpu", torch.bfloat16):
        module.training_step(None, 0)
    assert seen == [False, True]
