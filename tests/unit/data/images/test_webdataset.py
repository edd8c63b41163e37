"""Tar shards that the webdataset library wrote, whole and damaged."""

import gzip
import io
import json
import os
import tarfile
from unicodedata import normalize

import numpy as np
import pytest

from tests.configurations import refused
from vitlab import config, data
from vitlab.config import UserError
from vitlab.data.images import webdataset as shard_files
from vitlab.data.opening import hash_data

webdataset = pytest.importorskip("webdataset")
from PIL import Image  # noqa: E402

SHARDS, EACH = 5, 12


def picture(level, kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (9, 7), (level,) * 3).save(file, kind)
    return file.getvalue()


def sample(number, **files):
    """Its grey level says which it is, its label is the level by 3."""
    return {"__key__": f"part/{number:04d}", "png": picture(number), "cls": number % 3, **files}


def write(path, samples, **options):
    with webdataset.TarWriter(str(path), **options) as writer:
        for one in samples:
            writer.write(one)
    return path


@pytest.fixture
def shards(tmp_path):
    """A pattern of 5 shards with 12 samples each."""
    folder = tmp_path / "shards"
    folder.mkdir()
    with webdataset.ShardWriter(f"{folder}/train-%03d.tar", maxcount=EACH, verbose=0) as writer:
        for number in range(SHARDS * EACH):
            writer.write(sample(number))
    return f"{folder}/train-{{000..004}}.tar"


def load(train, **changes):
    options = {"image_size": 7, "cache": "never", **changes}
    return data.load(config.load("data", {"name": "webdataset", "train": train, **options}))


def problems(train, **changes):
    return refused(load, train, **changes)


def levels(split):
    return split.read(np.arange(len(split)))[:, 0, 3, 3].tolist()


def splits(found):
    return found.train, found.validation, found.test


@pytest.mark.parametrize("cache", ["never", "always"])
def test_every_sample_is_in_one_split_with_its_label_and_shard(shards, cache):
    found = load(shards, cache=cache)
    assert (found.classes, found.image_size, found.channels) == (("0", "1", "2"), (7, 7), 3)
    assert sorted(level for split in splits(found) for level in levels(split)) == list(range(60))
    for split in splits(found):
        assert [level % 3 for level in levels(split)] == split.labels.tolist()
    assert [len(split) for split in splits(found)] == [49, 5, 6]
    assert found.train.blocks.tolist() == [level // EACH for level in levels(found.train)]
    mixed = np.array([57, 0, 13, 0, 24])
    with pytest.warns(
        UserWarning, match=r"^data\.test: 5 shards of data\.train too, such as .*000\.tar: trained on, not held out$"
    ):
        found = load(shards, cache=cache, test=shards, validation=shards)
    assert found.train.read(mixed)[:, 1, 0, 0].tolist() == mixed.tolist()


def test_what_is_held_out_follows_the_keys_not_the_shards(shards, tmp_path):
    order = np.random.default_rng(2).permutation(60)
    for k, part in enumerate(np.split(order, 3)):
        write(tmp_path / f"other-{k}.tar", map(sample, part.tolist()))
    one, two = load(shards), load([str(tmp_path / f"other-{k}.tar") for k in range(3)])
    for a, b in zip(splits(one), splits(two), strict=True):
        assert set(levels(a)) == set(levels(b))


@pytest.mark.parametrize("pattern", ["{folder}", "{folder}/train-*.tar", "file:{folder}/train-00{{0..4}}.tar"])
def test_shards_are_named_by_a_folder_globs_and_braces(shards, pattern):
    folder = os.path.dirname(shards)
    assert len(load(pattern.format(folder=folder)).train) == 49
    turned = load([f"{folder}/train-00{number}.tar" for number in (4, 0, 3, 2, 1)]).train
    assert [level // EACH for level in levels(turned)] == [(4, 0, 3, 2, 1)[block] for block in turned.blocks]
    split = load([f"{folder}/train-000.tar", f"{folder}/train-00{{1,2}}.tar"], test=f"{folder}/train-00[34].tar")
    assert (len(split.test), len(split.train) + len(split.validation)) == (24, 36)


def test_shards_at_an_address_are_downloaded_once(shards, cache):
    folder, log = os.path.dirname(shards), cache.parent / "log"
    address = f"pipe:echo one >> {log}; cat {folder}/train-{{000..004}}.tar"
    for _ in range(2):
        assert len(load(address).train) == 49
    assert log.read_text() == "one\n" * 5
    (line,) = problems("pipe:cat /nowhere/{1..3}.tar")
    assert line.startswith("data.train=pipe:cat /nowhere/1.tar: cannot download it: the command ended with code 1; ")
    assert "give pipe:COMMAND" in problems("s3://bucket/1.tar")[0]
    assert not [path for path in cache.rglob("*") if path.name.endswith(".tmp")]


def test_labels_are_numbers_names_or_a_field(tmp_path):
    def named(number):
        name = ("ant", "bee", "cat")[number % 3]
        return sample(number, txt=name, json=json.dumps({"label": name, "id": number}))

    path = str(write(tmp_path / "a.tar", map(named, range(30))))
    by_number, by_text, by_field = (load(path, label=label) for label in ("cls", "txt", "json.label"))
    assert by_text.classes == by_field.classes == ("ant", "bee", "cat")
    for found in (by_number, by_text, by_field):
        assert [level % 3 for level in levels(found.train)] == found.train.labels.tolist()
    (tmp_path / "names").write_text("cat\nant\nbee\ndog\n")
    found = load(path, label="txt", classes=str(tmp_path / "names"))
    assert found.classes == ("cat", "ant", "bee", "dog")
    assert [(level + 1) % 3 for level in levels(found.train)] == found.train.labels.tolist()
    assert load(path, classes=["a", "b", "c"]).train.labels.tolist() == by_number.train.labels.tolist()
    assert len(load(path, classes=7).classes) == 7


def test_an_index_is_used_until_a_shard_changes(shards, monkeypatch):
    calls = []
    scan = shard_files.scan_shard
    monkeypatch.setattr(shard_files, "scan_shard", lambda config, *rest: calls.append(rest) or scan(config, *rest))
    first = hash_data(config.load("data", {"name": "webdataset", "train": shards, "image_size": 7}), load(shards))
    load(shards, image_size=5)
    assert len(calls) == SHARDS
    before, last = load(shards), f"{os.path.dirname(shards)}/train-004.tar"
    write(last, (sample(number, png=picture(number, "GIF")) for number in range(48, 60)))
    rows = np.flatnonzero(before.train.blocks == 4)
    with pytest.raises(UserError, match=r"train-004\.tar: has changed since it was indexed; run the command again"):
        before.train.read(rows)
    after = load(shards)
    assert len(calls) == 2 * SHARDS
    assert after.train.labels.tolist() == before.train.labels.tolist()
    assert hash_data(config.load("data", {"name": "webdataset", "train": shards, "image_size": 7}), after) != first
    os.unlink(last)
    with pytest.raises(UserError, match=r"train-004\.tar: .* No such file .*; restore the shard"):
        after.train.read(rows)
    (line,) = problems(shards)
    assert line.endswith(f"1 of 5 shards not there: {last}")


def test_forms_of_a_label_and_the_files_of_a_mac(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(12):
            label = normalize(("NFC", "NFD")[number // 2 % 2], "é") if number % 2 else "b"
            for ending, content in (("cls", label.encode()), ("png", picture(number))):
                for name, data in ((f"d/._{number}.{ending}", b"Mac OS X"), (f"d/{number}.{ending}", content)):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    assert load(str(tmp_path / "a.tar")).classes == ("b", normalize("NFC", "é"))


def test_what_is_wrong_with_a_sample_is_one_line_with_its_name(tmp_path, shards):
    few = list(map(sample, range(6)))
    for number, (one, options, said) in enumerate(
        [
            ({"__key__": "x", "cls": 1}, {}, "sample x: has no image (.jpg .jpeg .png .webp), only .cls"),
            ({"__key__": "x", "png": picture(1)}, {}, "sample x: has no label (.cls), only .png; give data.label="),
            (
                sample(7, cls=12),
                {"classes": 10},
                "sample part/0007: label 12 is none of the 10 classes, 0 to 9; give data.classes=13",
            ),
            (sample(7, cls=-1), {}, "a label is -1"),
            (sample(7, cls="7" * 5000), {}, "a label is 777777"),
        ]
    ):
        path = write(tmp_path / f"{number}.tar", [*few, one])
        (line,) = problems(str(path), **options)
        assert str(path) in line or "a label is" in said
        assert said in line
    (line,) = problems(shards, label="txt")
    assert line.endswith("has no label (.txt), only .cls .png; give data.label=cls (and 59 more like it)")
    for text in ("{}", "[" * 9000, '{"y": "\\ud800"}', '{"y": true}', '{"y": 0.5}', "[1]"):
        (line,) = problems(str(write(tmp_path / "f.tar", [sample(1, json=text)])), label="json.y")
        assert "its .json is not JSON with a field y, a whole number or text" in line
    assert problems(str(write(tmp_path / "g.tar", few[:2]))) == ["data.train: 2 samples; give 4 or more"]
    path = write(tmp_path / "h.tar", [*few, sample(7, png=b"no image")])
    broken = load(str(path), test=shards, validation=shards).train
    with pytest.raises(UserError, match=r"/h\.tar: cannot read the image at byte \d+: it is not an image$"):
        broken.read(np.arange(7))


def test_what_is_wrong_with_a_shard_is_one_line_with_its_name(tmp_path, shards):
    whole = (tmp_path / "shards" / "train-000.tar").read_bytes()
    files = {
        "cut.tar": (whole[:-9000], "truncated header"),
        "open.tar": (whole.rstrip(b"\0") + bytes(-len(whole.rstrip(b"\0")) % 512), "no end at byte"),
        "small.tar": (gzip.compress(whole), "; give a whole tar that is not compressed"),
        "empty.tar": (b"", "empty file"),
        "bare.tar": (bytes(10240), "holds no samples (files named KEY.EXTENSION)"),
        "torn.tar": (whole[:5120] + b"\x07" * 512 + whole[5632:], "invalid header"),
    }
    for name, (content, expected) in files.items():
        (tmp_path / name).write_bytes(content)
        (line,) = problems(str(tmp_path / name))
        assert line.startswith(f"data=webdataset: {tmp_path / name}: ")
        assert expected in line
    for given, said in (
        (str(tmp_path / "none-*.tar"), "no shard matches"),
        (shards.replace("004", "006"), f"2 of 7 shards not there: {tmp_path}/shards/train-005.tar, "),
        ([shards, shards], "train-000.tar twice"),
        (None, "data.train is missing: give data.train=SHARDS"),
    ):
        (line,) = problems(given)
        assert line.startswith("data.train")
        assert said in line
