"""What a trained model writes: captions of picture files."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.captioned import captioned
from vitlab.config import TrainConfig, UserError, compose
from vitlab.models import build
from vitlab.training.writer import TextGenerator, write_lines


@pytest.fixture
def writer():
    data = captioned()
    config = compose(TrainConfig, ["task=captioning", "model.encoder.patch_size=[5,14]", "data.image_size=[10,14]"])
    model = build(config.model, **data.shape).eval()
    run = SimpleNamespace(config=config, model=model, shape=data.shape)
    return TextGenerator(model, data.tokenizer, {"beams": 1}, run=run)


def test_pictures_of_files_are_captioned_in_their_order(writer, tmp_path):
    levels = [30, 220, 120, 60, 180]
    for level in levels:
        Image.fromarray(np.full((40, 56), level, dtype=np.uint8)).save(tmp_path / f"{level}.png")
    rows = [writer.encode(str(tmp_path / f"{level}.png")) for level in levels]
    together = write_lines(writer, rows, 7, {"beams": 1}, 2, lambda *_: None)
    assert together == [write_lines(writer, [row], 7, {"beams": 1}, 2, lambda *_: None)[0] for row in rows]
    assert len(set(together)) > 1


def test_what_is_no_picture_is_one_line(writer, tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.png: no such picture"):
        writer.encode(str(tmp_path / "nowhere.png"))
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(UserError, match=r"text\.png: it is not an image; replace or delete it"):
        writer.begin([writer.encode(str(tmp_path / "text.png"))])
