"""Glyphs: every picture a function of the seed and its index."""

import numpy as np
import pytest

from tests.configurations import problems
from vitlab import config
from vitlab.config import UserError
from vitlab.data.images import drawn


def load(**changes):
    node = config.load("data", {"name": "glyphs", "train_images": 360, "test_images": 72, **changes})
    return drawn.load(node)


@pytest.mark.parametrize(
    ("name", "changes", "size", "classes"),
    [
        ("glyphs", {"image_size": [19, 31]}, (19, 31), 36),
        ("pointer", {"image_size": [24, 40]}, (24, 40), 10),
        ("arrow", {"noise": 0.0}, (8, 72), 10),
        ("captioned_glyphs", {}, (48, 48), 0),
    ],
)
def test_an_image_does_not_depend_on_its_batch_nor_on_their_number_and_is_in_one_split(name, changes, size, classes):
    data = load(name=name, **changes)
    whole = data.train.read(np.arange(360))
    assert (whole.shape, whole.dtype, len(data.classes)) == ((360, 1, *size), np.uint8, classes)
    assert not classes or set(np.bincount(data.train.labels)) == {360 // classes}
    for chosen in np.split(np.random.default_rng(0).permutation(360), [1, 3, 10, 63]):
        assert np.array_equal(data.train.read(chosen), whole[chosen])
    assert np.array_equal(load(name=name, **changes, train_images=500).train.read(np.arange(360)), whole)
    train, test = (
        {image.tobytes() for image in split.read(np.arange(len(split)))} for split in (data.train, data.test)
    )
    assert (len(train), len(test)) == (360, 72)
    assert not train & test


def test_the_seed_changes_every_image():
    indices = np.arange(36)
    other = load(seed=1).train.read(indices)
    assert not (load().train.read(indices) == other).all(axis=(1, 2, 3)).any()


def test_a_class_is_its_letter():
    """Without noise and turning, an image is nearest to a master of its own class."""
    data = load(noise=0.0, rotation=0.0, shift=0.0, scale=[0.875, 0.875], image_size=32)
    masters = drawn.draw_masters(round(28 / 1.5), drawn.CHARACTERS)
    flat = masters.flatten(3).squeeze(2).numpy()  # fonts, classes, pixels of 32x32
    images = data.train.read(np.arange(360)).reshape(360, -1) / 255
    scores = np.corrcoef(images, flat.reshape(-1, flat.shape[-1]))[:360, 360:]
    found = scores.argmax(axis=1) % len(data.classes)
    assert (found == data.train.labels).mean() > 0.97


def test_all_mistakes_are_reported_at_once():
    found = problems("data=glyphs", "data.noise=-1.0", "data.scale=[0.9,0.6]", "data.seed=-1")
    assert found == [
        "data.seed=-1: must be at least 0",
        "data.noise=-1.0: must be at least 0",
        "data.scale=[0.9, 0.6]: give [min,max]",
    ]
    with pytest.raises(UserError, match=r"data\.train_images=3: give at least 36, one image of each class"):
        load(train_images=3)
