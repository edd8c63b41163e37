"""`vitlab advise` from a folder of pictures to its verdict."""

import csv
import json
import time

import numpy as np
import pytest
from PIL import Image

from scripts.draw_pictures import draw_folder
from tests.integration.commands import vitlab
from vitlab.commands.advise import find_homes
from vitlab.studies import proposal


@pytest.fixture
def photos(tmp_path):
    """Red and green noise, a broken file, a copy of a picture, a file that is no picture."""
    rng = np.random.default_rng(0)
    for name, channel in (("red", 0), ("green", 1)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(60 if channel else 40):
            pixels = rng.integers(0, 120, (20 + number % 7, 24, 3))
            pixels[..., channel] += 90
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{number:02}.png")
    folder = tmp_path / "photos" / "red"
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "phone.heic").write_bytes(b"x")
    Image.open(folder / "07.png").save(folder / "copy.png", optimize=True)
    return tmp_path / "photos"


def test_a_folder_becomes_a_verdict(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(proposal, "LEVELS", (proposal.Level(25, 2, 4),))
    monkeypatch.setattr(proposal, "SCRATCH", ("color_histogram", "resnet_nano"))
    out = tmp_path / "out"
    words = ["advise", photos, "--hours", "1", "--out", out, "wandb.mode=off"]
    done = vitlab(*words)
    assert done.returncode == 0, done.stderr
    for text in ("cannot be read: red/broken.jpg", ".heic: 1 file", "1 picture look like", "without pretrained models"):
        assert text in done.stderr
    with (out / "pictures.csv").open() as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert len(rows) == 101
    assert rows["red/copy.png"]["group"] == rows["red/07.png"]["group"]
    verdict = json.loads((out / "advice.json").read_text())["verdict"]
    first = verdict[0].removeprefix("Limited by the budget: ").capitalize()
    assert first.startswith(("Take color_histogram", "Take resnet_nano", "Undecided"))
    assert verdict[0] in done.stdout
    page = (out / "advice.html").read_text()
    assert verdict[0] in page
    assert "study/report.html" in page
    assert (out / "data.html").is_file()
    assert (out / "study" / "report.html").is_file()
    tests = {
        tuple(json.loads((out / "study" / f"subsets/imagetable-seed{seed}.json").read_text())["subsets"][0].items())[1]
        for seed in (0, 1)
    }
    assert len(tests) == 2, "each seed has a training set of its own"
    again = vitlab(*words)
    assert again.returncode == 0
    assert verdict[0] in again.stdout
    assert "runs done" not in again.stderr, "nothing is trained again"


def test_mistakes_are_named_at_once(tmp_path):
    (tmp_path / "flat").mkdir()
    for words, says in (
        (["no-such-folder"], "no such folder"),
        ([tmp_path / "flat"], "holds no folders"),
        (["seeds=[0]"], "no pictures: give a folder, or data=NAME"),
        (["a", "b"], "give one folder of pictures"),
    ):
        done = vitlab("advise", *words, "--out", tmp_path / "out")
        assert done.returncode == 2, words
        assert says in done.stderr


def test_a_copy_of_a_held_out_picture_is_no_training_picture():
    groups, parts = [0, 1, 0, 2, 2], ["train", "train", "test", "train", "validation"]
    assert find_homes(groups, parts) == [None, 1, 0, None, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("color", "the colors alone decide"), ("shape", "take resnet_nano: "), ("noise", "labels seem to be wrong")],
)
def test_the_verdict_is_what_was_planted(kind, verdict, tmp_path):
    draw_folder(kind, tmp_path / "photos", 900)
    start = time.monotonic()
    done = vitlab("advise", tmp_path / "photos", "--hours", "0.16", "--out", tmp_path / "out", "wandb.mode=off")
    assert done.returncode == 0, done.stderr
    assert verdict in done.stdout.lower()
    assert time.monotonic() - start < 600
