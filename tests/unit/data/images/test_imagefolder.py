"""Folders of real image files of many kinds, with and without a split, whole and broken."""

import os
import re
import shutil
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import vitlab
from tests.configurations import refused
from tests.unit.data.drawn import png, put
from vitlab import config, data
from vitlab.config import UserError
from vitlab.data import cache as cached
from vitlab.data.images import decode, imagefolder
from vitlab.data.look import read_picture
from vitlab.data.opening import hash_data

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\nshowpage\n"
RED, GREEN, BLUE = (220, 30, 20), (10, 200, 60), (20, 40, 210)


def save(path, colour=RED, size=(37, 23), mode="RGB", **options):
    """An image file of one colour; width x height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, colour)
    (image if mode == "RGB" else image.convert(mode)).save(path, **options)
    return path


@pytest.fixture
def root(tmp_path):
    """Two classes of 10 and 7 images, each of its own grey level."""
    for i in range(10):
        save(tmp_path / "set" / "cat" / f"{i}.png", (i * 20,) * 3)
    for i in range(7):
        save(tmp_path / "set" / "dog" / f"{i}.png", (i * 20 + 7,) * 3)
    return tmp_path / "set"


def load(root, **changes):
    return data.load(config.load("data", {"name": "imagefolder", "root": str(root), "image_size": 11, **changes}))


def problems(root, **changes):
    return refused(load, root, **changes)


def levels(split):
    return split.read(np.arange(len(split)))[:, 0, 5, 5].tolist()


def test_a_cold_folder_is_walked_twice_and_a_warm_one_once(root, monkeypatch):
    walked, scan = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: walked.append(Path(path).name) or scan(path))
    for most in (3, 4):  # once more to see whether a class holds folders
        chosen = config.load("data", {"name": "imagefolder", "root": str(root), "image_size": 11})
        hash_data(chosen, data.load(chosen))
        assert walked.count("cat") == most


def test_a_share_of_each_class_is_held_out(root):
    found = load(root, test_share=0.3)
    assert found.classes == ("cat", "dog")
    assert (found.image_size, found.channels) == ((11, 11), 3)
    splits = found.splits.values()
    assert [np.bincount(split.labels).tolist() for split in splits] == [[6, 4], [1, 1], [3, 2]]
    for split in splits:
        assert [level % 20 == 7 for level in levels(split)] == [bool(label) for label in split.labels]
    every = [i * 20 for i in range(10)] + [i * 20 + 7 for i in range(7)]
    assert sorted(level for split in splits for level in levels(split)) == sorted(every)


def test_a_share_beside_a_test_folder_is_refused(root):
    for name in ("cat", "dog"):
        (root / "train").mkdir(exist_ok=True)
        (root / name).rename(root / "train" / name)
    shutil.copytree(root / "train", root / "test")
    for key, value in (("test_share", 0.5), ("seed", 1)):
        with pytest.raises(UserError, match=rf"data\.{key}={value}: data.root=.* has its own test; give 0"):
            load(root, **{key: value})


def near(found, colour, tolerance):
    return np.abs(found.astype(int) - np.array(colour)[:, None, None]).max() <= tolerance


@pytest.mark.parametrize(
    ("name", "mode", "options", "tolerance"),
    [
        ("x.png", "RGB", {}, 0),
        ("x.webp", "RGB", {"lossless": True}, 0),
        ("x.tif", "RGB", {}, 0),
        ("x.JPG", "RGB", {"quality": 95}, 3),
        ("x.jfif", "RGB", {"quality": 95}, 3),
        ("x.JPE", "RGB", {"quality": 95, "format": "JPEG"}, 3),
        ("x.jpeg", "CMYK", {"quality": 95}, 4),
        ("x.gif", "P", {}, 12),
        ("palette.png", "P", {}, 12),
        ("alpha.png", "RGBA", {}, 0),
    ],
)
def test_kinds_of_files(root, name, mode, options, tolerance):
    save(root / "cat" / name, GREEN, mode=mode, **options)
    found = load(root)
    every = np.concatenate([split.read(np.arange(len(split))) for split in found.splits.values()])
    assert sum(near(image, GREEN, tolerance) for image in every) == 1


@pytest.mark.parametrize(("width", "height"), [(61, 40), (40, 61), (19, 13), (300, 17), (23, 31)])
def test_pictures_are_resized_as_by_pillow(tmp_path, width, height):
    """The largest box of whole pixels in the middle, which may be smaller than the target."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    wide, high = min(width, round(height * 23 / 31)), min(height, round(width * 31 / 23))
    left, top = (width - wide) // 2, (height - high) // 2
    box = Image.fromarray(noise).crop((left, top, left + wide, top + high))
    expected = np.asarray(box.resize((23, 31), Image.Resampling.BILINEAR)).astype(int)
    found = decode.read(tmp_path / "noise.png", (31, 23), 3).transpose(1, 2, 0)
    assert np.abs(found - expected).max() <= 1


def test_a_huge_picture_takes_its_own_memory_and_not_twice_that(tmp_path, monkeypatch):
    def measure(key):
        return int(re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    monkeypatch.setattr(decode, "HUGE", 4_000_000)
    monkeypatch.setattr(decode, "BAND", 500_000)
    put(tmp_path / "a.png", png(np.full((3000, 4000, 3), 7, np.uint8), 8))
    put(tmp_path / "small.png", png(np.zeros((32, 48, 3), np.uint8), 8))
    decode.read(tmp_path / "small.png", (16, 16), 3)  # imports torch
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what is held now
    before = measure("VmRSS")
    assert read_picture(str(tmp_path), "a.png").width == 4000
    decode.read(tmp_path / "a.png", (32, 48), 3)
    assert measure("VmHWM") - before < 1.5 * 4 * 4000 * 3000 / 1024, "Pillow holds four bytes of a pixel"


def test_a_reduced_picture_looks_the_same_and_a_larger_one_is_to_be_shrunk(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.random.default_rng(0).integers(0, 255, (9, 12, 3), dtype=np.uint8)
    large = Image.fromarray(pixels).resize((1200, 900), Image.Resampling.BICUBIC)
    large.save(tmp_path / "a.png", exif=exif)
    whole = decode.read(tmp_path / "a.png", (48, 32), 3).astype(int)
    monkeypatch.setattr(decode, "HUGE", 10**6)
    assert np.abs(decode.read(tmp_path / "a.png", (48, 32), 3) - whole).mean() < 3
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5 * 10**5)
    with pytest.raises(Image.DecompressionBombError) as error:
        decode.read(tmp_path / "a.png", (48, 32), 3)
    text = imagefolder.explain(str(tmp_path / "a.png"), error.value)
    assert text == "it has more than 1 million pixels; shrink it"


def test_wrong_folders(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert problems(tmp_path / "loop")[0].startswith(f"data.root={tmp_path / 'loop'}: a broken link; give the one ")
    save(tmp_path / "loose" / "a.png")
    assert "holds no folders, but 1 loose images" in problems(tmp_path / "loose")[0]


def test_a_split_must_have_the_same_classes(tmp_path):
    for path in ("train/a", "train/b", "train/c", "val/a", "val/d"):
        save(tmp_path / path / "0.png")
    found = problems(tmp_path)
    assert [line.split(": ")[1].split(";")[0] for line in found] == [
        "class 'b' is not in val/",
        "class 'c' is not in val/",
        "class 'd' is not in train/",
    ]


def lay_out(root, folders):
    """Three images in each folder, all different."""
    for number, folder in enumerate(folders):
        for i in range(3):
            save(root / folder / f"{i}.png", (number, i, 0))


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ("Train Test", ["train", "test"]),
        ("training testing", ["train", "test"]),
        ("train dev", ["train", "test"]),
        ("train valid test", ["train", "validation", "test"]),
        ("train eval test", ["train", "validation", "test"]),
        ("train val eval", ["train", "validation", "test"]),
        ("TRAIN VALIDATE holdout", ["train", "validation", "test"]),
        ("train_set val2017 Test-Images", ["train", "validation", "test"]),
    ],
)
def test_names_of_splits_in_any_case_are_splits(tmp_path, names, parts):
    lay_out(tmp_path / "set", [f"{name}/{label}" for name in names.split() for label in "ab"])
    assert imagefolder.find_splits(tmp_path / "set") == dict(
        sorted(zip(parts, names.split(), strict=True), key=lambda p: p[0] == "test")
    )
    assert load(tmp_path / "set").classes == ("a", "b")


@pytest.mark.parametrize(
    "folders",
    [
        "train/a train/b test",
        "train test",
        "trainA trainB testA testB",
        "my_train/a my_train/b my_test/a my_test/b",
        "train/a train/b Train/a Train/b test/a test/b",
        "fold1/a fold1/b fold2/a fold2/b",
        "train/a train/b other",
        "images/train/a images/test/a labels",
        "cat/train cat/test dog/train dog/test",
    ],
)
def test_what_looks_like_splits_and_is_none_is_refused_by_name(tmp_path, folders):
    lay_out(tmp_path / "set", folders.split())
    assert all("split" in line for line in problems(tmp_path / "set"))
    assert any(name in problems(tmp_path / "set")[0] for name in ("test/", "Train/", "train/", "testA/", "fold2/"))


def test_a_class_may_be_named_as_a_split(tmp_path):
    lay_out(tmp_path / "set", ["train", "bus", "car/red", "car/blue"])
    assert load(tmp_path / "set").classes == ("bus", "car", "train")


def test_what_systems_and_links_add_is_neither_class_nor_picture(root):
    for extra in ("@eaDir", "__MACOSX", ".thumbnails", "$RECYCLE.BIN", "System Volume Information", "cat/@eaDir"):
        save(root / extra / "thumb.jpg")
    save(root / "cat" / "._0.png")
    (root / "dog" / "above").symlink_to("..")
    found = load(root)
    assert (found.classes, sum(map(len, found.splits.values()))) == (("cat", "dog"), 17)
    (root / "dog" / "cats").symlink_to("../cat")
    (root / "dog" / "again.png").symlink_to("0.png")
    assert ": 11 pictures twice, by links: dog/again.png is dog/0.png and 10 more; " in problems(root)[0]


def test_a_class_has_one_name_in_two_forms_of_unicode(tmp_path):
    lay_out(tmp_path / "set", [f"train/{normalize('NFC', 'é')}", "train/b", f"val/{normalize('NFD', 'é')}", "val/b"])
    assert load(tmp_path / "set").classes == ("b", normalize("NFC", "é"))


def test_broken_files_are_named_before_training(root):
    whole = save(root / "cat" / "cut.jpg", size=(200, 200), quality=95)
    whole.write_bytes(whole.read_bytes()[:700])
    (root / "cat" / "text.jpg").write_text("not an image")
    (root / "dog" / "nothing.png").write_bytes(b"")
    for line, said in zip(
        sorted(problems(root)),
        ("cat/cut.jpg: .*truncated", "cat/text.jpg: it is not an image", "dog/nothing.png: the file is empty"),
        strict=True,
    ):
        assert re.match(f"data.root={root}: cannot read {said}", line)


def deep(path, *levels, kind=np.uint16):
    """A picture of 2 x 4 pixels for each level, side by side."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.repeat(np.array([levels], kind), [8] * len(levels), axis=1).repeat(4, axis=0)).save(path)
    return path


@pytest.mark.parametrize(
    ("bits", "kind", "name"),
    [(8, np.uint16, "a.png"), (10, np.uint16, "a.png"), (12, np.uint16, "a.tif"), (16, np.uint16, "a.png"),
     (12, ">u2", "a.tif"), (20, np.int32, "a.tif"), (12, np.int32, "a.tif")],
)  # fmt: skip
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_of_more_than_8_bits_has_the_range_of_data_bits(tmp_path, bits, kind, name, channels):
    white = 2**bits - 1
    path = deep(tmp_path / name, 0, white // 5, white, kind=kind)
    found = decode.read(path, (4, 24), channels, bits)
    assert found.shape == (channels, 4, 24)
    assert found[-1, 2, [3, 11, 20]].tolist() == [0, 51, 255]


@pytest.mark.parametrize(
    ("levels", "bits", "kind"), [([0, 4096], 12, np.uint16), ([0, 70_000], 16, np.int32), ([-3, 9], 16, np.int32)]
)
def test_levels_outside_of_the_range_are_refused_and_not_cut(tmp_path, levels, bits, kind):
    path = deep(tmp_path / "a.tif", *levels, kind=kind)
    with pytest.raises(
        ValueError, match=f"levels, {levels[0]} to {levels[1]:,}, leave .* \\(data.bits={bits}\\)"
    ) as caught:
        decode.read(path, (4, 16), 3, bits)
    assert imagefolder.explain(str(path), caught.value).endswith(" convert it to 8 bits"), "a single advice"


def test_a_set_is_scaled_by_its_bits_and_nearly_black_pictures_are_said(tmp_path, monkeypatch):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    for place in range(12):
        deep(tmp_path / "set" / ("a" if place % 2 else "b") / f"{place}.png", 0, 4095)
    for _ in range(2):  # from a warm cache, too
        with pytest.warns(UserWarning, match="no pixel brighter than 16 of 255; of files"):
            dark = load(tmp_path / "set")
    bright = load(tmp_path / "set", bits=12)
    assert [split.read(np.arange(2)).max() for split in (dark.test, bright.test, bright.train)] == [16, 255, 255]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "1"])
def test_bands_of_a_huge_picture_are_those_of_the_whole(mode, channels, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 255, (301, 203, 4), dtype=np.uint8)
    image = Image.fromarray(pixels, "RGBA") if mode in ("RGBA", "LA") else Image.fromarray(pixels[..., :3].copy())
    image = Image.fromarray(pixels[..., 0] * np.uint16(257)) if mode == "I;16" else image.convert(mode)
    monkeypatch.setattr(decode, "HUGE", 0)
    whole, bands = ((monkeypatch.setattr(decode, "BAND", band), decode.upright(image, 40))[1] for band in (10**9, 1))
    assert whole.size == (40, 60)
    assert np.array_equal(np.asarray(whole), np.asarray(bands))
    assert decode.convert(image, (8, 8), channels).shape == (channels, 8, 8)


@pytest.mark.parametrize("cache", ["auto", "never"])
def test_unreadable_pictures_are_left_out_counted_and_named_if_asked(root, tmp_path, monkeypatch, cache):
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "cache"))
    for name in ("cat/broken.png", "dog/empty.jpg"):
        (root / name).write_bytes(name.encode()[:-13])
    for _ in range(2):  # from a warm cache, too
        with pytest.warns(UserWarning, match="left out 2 pictures that cannot be read: .*/") as warned:
            read = load(root, cache=cache, skip_unreadable=True)
        assert all(name in str(warned[0].message) for name in ("cat/broken.png", "dog/empty.jpg"))
    left = sorted(level for split in read.splits.values() for level in levels(split))
    assert left == sorted([*range(0, 200, 20), *range(7, 140, 20)])
    if cache == "auto":  # pixels that are not kept, of a large folder
        monkeypatch.setattr(cached, "LIMIT", -1)
        (tmp_path / "cache").rename(tmp_path / "other")
        with pytest.warns(UserWarning, match="left out 2 pictures"):
            load(root, skip_unreadable=True)
        with monkeypatch.context() as patch:
            patch.setattr(cached, "decode_ahead", None)  # they are found once
            with pytest.warns(UserWarning, match="left out 2 pictures"):
                load(root, skip_unreadable=True)
    for path in root.glob("dog/*"):
        path.write_bytes(b"")
    (line,) = problems(root, cache=cache, skip_unreadable=True)
    assert re.fullmatch("data.skip_unreadable=true: no .* picture of dog can be read; add some", line)


def test_no_file_starts_a_program(root, monkeypatch):
    """Pillow gives an EPS to Ghostscript, whatever its name says; a pipe would wait for its writer."""
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("Ghostscript was started"))
    for name in ("eps.png", "eps.jpg", "eps.tif"):
        (root / "cat" / name).write_bytes(EPS)
    assert [problem.split(": ", 1)[1] for problem in problems(root, cache="always")] == [
        f"cannot read cat/eps.{ending}: it is not an image; replace or delete it, or give data.skip_unreadable=true"
        for ending in ("jpg", "png", "tif")
    ]
    os.mkfifo(root / "pipe.png")
    with pytest.raises(UserError, match="a pipe, socket or device"):
        decode.open_image(root / "pipe.png")
    known = Image.registered_extensions()
    assert {known[ending] for ending in imagefolder.EXTENSIONS} == set(decode.FORMATS)
    for path in Path(vitlab.__file__).parent.rglob("*.py"):
        assert not re.findall(r"Image\.open\((?!.*formats=)", path.read_text()), path
