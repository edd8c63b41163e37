"""The uint8 cache: built once, whole or not at all, by any number of processes."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from operator import ne

import numpy as np
import pytest

from tests.configurations import refused
from vitlab import config, data
from vitlab.config import UserError
from vitlab.data import cache as caching
from vitlab.data.base import module_of
from vitlab.data.images import drawn
from vitlab.data.opening import hash_data

MODULE = """
    import os
    import time
    from pathlib import Path
    import numpy as np
    from vitlab.config import UserError
    from vitlab.data.base import ImageData, Split

    CALLS = Path(__file__).with_name("calls")
    N, SIZE = {"train": 431, "test": 131}, (5, 7)

    class Read:
        def __init__(self, config, part):
            self.offset, self.pause = {"train": 0, "test": 1000}[part], config.pause
            self.broken = set(config.broken) if part == "train" else set()

        def __call__(self, indices):
            time.sleep(self.pause)
            bad = sorted(self.broken & set(indices.tolist()))
            if bad:
                raise UserError([f"cannot read {i}" for i in bad])
            rows = np.arange(3 * 5 * 7).reshape(3, 5, 7)
            return ((indices + self.offset)[:, None, None, None] * 17 + rows).astype(np.uint8)

    def load(config):
        with CALLS.open("a") as file:
            file.write(f"{os.getpid()}\\n")
        splits = {part: Split(np.arange(n) % 4, Read(config, part)) for part, n in N.items()}
        return ImageData(config.name, ("a", "b", "c", "d"), SIZE, 3, **splits)
"""


@pytest.fixture
def toy(write_set):
    return write_set(MODULE, pause=0.0, broken=[])


def direct(node):
    return data.load(config.load("data", {**config.resolved(node), "cache": "never"}))


def assert_same(found, expected):
    assert [len(split) for split in found.splits.values()] == [388, 43, 131]
    for a, b in zip(expected.splits.values(), found.splits.values(), strict=True):
        indices = np.random.default_rng(0).permutation(len(a))
        assert np.array_equal(a.read(indices), b.read(indices))
        assert np.array_equal(a.labels, b.labels)
        assert b.labels.dtype == np.int64


def test_the_cache_holds_what_the_set_reads(toy):
    node, steps = toy(), []
    expected, found = direct(node), data.load(node, lambda *step: steps.append(step))
    assert ("caching toy", 562, 562) in steps
    assert found.train.read is not expected.train.read
    assert_same(found, expected)
    assert (found.name, found.classes, found.image_size, found.channels) == ("toy", ("a", "b", "c", "d"), (5, 7), 3)
    assert len(toy.entries()) == 1
    calls = toy.calls()
    assert_same(data.load(node), expected)
    assert toy.calls() == calls


def test_what_changes_pixels_makes_another_entry_and_nothing_else_does(toy):
    data.load(toy())
    data.load(toy(mean=[0.1], std=[0.2], sizes=[4], augment={"flip": True, "shift": 2}, cache="always"))
    assert len(toy.entries()) == 1
    data.load(toy(pause=0.001))
    data.load(toy(image_size=9))
    assert len(toy.entries()) == 3


def test_a_change_of_the_users_source_or_files_is_seen(toy, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a").write_text("1")
    node = toy(root=str(folder))
    data.load(node)
    toy.source.write_text(toy.source.read_text() + "\n# changed\n")
    data.load(node)
    assert len(toy.entries()) == 2
    (folder / "a").write_text("22")
    data.load(node)
    assert len(toy.entries()) == 3
    data.load(node)
    assert len(toy.entries()) == 3


def test_auto_leaves_large_sets_alone(toy, monkeypatch):
    monkeypatch.setattr(caching, "LIMIT", 562 * 3 * 5 * 7 - 1)
    data.load(toy())
    assert toy.entries() == []
    data.load(toy(cache="always"))
    assert len(toy.entries()) == 1


def test_a_folder_that_cannot_be_written_is_a_warning(toy, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VITLAB_CACHE", str(tmp_path / "file" / "below"))
    with pytest.warns(UserWarning, match=r"cannot write the cache in .*VITLAB_CACHE"):
        found = data.load(toy())
    assert found.train.read(np.array([0, 1])).shape == (2, 3, 5, 7)


@pytest.mark.parametrize("harm", ["truncate", "garbage", "no labels"])
def test_a_damaged_entry_is_built_again(toy, harm):
    data.load(toy())
    (name,) = toy.entries()
    entry = toy.cache / name
    if harm == "truncate":
        os.truncate(entry / "train.npy", 500)
    elif harm == "garbage":
        (entry / "data.json").write_text("{")
    else:
        (entry / "test_labels.npy").unlink()
    assert_same(data.load(toy()), direct(toy()))
    assert toy.entries() == [name]


SCRIPT = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from vitlab import config, data
node = config.load("data", {"name": "toy", "kind": sys.argv[2], "pause": float(sys.argv[3]), "broken": []})
print("ready", flush=True)
print(int(data.load(node).train.read(np.arange(300)).astype(int).sum()))
"""


def start(toy, pause):
    kind = f"{toy.source.parent.name}.toy"
    command = [sys.executable, "-c", SCRIPT, str(toy.source.parent.parent), kind, str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_build_one_entry_once(toy):
    processes = [start(toy, 0.1) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert toy.calls() == 1
    assert len(toy.entries()) == 1


@pytest.mark.parametrize(
    "choice",
    [
        {"name": "imagetable", "root": "HERE/photos", "path": "HERE/rows.csv"},
        {"name": "csv", "path": "HERE/rows.csv"},
        {"name": "huggingface", "dataset": "csv", "files": ["HERE/rows.csv", "hf://datasets/a/b.csv"]},
        {"name": "huggingface", "dataset": "csv", "files": "https://host/rows.csv"},
    ],
)
def test_a_key_does_not_depend_on_where_the_command_runs(choice, tmp_path, monkeypatch):
    def key(folder):
        monkeypatch.chdir(folder)
        settings = config.load("data", json.loads(json.dumps(choice).replace("HERE", os.path.relpath(tmp_path))))
        return caching.key_of(settings, module_of(settings))[0]

    for name in ("label", "text", "file", "bpe"):
        (tmp_path / "other" / name).mkdir(parents=True)
    assert key(tmp_path) == key(tmp_path / "other")


def test_a_path_below_the_home_folder_is_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = "~/rows.csv", str(tmp_path / "rows.csv")
    short, long = (caching.named_files(config.load("data", {"name": "csv", "path": path})) for path in paths)
    assert short == long


def test_a_killed_build_leaves_no_entry_and_the_next_one_succeeds(toy, monkeypatch):
    process = start(toy, 5.0)
    deadline = time.monotonic() + 60
    while not any(name.endswith(".partial") for name in toy.entries()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    (partial,) = toy.entries()
    node = toy(pause=5.0)
    entry = caching.locate("toy", *caching.key_of(node, importlib.import_module(node.kind)))
    assert partial == f"{entry.name}.partial"
    assert caching.open_entry(entry) is None
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the same configuration, without its pauses
    assert_same(data.load(node), direct(node))
    assert toy.entries() == [entry.name]


def test_a_warm_load_imports_no_torch():
    node = config.load("data", {"name": "glyphs", "train_images": 36, "test_images": 36})
    assert np.array_equal(data.load(node).train.labels, drawn.load(node).train.labels)
    script = (
        "import sys; from vitlab import config, data; "
        "data.load(config.load('data', {'name': 'glyphs', 'train_images': 36, 'test_images': 36})); "
        "sys.exit(bool({'torch', 'altair', 'PIL'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_what_does_not_fit_the_images_is_reported_at_once():
    options = {"train_images": 36, "test_images": 36, "mean": [1, 2, 3], "std": [1, 2], "augment": {"shift": 24}}
    assert refused(data.load, config.load("data", {"name": "glyphs", **options})) == [
        "data.mean=[1.0, 2.0, 3.0]: give 1 value",
        "data.std=[1.0, 2.0]: give 1 value",
        "data.augment.shift=24: must be below the image's side of 24 pixels",
    ]


def test_a_kind_that_does_not_exist_is_the_users_mistake():
    with pytest.raises(UserError, match=r"kind=no\.such\.module"):
        data.load(config.load("data", {"name": "x", "kind": "no.such.module"}))
    with pytest.raises(UserError, match="is not a data set"):
        data.load(config.load("data", {"name": "x", "kind": "decode"}))


TEN, SIDES, HELD = range(10), ["train"] * 6 + ["test"] * 4, {"path": "./a", "test_path": "./b"}
PPM, TEXTS = [f"P3 1 1 255 {100 + i} 0 0\n" for i in TEN], [f"word {i},{'ab'[i % 2]}\n" for i in TEN]
PICTURES, PIXEL, WORD = "".join(f"{i}.ppm={PPM[i]}|" for i in TEN), ("103 0", "103 1"), ("word 3", "ward 3")
TABLE = "".join(f"{i}.ppm,{'ab'[i % 2]},{SIDES[i]}\n" for i in TEN)
TREE = "|".join(f"{SIDES[i]}/{'ab'[i % 2]}/{i}.ppm={PPM[i]}" for i in TEN)
SHARDS = "|".join(f"{SIDES[i]}/{i}.cls={i % 2}|{SIDES[i]}/{i}.ppm={PPM[i]}" for i in TEN)
ANSWERS = [[{"id": "q", "question": f"who is {i}?", "answers": [{"text": "word", "answer_start": 0}]}] for i in TEN]
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": TEXTS[i], "qas": ANSWERS[i]} for i in TEN]}]})
FOLDER, SMALL = {"root": ".", "path": "./t"}, {"train_images": 40, "test_images": 40}
TARS, HEAD, ROWS = {"train": "./train.tar", "test": "./test.tar", "image": ["ppm"]}, "text,label\n", "".join(TEXTS)
PARTS, CSV, LAST = ROWS.replace("\n", "\n\n"), {**HELD, "label": "label"}, "word 9,b\n"
TAGS = PARTS.replace("word ", "word").replace(",", " ")
IDENTITIES = [  # a set, its keys, its files as PATH=TEXT|PATH=TEXT, and changes of this text
    ("imagefolder", {"root": "."}, TREE, PIXEL, ("n/b/3", "n/a/3"), ("train/a/4", "test/a/4"), ("4.ppm", "44.ppm")),
    ("imagetable", FOLDER | {"split": "s"}, f"{PICTURES}t=file,label,s\n{TABLE}", PIXEL, ("3.ppm,b", "3.ppm,a")),
    ("imagetable", FOLDER | {"split": "s"}, f"{PICTURES}t=file,label,s\n{TABLE}", ("4.ppm,a,train", "4.ppm,a,test")),
    ("captions", FOLDER, f"{PICTURES}t=image,caption,s\n{TABLE}", PIXEL, ("3.ppm,b", "3.ppm,a")),
    ("webdataset", TARS, SHARDS, PIXEL, ("3.cls=1", "3.cls=0"), ("train/5.cls=1|train/5", "test/5.cls=1|test/5")),
    ("csv", CSV, f"a={HEAD}{ROWS}|b={HEAD}c,a\n", WORD, ("3,b", "3,a"), (f"{LAST}|b={HEAD}", f"|b={HEAD}{LAST}")),
    ("conll", HELD, f"a={TAGS}|b=c a\n", ("word3", "ward3"), ("3 b", "3 a"), ("word9 b\n\n|b=", "|b=word9 b\n\n")),
    ("textfile", HELD | {"split_on": "blank_line"}, f"a={PARTS}|b=c", WORD, (f"{LAST}\n|b=", f"|b={LAST}\n")),
    ("parallel", {"source": "./a", "target": "./b"}, f"a={ROWS}|b=" + "c\n" * 10, WORD),
    ("squad", {"path": "./a"}, f"a={SQUAD}", ("3,b", "3,c"), ("is 3?", "is 33?")),
    *(("glyphs", SMALL, ""), ("pointer", SMALL, ""), ("digits", {}, ""), ("numbers", {"count": 100}, "")),
]


@pytest.mark.parametrize(("name", "keys", "files", "changes"), [(*row[:3], row[3:]) for row in IDENTITIES])
def test_any_change_and_no_copy_changes_the_hash(name, keys, files, changes, tmp_path, monkeypatch):
    def find(folder=tmp_path / "here"):
        given = {key: str(folder / of) if str(of).startswith(".") else of for key, of in keys.items()}
        node = config.load("data", {"name": name, **given})
        return hash_data(node, data.load(node)), caching.key_of(node, module_of(node))

    def write(text):
        shutil.rmtree(tmp_path / "here", ignore_errors=True)
        for path, inside in (entry.split("=") for entry in text.split("|") if entry):
            (tmp_path / "here" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "here" / path).write_text(inside)
        for part in {*SIDES} if name == "webdataset" else ():
            shutil.make_archive(str(tmp_path / "here" / part), "tar", tmp_path / "here" / part)
        return find()

    for old, new in changes:
        assert files.count(old) == 1, old
        changed = write(files.replace(old, new))
        assert all(map(ne, changed, write(files))), (old, new)
    found, module = write(files), module_of(config.load("data", {"name": name, **keys}))
    if files:
        assert find(shutil.copytree(tmp_path / "here", tmp_path / "copy", copy_function=shutil.copyfile))[0] == found[0]
    for key in {"VERSION", "VERSIONS"} & vars(module).keys():
        old = vars(module)[key]
        with monkeypatch.context() as patch:
            patch.setattr(module, key, {of: old[of] + 1 for of in old} if isinstance(old, dict) else old + 1)
            assert all(map(ne, find(), found)), key
