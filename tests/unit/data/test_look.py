"""What is found in folders of real files: whole ones, broken ones, and those that are no pictures."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.configurations import refused
from tests.unit.data.drawn import copy, draw_many, encode, png, put
from vitlab import config, data
from vitlab.config import UserError
from vitlab.data import look as looking
from vitlab.data.images import decode
from vitlab.data.look import describe, look_at, read_picture, read_pictures, suggest, suggest_size, summarize


@pytest.fixture
def root(tmp_path):
    """train/ and val/ of two classes, of 12 and 6 training pictures, with a copy across splits and broken files."""
    folder = tmp_path / "photos"
    images = draw_many("crop", 24)
    for place, image in enumerate(images[:18]):
        put(folder / "train" / ("cat" if place < 12 else "dog") / f"{place:02d}.jpg", encode(image))
    for place, image in enumerate(images[18:]):
        put(folder / "val" / ("cat" if place < 3 else "dog") / f"{place}.jpg", encode(image))
    put(folder / "val" / "dog" / "again.jpg", copy(images[0], "resized"))
    put(folder / "train" / "cat" / "broken.jpg", encode(images[1])[:900])
    put(folder / "train" / "cat" / "empty.png", b"")
    put(folder / "train" / "cat" / "text.png", b"no picture")
    put(folder / "train" / "cat" / "phone.heic", b"ftypheic")
    put(folder / "train" / "dog" / "notes.txt", b"")
    put(folder / "loose.jpg", encode(images[0]))
    return folder


def test_all_that_a_folder_holds(root):
    facts = summarize(look_at(root))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["splits"] == ["train", "val"]
    assert facts["classes"] == {"cat": {"train": 12, "val": 3}, "dog": {"train": 6, "val": 4}}
    assert (facts["small_classes"], facts["imbalance"], facts["pictures"]) == (["dog"], 2.0, 25)
    assert (facts["modes"], facts["formats"], facts["rotated"]) == ({"RGB": 25}, {"JPEG": 25}, 0)
    reasons = {file["path"]: file["reason"] for file in facts["unreadable"]}
    assert list(reasons) == [f"train/cat/{name}" for name in ("broken.jpg", "empty.png", "text.png")]
    assert "truncated" in reasons["train/cat/broken.jpg"]
    assert "the file is empty" in reasons["train/cat/empty.png"]
    assert "it is not an image" in reasons["train/cat/text.png"]
    skipped = {skip["kind"]: (skip["count"], *skip["names"]) for skip in facts["skipped"]}
    assert skipped == {
        ".heic": (1, "train/cat/phone.heic"),
        ".txt": (1, "train/dog/notes.txt"),
        "images outside of the class folders": (1, "loose.jpg"),
    }
    (pair,) = facts["duplicates"]
    assert (pair["first"], pair["second"]) == ("train/cat/00.jpg", "val/dog/again.jpg")
    assert (pair["across_splits"], pair["across_classes"], pair["identical"]) == (True, True, False)
    assert facts["problems"] == []


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_a_picture_on_its_side_is_measured_upright_and_training_reads_it_so(tmp_path, ending):
    image = Image.new("RGB", (60, 40), "white")
    image.paste("black", (0, 0, 60, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    for folder in (tmp_path / split / label for split in ("train", "val", "test") for label in "ab"):
        folder.mkdir(parents=True)
        image.save(folder / f"0.{ending}", exif=exif, quality=95)
        image.transpose(Image.Transpose.ROTATE_270).save(folder / f"1.{ending}", quality=95)
    turned, upright = read_pictures(tmp_path, [f"val/a/0.{ending}", f"val/a/1.{ending}"])
    assert (turned.height, turned.width, turned.orientation) == (60, 40, 6)
    assert (upright.height, upright.width, upright.orientation) == (60, 40, 1)
    assert np.abs(turned.thumbnail.astype(int) - upright.thumbnail).max() <= 2
    settings = {"name": "imagefolder", "root": str(tmp_path), "image_size": [60, 40], "cache": "never"}
    read = data.load(config.load("data", settings))
    for pixels in (pixels for split in read.splits.values() for pixels in split.read(np.arange(4))):
        assert pixels[:, :, :18].max() < 60 or pixels[:, :, 22:].max() < 60, "left or right half, not the upper one"


def test_white_drawings_on_transparency_are_counted_as_blank(tmp_path):
    for name, ink in (("white", (255, 255, 255, 255)), ("black", (0, 0, 0, 255)), ("none", (0, 0, 0, 0))):
        image = Image.new("RGBA", (40, 30))
        image.paste(ink, (10, 10, 14, 20))
        (tmp_path / "a").mkdir(exist_ok=True)
        image.save(tmp_path / "a" / f"{name}.png")
    Image.new("RGB", (40, 30), "white").save(tmp_path / "a" / "paper.png")
    facts = summarize(look_at(tmp_path))
    assert facts["blank"] == ["a/none.png", "a/white.png"]
    assert dict(describe(facts))["blank"].startswith("2 pictures, as transparency is drawn on white: a/none.png, a/wh")


def test_transparent_pixels_are_white_and_floating_point_is_refused_as_in_training(tmp_path):
    Image.new("RGBA", (20, 20), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("F", (20, 20)).save(tmp_path / "float.tif")
    palette = Image.new("P", (20, 20), 1)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.save(tmp_path / "palette.png", transparency=1)
    clear, floating, palette = read_pictures(tmp_path, ["clear.png", "float.tif", "palette.png"])
    assert clear.thumbnail.min() == palette.thumbnail.min() == 255
    assert "floating-point pixels" in floating.error


@pytest.mark.parametrize(
    ("largest", "bits", "advice"),
    [(200, 8, " unless you give data.bits=8"), (1000, 10, " unless you give data.bits=10"), (65_000, 16, ""),
     (4095, 12, " unless you give data.bits=12"), (70_000, 18, " unless you give data.bits=18")],
)  # fmt: skip
def test_the_range_of_grey_levels_is_said(tmp_path, largest, bits, advice):
    ramp = np.linspace(0, largest, 400).reshape(20, 20).astype(np.int32 if largest > 65_535 else np.uint16)
    for name in ("a/0.tif", "a/1.tif", "b/0.tif", "b/1.tif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(ramp).save(tmp_path / name)
    facts = summarize(look_at(tmp_path))
    (mode,) = facts["levels"]
    assert facts["bits"] == bits
    assert not facts["unreadable"]
    assert (f"levels of {mode}", f"up to {largest:,}, white is 65,535{advice}") in list(describe(facts))
    assert suggest(facts) == "data.image_size=16" + (f" data.bits={bits}" if advice else "")
    assert read_picture(str(tmp_path), "a/0.tif").thumbnail.max() > 60, "so that copies are found"


def test_of_16_bits_a_color_the_upper_8_are_read_and_that_is_said(tmp_path):
    for name in ("a/0.png", "b/0.png"):
        put(tmp_path / name, png(np.full((20, 20, 3), 4000, ">u2"), 16))
    facts = summarize(look_at(tmp_path))
    assert (facts["modes"], facts["bits"]) == ({"RGB;16": 2}, 16)
    assert dict(describe(facts))["levels of RGB;16"].startswith("up to 4,095, white is 65,535; the upper 8 bits")
    with pytest.raises(ValueError, match="the upper 8 are read"):
        decode.read(tmp_path / "a" / "0.png", (20, 20), 3, 12)


def test_several_processes_read_the_same_in_the_same_order(root, monkeypatch):
    paths = [str(path.relative_to(root)) for path in sorted(root.rglob("*.jpg"))]
    alone = read_pictures(root, paths)
    monkeypatch.setattr(looking, "ALONE", 0)
    monkeypatch.setattr(looking, "count_cores", lambda: 2)
    together = read_pictures(root, paths)
    assert [(p.path, p.digest, p.error) for p in together] == [(p.path, p.digest, p.error) for p in alone]


def test_what_training_would_refuse_is_said(tmp_path):
    for place, image in enumerate(draw_many("shape", 5)):
        put(tmp_path / ("one" if place else "two") / f"{place}.jpg", encode(image))
    (tmp_path / "none").mkdir()
    facts = summarize(look_at(tmp_path))
    assert facts["splits"] == ["all"]
    empty, single = facts["problems"]
    assert "class 'none' has no images" in empty
    assert "class 'two' has a single image" in single
    folder = {"name": "imagefolder", "root": str(tmp_path), "image_size": 16, "cache": "never"}
    assert refused(data.load, config.load("data", folder)) == facts["problems"]


def test_a_folder_without_a_picture_says_what_it_has_instead(tmp_path):
    put(tmp_path / "a" / "0.heic", b"")
    with pytest.raises(UserError, match=r"hold no images \(jpg .*\), but 1 \.heic"):
        look_at(tmp_path)


def test_a_folder_of_broken_files_has_no_sizes(tmp_path):
    put(tmp_path / "a" / "0.png", b"")
    facts = summarize(look_at(tmp_path))
    assert (facts["pictures"], facts["image_size"], facts["duplicates"]) == (0, None, [])


@pytest.mark.parametrize(
    ("sides", "size"),
    [([8], 16), ([23], 16), ([24], 32), ([40], 48), ([100], 96), ([90, 100, 900], 96), ([231], 224), ([3000], 224)],
)
def test_the_suggested_size_is_a_multiple_of_16_near_the_median(sides, size):
    assert suggest_size(np.array(sides)) == size
