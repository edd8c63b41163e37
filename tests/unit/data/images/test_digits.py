"""scikit-learn's digits, whole and resized."""

import numpy as np
from sklearn.datasets import load_digits

from vitlab import config
from vitlab.data.images import library_sets


def load(**changes):
    return library_sets.load(config.load("data", {"name": "digits", **changes}))


def everything(data):
    return np.concatenate([split.read(np.arange(len(split))) for split in (data.train, data.test)])


def test_at_its_own_size_each_image_is_the_original():
    data = load(image_size=8)
    original = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    assert sorted(image.tobytes() for image in everything(data)) == sorted(image.tobytes() for image in original)
    by_image = dict(zip((image.tobytes() for image in original), load_digits().target, strict=True))
    for split in (data.train, data.test):
        images = split.read(np.arange(len(split)))
        assert [by_image[image.tobytes()] for image in images] == split.labels.tolist()
