"""torchvision's sets, from archives in their true formats on disk. Only the published checksums are replaced."""

import hashlib
import pickle
import shutil
import struct
import tarfile
import urllib.request
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from threading import Thread
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from torchvision import datasets

from tests.configurations import refused
from tests.unit.data.conftest import assert_divided
from vitlab import config, data
from vitlab.data.images.library_sets import NAMES, downloading, list_parts

URLOPEN = urllib.request.urlopen
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", offline)


def offline(*_, **__):
    raise URLError("no network in tests")


def load(dataset, root, **changes):
    node = {"name": dataset, "kind": "torchvision", "dataset": dataset, "root": str(root), "download": False, **changes}
    return data.load(config.load("data", node))


def problems(*args, **kwargs):
    return refused(load, *args, **kwargs)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def pixels(split):
    return split.read(np.arange(len(split)))


def assert_read(images, labels, *splits):
    """Assert that the splits together have these images with their labels."""
    pairs = [(images, labels), *((pixels(split), split.labels) for split in splits)]
    assert_divided(*([(x.tolist(), int(y)) for x, y in zip(*pair, strict=True)] for pair in pairs))


def write_cifar(root, monkeypatch, constructor=datasets.CIFAR10, label_key="labels", classes=10):
    """The python archive: pickled batches of uint8 (N, 3072) in C, H, W order, and a meta file."""
    folder = root / constructor.base_folder
    folder.mkdir(parents=True)
    written = {}
    for listing in ("train_list", "test_list"):
        entries = []
        for name, _ in getattr(constructor, listing):
            images = rng.integers(0, 256, (classes * 2, 3072), dtype=np.uint8)
            labels = (np.arange(classes * 2) % classes).tolist()
            (folder / name).write_bytes(pickle.dumps({"data": images, label_key: labels}))
            entries.append([name, md5(folder / name)])
            written.setdefault(listing, []).append((images.reshape(-1, 3, 32, 32), labels))
        monkeypatch.setattr(constructor, listing, entries)
    meta = dict(constructor.meta)
    (folder / meta["filename"]).write_bytes(pickle.dumps({meta["key"]: [f"class{i}" for i in range(classes)]}))
    monkeypatch.setattr(constructor, "meta", {**meta, "md5": md5(folder / meta["filename"])})
    return {k: (np.concatenate([x for x, _ in v]), [y for _, ys in v for y in ys]) for k, v in written.items()}


@pytest.mark.parametrize(("name", "key", "classes"), [("CIFAR10", "labels", 10), ("CIFAR100", "fine_labels", 100)])
def test_cifar(tmp_path, monkeypatch, name, key, classes):
    written = write_cifar(tmp_path / "data", monkeypatch, getattr(datasets, name), key, classes)
    found = load(name, tmp_path / "data")
    assert (found.channels, found.image_size) == (3, (32, 32))
    assert found.classes == tuple(f"class{i}" for i in range(classes))
    assert_read(*written["train_list"], found.train, found.validation)
    assert_read(*written["test_list"], found.test)


def test_files_without_their_published_checksum_are_not_unpickled(tmp_path, monkeypatch):
    write_cifar(tmp_path, monkeypatch)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(print))
    monkeypatch.setattr("pickle.load", lambda *_, **__: pytest.fail("unpickled"))
    (line,) = problems("CIFAR10", tmp_path)
    assert line.startswith("data.dataset=CIFAR10: Dataset not found or corrupted; ")


def idx(array):
    """The IDX format of MNIST: two zero bytes, the type, the number of dimensions, each of them, the bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def test_emnist_takes_its_split_from_the_options(tmp_path):
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    written = {}
    for part in ("train", "test"):
        images, labels = rng.integers(0, 256, (52, 28, 28), dtype=np.uint8), (np.arange(52) % 26 + 1).astype(np.uint8)
        (raw / f"emnist-letters-{part}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"emnist-letters-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
        written[part] = images[:, None], labels - 1  # counted from 1 in the files
    found = load("EMNIST", tmp_path, options={"split": "letters"}, image_size=28)
    assert found.classes == tuple("abcdefghijklmnopqrstuvwxyz")
    assert_read(*written["train"], found.train, found.validation)
    assert_read(*written["test"], found.test)
    (line,) = problems("EMNIST", tmp_path)
    assert line.endswith("missing 1 required positional argument: 'split'")
    (line,) = problems("EMNIST", tmp_path, options={"split": "leters"})
    assert "Unknown value 'leters' for argument split" in line


def test_a_set_in_image_files(tmp_path):
    for part, n in (("train", 4), ("test", 3)):
        for k, label in enumerate(("AD", "AE")):
            folder = tmp_path / "country211" / part / label
            folder.mkdir(parents=True)
            for i in range(n):
                Image.new("RGB", (30, 20), (50 * k, i, 9)).save(folder / f"{i}.png")
    found = load("Country211", tmp_path, image_size=8)
    assert found.classes == ("AD", "AE")
    assert ([len(split) for split in found.splits.values()], found.channels) == ([6, 2, 6], 3)
    assert all((pixels(split)[:, 0, 0, 0] == split.labels * 50).all() for split in found.splits.values())
    (tmp_path / "country211" / "train" / "AD" / "0.png").write_bytes(b"broken")
    (line,) = problems("Country211", tmp_path, image_size=8)
    assert line.startswith(f"data.root={tmp_path}: cannot read image 0 of Country211: ")


def test_a_set_without_a_split_has_a_share_of_each_class_held_out(tmp_path):
    for k, label in enumerate(("Forest", "River", "Sea")):
        folder = tmp_path / "eurosat" / "2750" / label
        folder.mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (16, 16), (60 * k, 20 * i, 0)).save(folder / f"{i}.jpg", quality=100, subsampling=0)
    found = load("EuroSAT", tmp_path, image_size=16, test_share=0.3)
    assert np.bincount(found.test.labels).tolist() == [3, 3, 3]
    assert (np.bincount(found.train.labels) + np.bincount(found.validation.labels, minlength=3)).tolist() == [7, 7, 7]
    assert len({x.tobytes() for split in found.splits.values() for x in pixels(split)}) == 30


def test_an_unknown_set_is_answered_with_the_nearest():
    (line,) = problems("CIFAR1O", "data")
    assert line.startswith("data.dataset=CIFAR1O: unknown data set; did you mean 'CIFAR10'? choices: ")
    assert problems("CocoDetection", "data")[0].startswith("data.dataset=CocoDetection: unknown data set")


def pack(root, constructor, monkeypatch):
    """Replace the folder of a CIFAR set by its archive."""
    archive = root / constructor.filename
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / constructor.base_folder, constructor.base_folder)
    shutil.rmtree(root / constructor.base_folder)
    monkeypatch.setattr(constructor, "tgz_md5", md5(archive))
    return archive


def test_a_set_is_downloaded(tmp_path, monkeypatch):
    served = tmp_path / "served"
    written = write_cifar(served, monkeypatch)
    archive = pack(served, datasets.CIFAR10, monkeypatch)
    monkeypatch.setattr("urllib.request.urlopen", URLOPEN)
    with HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(served))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(datasets.CIFAR10, "url", f"http://127.0.0.1:{server.server_port}/{archive.name}")
        found = load("CIFAR10", tmp_path / "data", download=True)
        server.shutdown()
    assert_read(*written["train_list"], found.train, found.validation)


def test_an_archive_that_is_not_the_published_one_is_not_unpacked(tmp_path, monkeypatch):
    write_cifar(tmp_path, monkeypatch)
    pack(tmp_path, datasets.CIFAR10, monkeypatch).write_bytes(b"half of it")
    (line,) = problems("CIFAR10", tmp_path, download=True)
    assert "cannot download or unpack it: <urlopen error no network in tests>" in line
    assert not (tmp_path / datasets.CIFAR10.base_folder).exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_set_asks_torchvision_for_splits_that_it_has(tmp_path, name):
    """Each constructor gets past its own checks of the arguments, to the files that are not there."""
    if name == "PCAM":
        pytest.importorskip("h5py")
    constructor, options = getattr(datasets, name), {"split": "digits"} if name == "EMNIST" else {}
    for part in list_parts(constructor):
        with pytest.raises((RuntimeError, OSError), match=r"not found|not present|corrupted|No such file"):
            constructor(tmp_path, **options, **part, **downloading(constructor, False))
    (line,) = problems(name, tmp_path, options=options)
    assert f"data.root={tmp_path}" in line


def test_at_its_own_size_each_image_is_the_original():
    found = data.load(config.load("data", {"name": "digits", "image_size": 8}))
    original = np.rint(load_digits().images * 255 / 16)[:, None]
    assert_read(original, load_digits().target, *found.splits.values())
