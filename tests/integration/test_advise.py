"""`vitlab advise` from a folder of pictures to its answer, and what changes the answer."""

import json
import re
import shlex
import shutil
from pathlib import Path

import joblib
import numpy as np
import pytest
import timm
from PIL import Image, ImageDraw
from safetensors.torch import save_file

from tests.integration.commands import succeed, vitlab
from tests.unit.data.drawn import copy, draw_many, encode, put
from vitlab.advice import backbones
from vitlab.advice import compare as arrays
from vitlab.commands import advise
from vitlab.console import Console
from vitlab.studies import store
from vitlab.studies.grid import compose_study


@pytest.fixture
def photos(tmp_path):
    """Red and green noise, a broken file, a copy of a picture, a file that is no picture."""
    for name, channel in (("red", 0), ("green", 1)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(40 if channel else 30):
            write_noise(tmp_path / "photos" / name / f"{number:02}.png", channel, 100 * channel + number)
    folder = tmp_path / "photos" / "red"
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "phone.heic").write_bytes(b"x")
    Image.open(folder / "07.png").save(folder / "copy.png", optimize=True)
    return tmp_path / "photos"


def write_noise(path, channel, seed):
    pixels = np.random.default_rng(seed).integers(0, 120, (20 + seed % 7, 24, 3))
    pixels[..., channel] += 90
    Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """One repetition and one kind of classifier, in this process."""
    monkeypatch.setattr(arrays, "REPEATS", 1)
    monkeypatch.setattr(arrays, "FLOOR", ("SVM (RBF)",))
    with joblib.parallel_config("threading"):
        yield


def ask(*words, out):
    """The content of advice.json, by this process."""
    assert advise.advise([*map(str, words), "--backbones", "none", "--out", str(out)]) == 0
    return json.loads((out / "advice.json").read_text())


def test_a_folder_becomes_an_answer(photos, tmp_path):
    out = tmp_path / "out"
    done = succeed("advise", photos, "--target", "90%", "--hours", "0.017", "--backbones", "none", "--out", out)
    found = json.loads((out / "advice.json").read_text())
    for text in ("cannot be read: red/broken.jpg", ".heic: 1 file", "1 picture look like"):
        assert text in done.stderr
    assert found["pictures"] == found["labels"] == 71
    assert found["chosen"].endswith("on pixels") or found["chosen"].endswith("on color histograms")
    assert found["now"]["value"] > 0.9
    assert all(line in done.stdout for line in found["verdict"])
    assert "ms a picture" in done.stdout
    assert "data.augment.flip=false" in done.stdout, "networks.yaml mirrors them"
    page = (out / "advice.html").read_text()
    assert found["verdict"][0] in page
    assert (out / "data.html").is_file()
    done = vitlab("predict", out, photos, "--json")
    items = [one for one in json.loads(done.stdout)["items"] if "error" not in one]
    assert done.returncode == 1, "a picture cannot be read"
    right = [Path(one["input"]).parent.name == one["prediction"] for one in items]
    assert len(right) == 71
    assert sum(right) > 60


def test_every_answer_belongs_to_the_folder_as_it_is_now(photos, tmp_path):
    """Asked again with the same --out: the same folder gives the same answer, any change in it another one."""
    out = tmp_path / "out"
    first = ask(photos, out=out)
    assert ask(photos, out=out) == first
    (photos / "red" / "00.png").touch()
    assert ask(photos, "--hours", "2", out=out) == {**first, "hours": 2.0}
    for folder in (photos, out):  # moved together
        shutil.copytree(folder, tmp_path / "project" / folder.name)
    moved = ask(tmp_path / "project" / photos.name, out=tmp_path / "project" / out.name)
    verdict = [text.replace(f"{tmp_path}/project/", f"{tmp_path}/") for text in moved["verdict"]]
    assert {**moved, "data": first["data"], "verdict": verdict} == first
    changes = {
        "a copy": lambda: shutil.copy(photos / "red" / "05.png", photos / "red" / "05-again.png"),
        "a picture more": lambda: write_noise(photos / "red" / "new.png", 0, 500),
        "another label": lambda: (photos / "red" / "01.png").rename(photos / "green" / "moved.png"),
        "another name": lambda: (photos / "red" / "02.png").rename(photos / "red" / "renamed.png"),
        "a picture less": lambda: (photos / "red" / "03.png").unlink(),
        "other pixels": lambda: write_noise(photos / "red" / "04.png", 1, 501),
        "a class more": lambda: shutil.copytree(photos / "red", photos / "blue"),
    }
    seen = {first["data"]}
    for what, change in changes.items():
        change()
        found = ask(photos, out=out)
        assert found["data"] not in seen, what
        seen.add(found["data"])
        assert found["pictures"] == sum(1 for path in photos.rglob("*.*g") if path.name != "broken.jpg"), what


def test_a_table_keeps_its_groups_and_its_split(photos, tmp_path):
    rows = [(path, path.parent.name, number // 2) for number, path in enumerate(sorted(photos.rglob("*.png")))]
    table = tmp_path / "labels.csv"
    lines = [
        f"{path.relative_to(photos)},{label},{group},{'test' if group % 4 == 0 else 'train'}"
        for path, label, group in rows
    ]
    table.write_text("\n".join(["file,label,patient,part", *lines]))
    keys = "data=imagetable", f"data.root={photos}", f"data.path={table}", "data.group=patient"
    whole = ask(*keys, out=tmp_path / "whole")
    assert whole["labels"] == 71
    split = ask(*keys, "data.split=part", out=tmp_path / "split")
    assert split["labels"] == sum("train" in line for line in lines)
    table.write_text(table.read_text().replace(",red,", ",rouge,"))
    other = ask(*keys, out=tmp_path / "whole")
    assert other["data"] != whole["data"]
    table.write_text(f"{table.read_text()}\nred/broken.jpg,green,99,train")
    assert ask(*keys, "data.skip_unreadable=true", out=tmp_path / "whole") == other


def test_a_copy_of_a_copy_is_on_the_same_side(photos, tmp_path):
    (image,) = draw_many("crop", 1)
    put(photos / "red" / "x.jpg", encode(image))
    for name in ("y", "z"):  # y is a copy of x, and z one of y
        put(photos / "red" / f"{name}.jpg", copy(image, "encoded"))
    found = advise.list_folder(photos, tmp_path / "out", Console(stderr=True))
    of = dict(zip(found.paths, found.groups, strict=True))
    assert len({of[f"red/{name}"] for name in ("x.jpg", "y.jpg", "z.jpg")}) == 1


def test_mistakes_are_named_at_once(photos, tmp_path):
    (tmp_path / "flat").mkdir()
    for words, says in (
        (["no-such-folder"], "no such folder"),
        ([tmp_path / "flat"], "holds no folders"),
        (["data.root=x"], "data.root=x: give one folder of pictures"),
        (["a", "b"], "a b: give one folder of pictures"),
        ([photos, "data.group=patient"], "data.group=patient: give one folder of pictures and no keys"),
        ([photos, "seeds=[0]"], "seeds=[0]: give one folder of pictures and no keys"),
        ([photos, "--target", "120%"], "120%"),
        ([photos, "--hours", "0.001"], "0.001"),
        ([photos, "--backbones", "timm:no_such_net"], "timm has no such model"),
    ):
        done = vitlab("advise", *words, "--out", tmp_path / "out")
        assert done.returncode == 2, words
        assert says in done.stderr
        assert not (tmp_path / "out").exists(), "also networks are looked for before pictures are read"


def draw_folder(kind, folder, count=900):
    """Five classes of unequal size: by `shape`, or `color`; of `noise` a quarter of the labels is drawn at random."""
    sides, colors = {"circle": 60, "cross": 0, "ring": 60, "square": 4, "triangle": 3}, "red green blue gold purple"
    rng, shapes, colors = np.random.default_rng(0), [*sides], colors.split()
    for number, label in enumerate(rng.choice(5, count, p=(0.3, 0.25, 0.2, 0.15, 0.1))):
        other = int(rng.integers(5))
        shape, ink = (shapes[other], colors[label]) if kind == "color" else (shapes[label], colors[other])
        width, height = rng.integers(40, 90, 2)
        ground = rng.integers(120, 256, 3) + rng.normal(0, 12, (height, width, 3))
        image = Image.fromarray(ground.clip(0, 255).astype(np.uint8))
        radius, pen = rng.uniform(0.2, 0.42) * min(width, height), ImageDraw.Draw(image)
        x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
        look = {"fill": None if shape == "ring" else ink, "outline": ink, "width": max(2, round(radius / 3))}
        if shape == "cross":
            pen.line((x - radius, y, x + radius, y), ink, look["width"])
            pen.line((x, y - radius, x, y + radius), ink, look["width"])
        else:
            pen.regular_polygon((x, y, radius), sides[shape], **look)
        home = folder / shapes[rng.integers(5) if kind == "noise" and rng.random() < 0.25 else label]
        home.mkdir(parents=True, exist_ok=True)
        image.save(home / f"{number:05}.{'png' if number % 3 else 'jpg'}")


def train_networks(advised, *changes):
    """Run the study that an answer names, by the command in it."""
    (command,) = re.findall(r"advise again: vitlab (scale .*)", advised.stdout)
    return succeed(*shlex.split(command), *changes)


@pytest.mark.slow
def test_the_study_that_would_decide_runs_and_the_next_answer_reads_it(photos, tmp_path, monkeypatch):
    for number in range(30):  # classes that are hard to tell apart
        write_noise(photos / "green" / f"{number}-like-red.png", 0, 1000 + number)
    out, words = tmp_path / "out", ["advise", photos, "--backbones", "none", "--out", tmp_path / "out"]
    first = succeed(*words)
    assert "train vit_nano, resnet_nano for 1,000 steps" in first.stdout
    train_networks(first, "budget.steps=2", "seeds=[0,1]", "models=[vit_nano]")
    monkeypatch.setattr(store, "is_undertrained", lambda *_: False)
    succeed(*words)
    (trained,) = [one for one in json.loads((out / "advice.json").read_text())["models"] if one["name"] == "vit_nano"]
    assert 0.2 < trained["now"]["value"] < 1
    assert (trained["needs_network"], trained["at_twice"]) == (True, None)
    assert "2 runs of 2 steps" in (out / "advice.html").read_text()
    assert "better, train resnet_nano for 1,000 steps" in (out / "advice.html").read_text()
    monkeypatch.setattr(store, "is_undertrained", lambda *_: True)
    second = succeed(*words)
    assert "train vit_nano, resnet_nano for 2,000 steps" in second.stdout
    (photos / "red" / "00.png").unlink()
    assert "for 1,000 steps" in succeed(*words).stdout, "a study of other pictures does not count"


def test_a_frozen_network_that_fails_is_a_line_of_the_answer(photos, tmp_path, monkeypatch):
    def embed(pictures):
        raise RuntimeError("too little memory\nof many lines")

    broken = backbones.Backbone("broken", "broken", (32, 32), 3, embed)
    monkeypatch.setattr(backbones, "open_backbone", lambda *_: broken)
    done = succeed("advise", photos, "--backbones", "timm:broken", "--out", tmp_path / "out")
    assert "without broken: too little memory\n" in done.stdout


def test_a_network_with_the_weights_of_a_file_is_named_by_the_file_too(photos, tmp_path):
    sources = [tmp_path / folder / "salient.safetensors" for folder in ("a", "b")]
    for path in sources:
        path.parent.mkdir()
        save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), path)
    words = "advise", photos, "--hours", "0.017", "--out", tmp_path / "out", "--backbones"
    done = succeed(*words, f"timm:test_resnet={sources[0]}")
    assert "frozen features of test_resnet=salient.safetensors at 96 x 96 pixels" in done.stderr
    assert "resnet_nano, test_resnet=salient.safetensors fine-tuned for 1,000 steps" in done.stdout
    names = [one["name"] for one in json.loads((tmp_path / "out" / "advice.json").read_text())["models"]]
    assert "nearest neighbors on frozen test_resnet=salient.safetensors" in names
    assert "test_resnet=salient.safetensors fine-tuned" in compose_study(str(tmp_path / "out/networks.yaml"), []).models
    done = vitlab(*words, ",".join(f"timm:test_resnet={path}" for path in sources))
    assert done.returncode == 2
    assert f"{sources[1]}: has the name of timm:test_resnet={sources[0]}; rename one of them" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "says"),
    [("color", "color histograms"), ("shape", "take resnet_nano"), ("noise", "labels seem to be wrong")],
)
def test_the_answer_is_what_was_planted(kind, says, tmp_path):
    draw_folder(kind, tmp_path / "photos")
    words = "advise", tmp_path / "photos", "--backbones", "none", "--out", tmp_path / "out"
    done = succeed(*words)
    if kind == "shape":
        train_networks(done, "models=[resnet_nano]", "seeds=[0]")
        done = succeed(*words)
    assert says in done.stdout.lower()
