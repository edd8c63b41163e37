"""Your own pictures with captions: a folder and a table."""

import numpy as np
import pytest
from PIL import Image

from tests.configurations import refused
from vitlab import config, data
from vitlab.data.sequences import IGNORE_INDEX


@pytest.fixture
def folder(tmp_path):
    """Twelve pictures, each of its own grey level, the first four with two captions; two more that no row names."""
    (tmp_path / "pictures").mkdir()
    for i in range(14):
        Image.new("RGB", (37, 23), (i * 10,) * 3).save(tmp_path / "pictures" / f"{i}.jpg", quality=100)
    rows = [f"{i}.jpg,grey number {i}" for i in range(12)] + [f'{i}.jpg,"the  {i}, again"' for i in range(4)]
    (tmp_path / "captions.txt").write_text("\n".join(["image,caption", *rows]) + "\n")
    return tmp_path


def load(folder, **changes):
    given = {"root": str(folder / "pictures"), "path": str(folder / "captions.txt"), "vocabulary": 300, **changes}
    node = config.load("data", {"name": "captions", "image_size": 16, **given})
    return data.load(node), node


def problems(folder, **changes):
    return refused(load, folder, **changes)


def as_text(values):
    return bytes(values.astype(np.uint8)).decode()


@pytest.mark.parametrize("holdout", ["fixed", "repeated", 1])
def test_each_picture_has_its_captions(folder, holdout):
    found, _ = load(folder, holdout=holdout)
    assert [len(split) for split in (found.train, found.validation, found.test)] == [9, 2, 1]
    assert found.train.targets.shape == (9, 2, 65)
    seen = set()
    for split in (found.train, found.validation, found.test):
        for image, rows in zip(split.read(np.arange(len(split))), split.targets, strict=True):
            number = round(image.mean() / 10)
            parts = ([row[row != IGNORE_INDEX] for row in part] for part in np.split(rows, [65], axis=1))
            texts, read = (
                [*map(decode, part)] for decode, part in zip((found.tokenizer.decode, as_text), parts, strict=True)
            )
            again = f"the {number}, again" if number < 4 else ""
            assert texts == [f"grey number {number}", again][: len(texts)]
            assert read == (texts if split is not found.train else [""] * len(texts))
            seen.add(number)
    assert seen == set(range(12))


def test_tabs_and_other_names_of_columns_are_read(folder):
    table = (folder / "captions.txt").read_text().replace(",grey", "\tgrey").replace("image,caption", "file\ttext")
    (folder / "captions.txt").write_text("\n".join(line for line in table.splitlines() if "again" not in line))
    found, _ = load(folder, image_column="file", caption_column="text")
    assert found.train.targets.shape == (9, 1, 65)


def test_mistakes_are_one_line_each(folder):
    source = f"data.path={folder}/captions.txt"
    (line,) = problems(folder, caption_column="captions")
    assert line.startswith(f"data.caption_column=captions: {source} has no column 'captions'; did you mean 'caption'?")
    assert problems(folder, root=str(folder / "no")) == [f"data.root={folder}/no: no such folder"]
    with (folder / "captions.txt").open("a") as file:
        file.write("15.jpg,not there\n3.jpg,\n")
    assert problems(folder) == [
        f"{source}: row 18: no picture '15.jpg' in data.root={folder}/pictures; correct the name, or delete the row",
        f"{source}: row 19: no caption for '3.jpg'; write one, or delete the row",
    ]
