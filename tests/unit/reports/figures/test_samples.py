"""Samples of a study's data: captions stand beside their pictures."""

from types import SimpleNamespace

import numpy as np
from PIL import Image

from tests.captioned import captioned
from vitlab.reports.figures.images import CAPTION_WIDTH, write_samples


def test_captions_are_written_right_of_their_pictures(tmp_path):
    data = captioned()
    write_samples(SimpleNamespace(train=data.train), data, [3, 8], 0, tmp_path)
    sheet = np.asarray(Image.open(tmp_path / "samples.png"))
    side = Image.open(tmp_path / "samples.png").width - CAPTION_WIDTH
    assert side > CAPTION_WIDTH  # two columns of a picture and its caption each
    ink = sheet[..., -1] > 128  # the paper is transparent
    assert ink[34:, -CAPTION_WIDTH:].any()
    assert 0.02 < ink[34:, -CAPTION_WIDTH:].mean() < 0.3  # letters, not a picture
