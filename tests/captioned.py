"""A small data set of pictures with captions, for the tests."""

import numpy as np

from vitlab.config import load
from vitlab.data.base import CaptionData, ImageData, Split
from vitlab.data.images.tables import encode_captions

COLOURS = {"dark": 40, "grey": 120, "light": 220}


def captioned(captions=1, count=60, size=(10, 14), written=str, **changes) -> CaptionData:
    """Pictures whose upper and lower halves are of a colour each, "dark above light"; a second caption says it back."""
    names = [*COLOURS]
    pairs = [(a, b) for a in names for b in names if a != b]
    rows = [pairs[i % len(pairs)] for i in range(count)]

    def read(indices):
        images = np.empty((len(indices), 1, *size), dtype=np.uint8)
        for image, index in zip(images, indices, strict=True):
            upper, lower = rows[index]
            image[:, : size[0] // 2], image[:, size[0] // 2 :] = COLOURS[upper], COLOURS[lower]
        return images + np.random.default_rng(indices.sum()).integers(0, 9, images.shape, dtype=np.uint8)

    texts = [(f"{a} above {b}", f"the {b} below {a}")[: captions if i % 2 else 1] for i, (a, b) in enumerate(rows)]
    targets = np.array([[written(text).encode() for text in of] + [b""] * (captions - len(of)) for of in texts])
    split = Split(np.zeros(count, dtype=np.int64), read, targets)
    parts = ("train", "validation", "test")
    data = ImageData("captioned", (), size, 1, **dict.fromkeys(parts, split))
    changes = {"vocabulary": 300, "target_length": 7, "exact": captions == 1, **changes}
    return encode_captions(load("data", {"name": "captioned_glyphs", **changes}), data)
