"""Augmentation and normalisation against the same done by hand, with a different prime for every dimension."""

import pytest
import torch
from torchvision.transforms.v2 import RandomResizedCrop
from torchvision.transforms.v2 import functional as F

from tests.learning import generator
from vitlab.data.augment import normalize
from vitlab.data.augment.geometry import augment, crop, crop_boxes, resize_boxes, sample_boxes

B, C, H, W = 29, 3, 5, 7


def images(dtype=torch.uint8):
    return torch.randint(1, 256, (B, C, H, W), generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.25]), ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7]), ([0.5], [0.5, 1, 2])])
def test_normalize_is_the_formula(mean, std):
    x = images()
    found = normalize(x, mean, std)
    assert found.dtype == torch.float32
    for c in range(C):
        expected = (x[:, c].double() / 255 - mean[c % len(mean)]) / std[c % len(std)]
        torch.testing.assert_close(found[:, c].double(), expected, rtol=1e-5, atol=1e-6)


def test_half_of_the_images_are_mirrored():
    found = augment(torch.arange(2).expand(4000, 1, 1, 2), flip=True, shift=0, generator=generator())
    assert found[..., 0].float().mean().item() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("flip", [False, True])
def test_every_image_is_one_of_the_padded_crops(dtype, flip):
    """All (2 * 2 + 1)^2 crops of the padded image, each perhaps mirrored, by slicing; several are used."""
    x, shift = images(dtype), 2
    found = augment(x, flip=flip, shift=shift, generator=generator(1))
    assert found.dtype == dtype
    assert found.shape == x.shape
    used = set()
    for image, cropped in zip(x, found, strict=True):
        sides = [image, image.flip(2)] if flip else [image]
        matches = [
            (mirrored, top, left)
            for mirrored, side in enumerate(sides)
            for top in range(2 * shift + 1)
            for left in range(2 * shift + 1)
            if torch.equal(torch.nn.functional.pad(side, (shift,) * 4)[:, top : top + H, left : left + W], cropped)
        ]
        assert len(matches) == 1
        used |= set(matches)
    assert {top for _, top, _ in used} == {left for _, _, left in used} == set(range(5))
    assert any(top != left for _, top, left in used)
    assert {mirrored for mirrored, _, _ in used} == ({0, 1} if flip else {0})


@pytest.mark.parametrize("resize", [sample_boxes, resize_boxes])
def test_a_crop_shows_its_box_as_torchvision_does(resize):
    x, scale, aspect = torch.randint(0, 256, (29, 3, 31, 47), dtype=torch.uint8), (0.1, 0.5), (1, 2)
    boxes = crop_boxes((29, 31, 47), scale, aspect, generator())
    cropped = resize(x, boxes)
    pairs = zip(x.float(), boxes.T.int().tolist(), strict=True)
    expected = torch.stack([F.resized_crop(image, *box, [31, 47], antialias=False) for image, box in pairs])
    assert cropped.dtype == torch.uint8
    assert (cropped - expected.round()).abs().max() <= 1
    assert (cropped - expected).abs().mean() < 0.3  # rounding alone: 0.25
    assert torch.equal(crop(x, scale, generator(), aspect), sample_boxes(x, boxes))


@pytest.mark.parametrize(("height", "width"), [(31, 113), (113, 31), (31, 37)])
def test_where_no_crop_fits_it_is_torchvisions_central_box(height, width):
    x = torch.randint(0, 256, (7, 3, height, width), dtype=torch.uint8)
    box = RandomResizedCrop((height, width), scale=(3, 3)).make_params([x[0]])
    expected = F.resized_crop(x, **box, size=[height, width])
    assert (crop(x, (3, 3), generator()).int() - expected.int()).abs().max() <= 1


def test_crop_boxes_are_distributed_as_torchvisions():
    x, scale, count = torch.zeros(3, 31, 47), (0.5, 1.0), 12_000  # large ones are often drawn again, or fall back
    found = crop_boxes((count, 31, 47), scale, (3 / 4, 4 / 3), generator())
    transform = RandomResizedCrop((31, 47), scale=scale)
    drawn = [transform.make_params([x]) for _ in range(count)]
    for values, key in zip(found, ("top", "left", "height", "width"), strict=True):
        expected = torch.tensor([float(box[key]) for box in drawn])
        assert abs(values.mean() - expected.mean()) < 5 * expected.std() / count**0.5, key
        assert abs(values.std() - expected.std()) < 0.04 * expected.std(), key
