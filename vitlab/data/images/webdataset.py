"""Tar shards in the webdataset library's form: sample KEY is the files KEY.jpg, KEY.cls, ... beside each other.

Shards are indexed once: each image's place, label and hash of its key. The index is a cache entry that every process
maps into its memory. Images are then read by number as in any other set: an epoch's order depends on the seed alone,
and a run can go on at any step, with any number of workers. An epoch reads a window of shards at a time.
"""

import hashlib
import os
import re
import shutil
import tarfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from glob import glob, has_magic
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from pydantic_core import from_json

from vitlab.config import UserError, extent, first_line, raise_all
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Show, Split
from vitlab.data.cache import SYSTEM, Entry, cache_root, cached, hash_bytes, stat_files
from vitlab.data.split import count_validation, divide, hash_key
from vitlab.files import read_utf8, reading, replacing
from vitlab.formatting import cut_lines, cut_names, plural

VERSION = 4  # of the decoding and of what is held out
SAMPLE = np.dtype(  # an image in the index: hash of its key, class, first byte, shard, bytes
    [("keys", "u8"), ("labels", "i8"), ("offsets", "i8"), ("shards", "i4"), ("sizes", "u4")]
)
LEAST = 4  # training samples, so that some may be held out
MOST = 1_000_000  # classes that numbers may mean
SHOWN = 8  # problems of all shards
SHOWN_MISSING = 3  # missing shards named in an error
AT_ONCE = 4  # downloads


def fingerprint(config: ImageDataConfig) -> list:
    shards = [[(path, stat_files(path)) for path in of_part] for of_part in list_shards(config).values()]
    return [VERSION, read_classes(config.classes), shards]


def contents(config: ImageDataConfig) -> str:
    """Hash the keys, labels, sizes and shard numbers of all images, and the shards' bytes, by SHA-256."""
    files, (_, found) = open_index(config)
    digest = hashlib.sha256(hash_bytes(config.name, [path for path, _ in files]).encode())
    for part, samples in found.items():
        digest.update(f"{part} {len(samples)}".encode())
        for name in ("keys", "labels", "sizes", "shards"):
            digest.update(np.ascontiguousarray(samples[name]).data)
    return digest.hexdigest()


def load(config: ImageDataConfig, progress: Show) -> ImageData:
    """Load the images of `data.train`, RGB, resized to cover `image_size`, cropped. Raises UserError, a line a fault.

    Without `data.validation` or `data.test`, holds out training samples by a hash of their keys.
    """
    files, (about, found) = open_index(config, progress)
    size, splits = extent(config.image_size), {}
    for part, samples in found.items():
        blocks = samples["shards"] if part == "train" else None
        splits[part] = Split(samples["labels"], ShardImages(files, samples, size, config.bits), blocks=blocks)
    return ImageData(config.name, tuple(about["classes"]), size, 3, **splits)


def open_index(config: ImageDataConfig, progress: Show = lambda *_: None) -> tuple[list[tuple[str, list]], Entry]:
    """Open the index: the shards as (path, stat_files), and an entry: classes, and each split's samples, arrays of
    SAMPLE, whose `shards` are places in the list. A split without shards takes a part of the training samples.
    """
    listed = fetch_shards(config, progress)
    for part in listed.keys() - {"train"}:
        if both := set.intersection(*(set(map(os.path.realpath, listed[p])) for p in (part, "train"))):
            line = f"data.{part}: {plural(len(both), 'shard')} of data.train too, such as {min(both)}"
            warnings.warn(f"{line}: trained on, not held out", stacklevel=1)
    settings = [read_classes(config.classes), config.image, config.label, config.test_share]
    files = [(part, path, stat_files(path)) for part, shards in listed.items() for path in shards]
    index = cached(config.name, lambda: (settings, files), lambda: index_shards(config, listed, progress))
    return [file for _, *file in files], index


def list_shards(config: ImageDataConfig) -> dict[str, dict[str, str | None]]:
    """List the shards of each given split as path -> the address that it is copied from, if any. Raises UserError.

    Braces are expanded, globs and folders listed; copies lie in the cache.
    """
    try:
        from webdataset.shardlists import expand_urls
    except ModuleNotFoundError:
        raise UserError("data=webdataset needs the library 'webdataset': pip install 'vitlab[webdataset]'") from None
    if config.train is None:
        raise UserError("data.train is missing: give data.train=SHARDS, such as 'shards/train-{000000..000099}.tar'")
    listed = {part: {} for part in ("train", "validation", "test") if vars(config)[part] is not None}
    for part, shards in listed.items():
        given = vars(config)[part]
        for pattern in given if given and isinstance(given, list) else [given]:
            with reading(f"data.{part}={pattern}", "mend the pattern"):
                sources = expand_urls(pattern)
            for source in sources:
                if address := source if re.match(r"(?!file:)[a-z0-9+]+:", source) else None:
                    digest = hashlib.sha256(source.encode(errors="surrogateescape")).hexdigest()[:16]
                    name = f"{digest}-{re.sub(r'[^A-Za-z0-9._-]', '_', source)[-60:]}"
                    found = [str(cache_root() / "shards" / name)]
                else:
                    path = os.path.abspath(os.path.expanduser(re.sub("^file:(//)?", "", source)))
                    path = os.path.join(path, "*.tar") if os.path.isdir(path) else path
                    found = sorted(glob(path)) if has_magic(path) and not os.path.exists(path) else [path]
                if not found:
                    raise UserError(f"data.{part}={pattern}: no shard matches")
                if twice := [path for path in found if path in shards]:
                    raise UserError(f"data.{part}={given}: names {address or twice[0]} twice")
                shards |= dict.fromkeys(found, address)
    return listed


def fetch_shards(config: ImageDataConfig, progress: Show) -> dict[str, dict[str, str | None]]:
    """Download shards at addresses and return `list_shards`. Raises UserError for missing ones."""

    def download(path: str) -> None:
        from webdataset.gopen import gopen

        try:
            with replacing(path) as file, gopen(shards[path]) as stream:
                shutil.copyfileobj(stream, file, 2**20)
        except Exception as error:  # the library's own, and those of every protocol
            code, advice = re.search(r"exit (\d+)", str(error)), "mend it, or give pipe:COMMAND, which writes the shard"
            why = f"the command ended with code {code[1]}" if code else first_line(error)
            raise UserError(f"data.{part}={shards[path]}: cannot download it: {why}; {advice}") from None

    listed = list_shards(config)
    for part, shards in listed.items():
        absent = [path for path in shards if not os.path.isfile(path)]
        if missing := [path for path in absent if not shards[path]]:
            counts = f"{len(missing)} of {plural(len(shards), 'shard')} not there"
            raise UserError(f"data.{part}={vars(config)[part]}: {counts}: {cut_names(missing, SHOWN_MISSING)}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done, _ in enumerate(pool.map(download, absent), 1):  # cancels the others at an error
                progress("downloading shards", done, len(absent))
    return listed


def index_shards(config: ImageDataConfig, listed: Mapping[str, Iterable[str]], progress: Show) -> Entry:
    """Index the shards of each split. Raises UserError, a line a problem."""
    texts, problems, splits, names = {}, {}, {}, []
    paths = [path for shards in listed.values() for path in shards]
    for part, shards in listed.items():
        scanned = []
        for path in shards:
            progress(f"indexing {part} shards", len(scanned), len(shards))
            scanned.append(scan_shard(config, path, texts, problems))
            scanned[-1]["shards"] = paths.index(path)
        splits[part] = np.concatenate(scanned)
        names = names or list(texts)  # of the training samples, which come first
    if not problems:
        classes, labels = read_classes(config.classes) or name_classes(names), []
        places = {name: place for place, name in enumerate(classes)}
        for text, (_, where) in texts.items():
            number = int(text) if re.fullmatch(r"\d{1,9}", text) else MOST
            labels.append(places.get(text, number))
            if labels[-1] >= len(classes):
                more = f"; give data.classes={number + 1}, or more" if number < MOST else ""
                choices = f"none of the {len(classes)} classes, {classes[0]} to {classes[-1]}"
                problems[f"label {text} is {choices}{more}"] = [where]
    lines = [
        f"data={config.name}: {first}: {problem}" + (f" (and {len(others):,} more like it)" if others else "")
        for problem, (first, *others) in problems.items()
    ]
    raise_all(cut_lines(lines, SHOWN))
    for samples in splits.values():
        samples["labels"] = np.array(labels)[samples["labels"]]
    train = splits.pop("train")
    if len(train) < LEAST:
        raise UserError(f"data.train: {plural(len(train), 'sample')}; give {LEAST} or more")
    for part, share in (("test", config.test_share), ("validation", None)):
        if part not in splits:
            count = count_validation(len(train)) if share is None else round(share * len(train))
            left, held = divide(train["labels"], count, train["keys"].tolist(), every_class=part == "test")
            splits[part], train = train[held], train[left]
    return {"classes": classes}, {"train": train, **splits}


def read_classes(given: Any) -> tuple[str, ...] | None:
    """Read `data.classes`: a number of classes, their names, or a file of names; None leaves it to the training labels.

    Raises UserError.
    """
    if given is None:
        return None
    names = given
    if isinstance(given, int) and given <= MOST:
        names = range(given)
    elif isinstance(given, str):
        names = read_utf8(Path(given).expanduser(), "data.classes").splitlines()
    if not isinstance(names, list | range) or len(names) < 2 or len(set(map(str, names))) < len(names):
        choices = f"how many (2 to {MOST:,}), a list of different names, or a file of them"
        raise UserError(f"data.classes={given}: give {choices}")
    return tuple(normalize("NFC", str(name)) for name in names)


def name_classes(texts: list[str]) -> tuple[str, ...]:
    """Name the classes of training labels: all numbers up to the largest, or the labels themselves."""
    if not all(re.fullmatch(r"-?\d+", text) for text in texts):
        return tuple(sorted(texts))
    numbers = sorted(int(text[:20]) for text in texts)  # longer ones are too large as well
    wrong = dict.fromkeys(number for number in (numbers[0], numbers[-1]) if not 0 <= number < MOST)
    raise_all(f"data.train: a label is {number}; numbers of classes are 0 to {MOST - 1:,}" for number in wrong)
    return tuple(map(str, range(numbers[-1] + 1)))


def scan_shard(
    config: ImageDataConfig, path: str, texts: dict[str, tuple[int, str]], problems: dict[str, list[str]]
) -> np.ndarray:
    """Scan a shard: return its samples, SAMPLE (n,), and add to `texts` and `problems`.

    texts: {a label's text: (number, first sample)}; samples hold the number. problems: {problem: its places}.
    """
    rows, key = [], None
    try:
        with tarfile.open(path, "r:") as archive:
            for key, files in list_samples(archive):
                where = f"{path}: sample {key}"
                try:
                    image = next((files[extension] for extension in config.image if extension in files), None)
                    if image is None:
                        raise ValueError(f"has no image (.{' .'.join(config.image)}), only .{' .'.join(files)}")
                    text = normalize("NFC", read_label(archive, files, config.label))
                except ValueError as error:
                    problems.setdefault(str(error), []).append(where)
                else:
                    label, _ = texts.setdefault(text, (len(texts), where))
                    rows.append((hash_key(key), label, image.offset_data, 0, image.size))
        if key is None:
            problems.setdefault("holds no samples (files named KEY.EXTENSION)", []).append(path)
    except Exception as error:  # tarfile raises half a dozen types for damaged headers
        why = f"cannot read it: {first_line(error)}; give a whole tar that is not compressed"
        problems.setdefault(why, []).append(path)
    return np.array(rows, dtype=SAMPLE)


def list_samples(archive: tarfile.TarFile) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Yield (key, {extension: file}) of neighbours that differ only in their extension, as WebDataset has it."""
    from webdataset.tariterators import base_plus_ext

    last, files = None, {}
    for member in iter(archive.next, None):
        archive.members = []  # else tarfile keeps all of them
        key, extension = base_plus_ext(member.name)
        hidden = member.name.startswith("__") or SYSTEM.fullmatch(os.path.basename(member.name))
        if key and member.isfile() and not hidden:
            if files and key != last:
                yield last, files
                files = {}
            last, files[extension.lower()] = key, member
    archive.fileobj.seek(archive.offset)
    if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # tarfile takes a damaged one for it
        raise ValueError(f"no end at byte {archive.offset}: damaged, cut off or still being written")
    if files:
        yield last, files


def read_label(archive: tarfile.TarFile, files: dict[str, tarfile.TarInfo], label: str) -> str:
    """Read a label as text: the file with that extension, or a field of its JSON (`json.FIELD`)."""
    extension, _, name = (label, "", "") if label in files else label.partition(".")
    if extension not in files:
        instead = "cls" if "cls" in files else "EXTENSION"
        raise ValueError(f"has no label (.{extension}), only .{' .'.join(files)}; give data.label={instead}")
    data = os.pread(archive.fileobj.fileno(), files[extension].size, files[extension].offset_data)
    text = data.decode(errors="replace").strip()
    try:
        value = from_json(text)[name] if name else text
    except (ValueError, KeyError, TypeError):
        value = None
    if type(value) not in (int, str):
        raise ValueError(f"its .{extension} is not JSON with a field {name}, a whole number or text")
    return str(value).strip()


@dataclass(frozen=True, eq=False)
class ShardImages:
    """A reader that decodes images by index: int64 (B,) -> uint8 (B, 3, *size). Files are open during a batch alone."""

    files: list[tuple[str, list]]
    samples: np.ndarray
    size: tuple[int, int]
    bits: int  # of white, in files of more than 8 bits of grey

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        from vitlab.data.images import decode

        samples, problems = self.samples[np.asarray(indices)], []
        images = np.empty((len(samples), 3, *self.size), dtype=np.uint8)
        order = np.lexsort((samples["offsets"], samples["shards"])).tolist()  # shard by shard, forwards in each
        for number, rows in groupby(order, key=samples["shards"].__getitem__):
            path, known = self.files[number]
            if stat_files(path) not in ([], known):
                raise UserError(f"{path}: has changed since it was indexed; run the command again")
            with reading(path, "restore the shard and run the command again"), open(path, "rb", buffering=0) as file:
                for row in rows:
                    offset = samples["offsets"][row]
                    data = BytesIO(os.pread(file.fileno(), samples["sizes"][row], offset))
                    try:
                        images[row] = decode.read(data, self.size, 3, self.bits)
                    except Exception as error:  # Pillow's readers raise a dozen types for broken files
                        problems.append(f"{path}: cannot read the image at byte {offset}: {decode.explain(error)}")
        raise_all(problems)
        return images
