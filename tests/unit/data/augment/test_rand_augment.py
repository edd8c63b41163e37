"""RandAugment: each operation against timm's on PIL images, what is drawn and how often."""

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment

from tests.learning import generator
from vitlab.config import TrainConfig, compose
from vitlab.data.augment.rand_augment import NAMES, OPERATIONS, SIGNED, UNSIGNED, rand_augment

TIMM = {  # the names there
    name: name.title().replace("_", "") + ("Rel" if name.startswith("translate") else "") for name in NAMES
}
INCREASING = {"Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness"}
GEOMETRIC = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}


def pictures(count=5, channels=3, height=37, width=53):
    """Smooth uint8 pictures with a wide range of colours."""
    coarse = torch.rand(count, channels, 4, 5, generator=torch.Generator().manual_seed(0)) * 200 + 20
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic", align_corners=True)
    return smooth.clamp(0, 255).to(torch.uint8)


def config(*overrides):
    return compose(TrainConfig, [f"recipe.rand_augment.{o}" for o in overrides]).recipe.rand_augment


def by_timm(picture, name, magnitude, increasing, sign):
    """The same operation of timm on one PIL image, its sign forced."""
    name = TIMM[name] + ("Increasing" if increasing and TIMM[name] in INCREASING else "")
    kept, auto_augment._randomly_negate = auto_augment._randomly_negate, lambda value: sign * value
    try:
        parameters = {"img_mean": (128, 128, 128), "interpolation": Image.Resampling.BILINEAR}
        out = auto_augment.AugmentOp(name, 1.0, magnitude, parameters)(
            Image.fromarray(picture.permute(1, 2, 0).numpy())
        )
    finally:
        auto_augment._randomly_negate = kept
    return torch.from_numpy(np.array(out)).permute(2, 0, 1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("magnitude", [2.5, 9, 10])
@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_each_operation_is_timms(name, increasing, magnitude, sign):
    x = pictures()
    found = OPERATIONS[name](x, (sign if name in SIGNED else 1) * magnitude / 10, increasing)
    assert found.dtype == torch.uint8
    assert found.shape == x.shape
    theirs = -sign if name.startswith("translate") else sign  # its shifts go the other way, as half of them do
    if name == "posterize":  # Pillow refuses to keep no bit, so that timm fails at 10, and at 2.4 without increasing
        magnitude = {(10, True): 9}.get((magnitude, increasing), magnitude)
    expected = torch.stack([by_timm(picture, name, magnitude, increasing, theirs) for picture in x])
    difference = (found.int() - expected.int()).abs().float()
    if name in GEOMETRIC:  # edges are cut half a pixel apart
        assert difference.median() <= 2
        assert difference.mean() < 6
    else:
        assert difference.mean() < 1.5
    if name not in ("solarize",) or increasing or magnitude < 10:
        assert not torch.equal(found, x), "it does something"


def counted(monkeypatch, images, *overrides, steps=40):
    """{(operation, level): images that got it} over some batches."""
    seen = {}

    def spy(name):
        def operation(rows, level, increasing):
            seen[name, level] = seen.get((name, level), 0) + len(rows)
            return rows

        return operation

    monkeypatch.setattr("vitlab.data.augment.rand_augment.OPERATIONS", {name: spy(name) for name in NAMES})
    g, options = generator(), config(*overrides)
    for _ in range(steps):
        rand_augment(images, options, g)
    return seen


@pytest.mark.parametrize("probability", [1.0, 0.5])
def test_each_image_draws_its_operations_evenly(monkeypatch, probability):
    layers, steps, count = 3, 40, 101
    x = torch.zeros(count, 3, 2, 2, dtype=torch.uint8)
    seen = counted(monkeypatch, x, f"layers={layers}", f"probability={probability}", "magnitude=7", steps=steps)
    expected = layers * steps * count * probability / len(NAMES)
    for name in NAMES:
        levels = {level: number for (n, level), number in seen.items() if n == name}
        assert set(levels) == ({0.7, -0.7} if name in SIGNED else {0.7})
        assert sum(levels.values()) == pytest.approx(expected, abs=5 * expected**0.5)
        for number in levels.values():
            assert number == pytest.approx(expected / len(levels), abs=5 * expected**0.5)


def test_a_random_magnitude_is_normal_about_the_recipes_and_at_most_ten(monkeypatch):
    x = torch.zeros(101, 3, 2, 2, dtype=torch.uint8)
    seen = counted(monkeypatch, x, "layers=1", "magnitude=9", "std=0.5")
    levels = torch.tensor([abs(level) * 10 for _, level in seen])
    assert len(levels) > 500, "one for each operation and sign of each batch"
    assert levels.max() == 10
    assert levels.median().item() == pytest.approx(9, abs=0.1)
    assert levels[levels < 10].std() > 0.3
    assert (levels > 6.5).all()
    assert set(UNSIGNED) | set(SIGNED) == {name for name, _ in seen}
