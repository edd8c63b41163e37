"""Captioned glyphs: what the words say is what the picture shows."""

import numpy as np

from vitlab import config
from vitlab.data.images import drawn

CLEAR = {"noise": 0.0, "rotation": 0.0, "image_size": 96, "large": [0.26, 0.28], "scale": [0.15, 0.17]}


def configured(**changes):
    return config.load("data", {"name": "captioned_glyphs", "train_images": 120, "test_images": 40, **changes})


def read_picture(image, masters):
    """The caption of a clear picture, from its pixels: characters are what is apart in a row or a column."""
    lit = image > 100
    down, right = (np.ptp(np.flatnonzero(lit.any(axis=axis))) for axis in (1, 0))
    relation = "above" if down > right else "left of"
    lit, image = (lit.T, image.T) if relation == "left of" else (lit, image)
    edges = np.flatnonzero(np.diff(np.pad(lit.any(axis=1), 1).astype(int))).reshape(-1, 2)
    named = []
    for first, last in edges:
        columns = np.flatnonzero(lit[first:last].any(axis=0))
        glyph = image[first:last, columns[0] : columns[-1] + 1]
        glyph = glyph.T if relation == "left of" else glyph
        large = max(glyph.shape) > 0.215 * 96
        named.append(f"a {'large' if large else 'small'} {nearest(glyph, masters)}")
    return f" {relation} ".join(named)


def nearest(glyph, masters):
    """The character whose master, reduced to the glyph's box, is most like it."""
    side = max(glyph.shape)
    square = np.zeros((side, side))
    top, left = (side - glyph.shape[0]) // 2, (side - glyph.shape[1]) // 2
    square[top : top + glyph.shape[0], left : left + glyph.shape[1]] = glyph
    at = np.linspace(2, masters.shape[-1] - 3, side).round().astype(int)
    flat = masters[:, :, 0][:, :, at][:, :, :, at].reshape(masters.shape[0] * masters.shape[1], -1)
    scores = np.corrcoef(square.ravel(), flat)[0, 1:]
    return drawn.CHARACTERS[scores.argmax() % masters.shape[1]]


def test_a_caption_says_what_the_picture_shows():
    node = configured(**CLEAR)
    masters = drawn.draw_masters(27, drawn.CHARACTERS).numpy()
    images = drawn.load(node).train.read(np.arange(60))[:, 0]
    captions = [caption.decode() for caption in drawn.load(node).train.targets[:60, 0].tolist()]
    read = [read_picture(image, masters) for image in images]
    without = [[word for word in text.split() if len(word) > 1] for text in read]
    assert without == [[word for word in text.split() if len(word) > 1] for text in captions]  # all but the characters
    words = [
        (a, b)
        for one, other in zip(read, captions, strict=True)
        for a, b in zip(one.split(), other.split(), strict=True)
    ]
    characters = [a == b for a, b in words if len(b) == 1 and b != "a"]
    assert np.mean(characters) > 0.95
    assert {len(text.split(" a ")) for text in captions} == {2, 3}
