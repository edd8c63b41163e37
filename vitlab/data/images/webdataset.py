"""Tar shards as the webdataset library writes them: sample KEY is the files KEY.jpg, KEY.cls, ... beside each other.

Shards are indexed once: where each image lies, its label and a hash of its key. The index is an entry of the cache that
every process maps into its memory. Images are then read by their number like those of any other set, so an epoch's
order depends on the seed alone and a run can go on at any step, with any number of workers. An epoch goes through a
window of shards at a time.
"""

import hashlib
import json
import os
import re
import shutil
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from glob import glob, has_magic
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np

from vitlab.config import UserError, extent, first_line, raise_all, resolved
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.base import ImageData, Split
from vitlab.data.cache import SYSTEM, Cache, Progress, cache_root, save_arrays
from vitlab.data.split import MAX_VAL_ITEMS, VAL_FRACTION, choose_count, hash_key
from vitlab.files import read_utf8, replacing
from vitlab.formatting import cut_lines, cut_names, plural

VERSION = 3  # of the decoding
LAYOUT = 3  # of an index's files
SPLITS = ("train", "validation", "test")
SAMPLE = np.dtype(  # of an index: a hash of the key, the class, where the image is: its file, its first byte, its bytes
    [("keys", "u8"), ("labels", "i8"), ("offsets", "i8"), ("shards", "i4"), ("sizes", "u4")]
)
LEAST = 4  # training samples, so that some may be held out
MOST = 1_000_000  # classes that numbers may mean
SHOWN = 8  # problems of all shards
SHOWN_MISSING = 3  # missing shards named in an error
AT_ONCE = 4  # downloads


class Shard(NamedTuple):
    """A tar file as it was when it was indexed: bytes, and the time of its last change in ns."""

    path: str
    size: int
    mtime: int


@dataclass(frozen=True, eq=False)
class Index:
    """splits: arrays of SAMPLE, whose `shards` are places in the tuple of that name.

    digest: SHA-256 of all keys, labels and sizes of images, and of what lies together.
    """

    classes: tuple[str, ...]
    shards: tuple[Shard, ...]
    splits: dict[str, np.ndarray]
    digest: str


def fingerprint(config: ImageDataConfig) -> list:
    index = ShardIndex(config, {part: stat_shards(list_sources(config, part)) for part in list_given(config)}, None)
    return [VERSION, index.settings(), index.fingerprint()]


def contents(config: ImageDataConfig) -> str:
    """Of the index: keys, labels and sizes of all images."""
    return open_index(config, None).digest


def load(config: ImageDataConfig, progress: Progress | None = None) -> ImageData:
    """The images of `data.train`, RGB, resized to cover `image_size` and cropped. Raises UserError, a line a fault.

    Where `data.validation` or `data.test` is not given, training samples are held out by a hash of their keys.
    """
    index, size = open_index(config, progress), extent(config.image_size)
    splits = {}
    for part, samples in index.splits.items():
        beside = {"keys": samples["keys"], "blocks": samples["shards"]} if part == "train" else {}
        splits[part] = Split(samples["labels"], ShardImages(index.shards, samples, size, config.bits), **beside)
    return ImageData(config.name, index.classes, size, 3, **splits)


def open_index(config: ImageDataConfig, progress: Progress | None) -> Index:
    shards = {part: fetch_shards(config, part, progress or (lambda *_: None)) for part in list_given(config)}
    for part in shards.keys() - {"train"}:
        if both := set.intersection(*({os.path.realpath(shard.path) for shard in shards[p]} for p in (part, "train"))):
            line = f"data.{part}: {plural(len(both), 'shard')} of data.train too, such as {min(both)}"
            warnings.warn(f"{line}: trained on, not held out", stacklevel=1)
    return ShardIndex(config, shards, progress).load()


def list_given(config: ImageDataConfig) -> list[str]:
    """The splits that have shards. Raises UserError."""
    try:
        import webdataset  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("data=webdataset needs the library 'webdataset': pip install 'vitlab[webdataset]'") from None
    if config.train is None:
        raise UserError("data.train is missing: give data.train=SHARDS, such as 'shards/train-{000000..000099}.tar'")
    return [part for part in SPLITS if vars(config)[part] is not None]


def list_sources(config: ImageDataConfig, key: str) -> list[str]:
    """The files and addresses that `data.<key>` names: braces expanded, globs and folders listed. Raises UserError."""
    from webdataset.shardlists import expand_urls

    patterns = vars(config)[key]
    sources: list[str] = []
    for pattern in patterns if isinstance(patterns, list) else [patterns]:
        if not isinstance(pattern, str) or not pattern:
            raise UserError(f"data.{key}={patterns}: give the name of a shard, a pattern, or a list of them, in quotes")
        try:
            expanded = expand_urls(pattern)
        except (AssertionError, ValueError) as error:
            raise UserError(f"data.{key}={pattern}: {first_line(error)}") from None
        for source in expanded:
            if is_address(source):
                sources.append(source)
                continue
            path = os.path.abspath(os.path.expanduser(source.removeprefix("file://").removeprefix("file:")))
            path = os.path.join(path, "*.tar") if os.path.isdir(path) else path
            matches = sorted(glob(path)) if has_magic(path) and not os.path.exists(path) else [path]
            if not matches:
                raise UserError(f"data.{key}={pattern}: no shard matches")
            sources += matches
    if len(set(sources)) < len(sources):
        raise UserError(f"data.{key}={patterns}: names {Counter(sources).most_common(1)[0][0]} twice")
    return sources


def is_address(source: str) -> bool:
    return bool(re.match(r"(?!file:)[a-z0-9+]+:", source))


def place_of(source: str) -> str:
    """The path of a shard; of an address, that of its copy in the cache."""
    if not is_address(source):
        return source
    digest = hashlib.sha256(source.encode(errors="surrogateescape")).hexdigest()[:16]
    return str(cache_root() / "shards" / f"{digest}-{re.sub(r'[^A-Za-z0-9._-]', '_', source)[-60:]}")


def stat_shards(sources: list[str]) -> list[Shard]:
    """Those that are here, as they are now."""
    paths = [path for path in map(place_of, sources) if os.path.isfile(path)]
    return [Shard(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths]


def fetch_shards(config: ImageDataConfig, key: str, progress: Progress) -> list[Shard]:
    """All of them, downloaded where they are addresses. Raises UserError for those that are not there."""
    sources = list_sources(config, key)
    absent = [source for source in sources if not os.path.isfile(place_of(source))]
    if missing := [source for source in absent if not is_address(source)]:
        counts = f"{len(missing)} of {plural(len(sources), 'shard')} not there"
        raise UserError(f"data.{key}={vars(config)[key]}: {counts}: {cut_names(missing, SHOWN_MISSING)}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done, problem in enumerate(pool.map(download, absent)):
            if problem:
                pool.shutdown(wait=False, cancel_futures=True)
                raise UserError(f"data.{key}={absent[done]}: {problem}")
            progress("downloading shards", done + 1, len(absent))
    return stat_shards(sources)


def download(source: str) -> str | None:
    """Copy a shard into the cache; what went wrong."""
    from webdataset.gopen import gopen

    try:
        with replacing(Path(place_of(source))) as file, gopen(source) as stream:
            shutil.copyfileobj(stream, file, 2**20)
    except Exception as error:  # the library's own, and those of every protocol
        code = re.search(r"exit (\d+) ", str(error))
        if isinstance(error, ValueError):  # no program is known that fetches it
            return "cannot be opened by webdataset; give pipe:COMMAND, which writes the shard to its output"
        return f"cannot download it: {f'the command ended with code {code[1]}' if code else first_line(error)}"
    return None


class ShardIndex(Cache):
    """`shards` are those of each split; of one that is not given a part of the training samples is taken."""

    kind = "shard index"
    without = "the shards will be indexed at each start"

    def __init__(self, config: ImageDataConfig, shards: dict[str, list[Shard]], progress: Progress | None):
        super().__init__(config, None, progress)
        self.shards, self.classes = shards, read_classes(config.classes)

    def settings(self) -> dict[str, Any]:
        related = {key: resolved(self.config)[key] for key in ("image", "label", "test_share")}
        return {"layout": LAYOUT, "classes": self.classes, **related}

    def fingerprint(self) -> Any:
        return self.shards

    def read(self) -> Index:
        scan, splits, names = Scan(tuple(self.config.image), self.config.label), {}, []
        for part, shards in self.shards.items():
            first, scanned = sum(len(self.shards[earlier]) for earlier in splits), []
            for number, shard in enumerate(shards):
                self.progress(f"indexing {part} shards", number, len(shards))
                scanned.append(scan.scan_shard(shard.path, first + number))
            self.progress(f"indexing {part} shards", len(shards), len(shards))
            splits[part] = np.concatenate(scanned)
            names = names or list(scan.texts)  # of the training samples, which come first
        problems = [
            f"{first}: {problem}" + (f" (and {count - 1:,} more like it)" if count > 1 else "")
            for problem, (first, count) in scan.problems.items()
        ]
        if not problems:
            classes = self.classes or name_classes(names)
            places = {name: place for place, name in enumerate(classes)}
            numbers = {text: int(text) for text in scan.texts if text.isdecimal() and int(text) < len(classes)}
            labels = {text: places.get(text, numbers.get(text)) for text in scan.texts}
            for text, (_, path, key) in scan.texts.items():
                if labels[text] is None:
                    choices = f"none of the {len(classes)} classes, {classes[0]} to {classes[-1]}"
                    more = f"; give data.classes={int(text) + 1}, or more" if text.isdecimal() else ""
                    problems.append(f"{path}: sample {key}: label {text} is {choices}{more}")
        if problems:
            raise UserError(cut_lines([f"data={self.config.name}: {line}" for line in problems], SHOWN))
        shards = tuple(shard for part in self.shards.values() for shard in part)
        for part, samples in splits.items():
            samples["labels"] = np.array([*labels.values()])[samples["labels"]]
            refuse_doubles(part, samples, shards)
        splits = carve(splits, self.config.test_share)
        digest = hashlib.sha256()
        for part, samples in splits.items():
            digest.update(f"{part} {len(samples)}".encode())
            for name in ("keys", "labels", "sizes", "shards"):
                digest.update(np.ascontiguousarray(samples[name]).data)
        return Index(classes, shards, splits, digest.hexdigest())

    def write(self, index: Index, entry: Path) -> dict[str, Any]:
        save_arrays(f"{entry}/", index.splits)
        return {**vars(index), "splits": list(index.splits)}

    def read_entry(self, entry: Path, about: dict[str, Any]) -> Index:
        files = {part: entry / f"{part}.npy" for part in about["splits"]}
        splits = {part: np.asarray(np.load(file, mmap_mode="r", allow_pickle=False)) for part, file in files.items()}
        shards = tuple(Shard(*shard) for shard in about["shards"])
        return Index(tuple(about["classes"]), shards, splits, about["digest"])


def refuse_doubles(part: str, samples: np.ndarray, shards: tuple[Shard, ...]) -> None:
    """Raise UserError where two samples of a split have one key."""
    ordered = np.sort(samples["keys"])
    doubled = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(doubled):
        first, second, *_ = (shards[k].path for k in samples["shards"][samples["keys"] == doubled[0]])
        key = next(key for key, _ in list_samples(first) if hash_key(key) == doubled[0])
        where = f"twice in {first}" if first == second else f"in {first} and in {second}"
        several = f" (and {len(doubled) - 1} other keys)" if len(doubled) > 1 else ""
        raise UserError(f"data.{part}: sample {key} is {where}{several}; give each sample a key of its own")


def carve(splits: dict[str, np.ndarray], test_share: float) -> dict[str, np.ndarray]:
    """With the test and validation samples that are not given, chosen among the training samples by their keys."""
    train = splits.pop("train")
    if len(train) < LEAST:
        raise UserError(f"data.train: {plural(len(train), 'sample')}; give {LEAST} or more")
    for part, share, most in (("test", test_share, len(train)), ("validation", VAL_FRACTION, MAX_VAL_ITEMS)):
        if part not in splits:
            chosen = choose_count(train["keys"], min(max(1, round(share * len(train))), most), part)
            splits[part], train = train[chosen], train[~chosen]
    return {"train": train, **splits}


def read_classes(given: Any) -> tuple[str, ...] | None:
    """What `data.classes` says: their number, their names, or a file of names; None where the training labels say.

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
    """The classes that training labels mean: numbers up to the largest, or the labels themselves."""
    if not all(re.fullmatch(r"-?\d+", text) for text in texts):
        return tuple(sorted(texts))
    numbers = [int(text) for text in texts]
    for number in (min(numbers), max(numbers)):
        if not 0 <= number < MOST:
            raise UserError(f"data.train: a label is {number}; numbers of classes are 0 to {MOST - 1:,}")
    return tuple(map(str, range(max(numbers) + 1)))


class Scan:
    """Lists the samples of shards; `images` are the extensions that an image may have, `label` as in `read_label`.

    texts: each label's text -> its number, and the path and the key of the first sample that has it.
    problems: what is wrong -> where first, and of how many samples.
    """

    def __init__(self, images: tuple[str, ...], label: str):
        self.images, self.label = images, label
        self.texts: dict[str, tuple[int, str, str]] = {}
        self.problems: dict[str, tuple[str, int]] = {}

    def note(self, problem: str, where: str) -> None:
        first, count = self.problems.get(problem, (where, 0))
        self.problems[problem] = first, count + 1

    def scan_shard(self, path: str, number: int) -> np.ndarray:
        """The samples of a shard, SAMPLE (n,), with the numbers of texts as labels."""
        rows, key = [], None
        try:
            with open(path, "rb", buffering=0) as file:
                for key, files in list_samples(path):
                    try:
                        image = next((files[extension] for extension in self.images if extension in files), None)
                        if image is None:
                            raise ValueError(f"has no image (.{' .'.join(self.images)}), only {list_extensions(files)}")
                        text = normalize("NFC", read_label(file.fileno(), files, self.label))
                    except ValueError as error:
                        self.note(str(error), f"{path}: sample {key}")
                    else:
                        label, *_ = self.texts.setdefault(text, (len(self.texts), path, key))
                        rows.append((hash_key(key), label, image[0], number, image[1]))
            if key is None:
                self.note("holds no samples (files named KEY.EXTENSION)", path)
        except ValueError as error:
            self.note(str(error), path)
        except OSError as error:
            self.note(f"cannot be read: {error.strerror or first_line(error)}", path)
        return np.array(rows, dtype=SAMPLE)


def list_samples(path: str) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """(key, {extension: (offset, bytes)}) of neighbours that differ only in their extension, as WebDataset has it."""
    from webdataset.tariterators import base_plus_ext

    named = (member for member in list_members(path) if not member[0].startswith("__"))
    members = ((*base_plus_ext(name), *at) for name, *at in named if not SYSTEM.fullmatch(os.path.basename(name)))
    for key, files in groupby(members, key=itemgetter(0)):
        if key is not None:
            yield key, {extension.lower(): (offset, size) for _, extension, offset, size in files}


def list_members(path: str) -> Iterator[tuple[str, int, int]]:
    """(name, offset of the contents, bytes) of each plain file in a tar.

    Raises ValueError for a tar that is compressed, damaged or cut off.
    """
    with open(path, "rb") as file:
        try:
            archive = tarfile.TarFile(fileobj=file)
        except tarfile.ReadError:
            with suppress(tarfile.ReadError), tarfile.open(path):
                raise ValueError("is compressed, so no image can be read by its place; decompress it") from None
            raise ValueError("is not a tar") from None
        with suppress(tarfile.ReadError):  # of a member that is cut off
            for member in archive:
                if member.isfile():
                    yield member.name, member.offset_data, member.size
                archive.members = []  # else tarfile keeps all of them
            file.seek(archive.offset)
            if file.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE):
                return
        # tarfile takes a damaged header for the end
        raise ValueError(f"is damaged, cut off or still being written at byte {archive.offset}")


def read_label(file: int, files: dict[str, tuple[int, int]], label: str) -> str:
    """A label as text: of the file with that extension, or of a field of its JSON (`json.FIELD`)."""
    extension, _, name = (label, "", "") if label in files else label.partition(".")
    if extension not in files:
        instead = "cls" if "cls" in files else "EXTENSION"
        raise ValueError(f"has no label (.{extension}), only {list_extensions(files)}; give data.label={instead}")
    offset, size = files[extension]
    text = os.pread(file, size, offset).decode(errors="replace").strip()
    if not name:
        return text
    try:
        value = json.loads(text)[name]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"its .{extension} is not JSON with a field {name}") from None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"its label, {name} of .{extension}, is neither a whole number nor text")
    return str(value).strip()


def list_extensions(files: dict[str, tuple[int, int]]) -> str:
    return " ".join(f".{extension}" for extension in files)


@dataclass(frozen=True, eq=False)
class ShardImages:
    """Decodes images by index: int64 (B,) -> uint8 (B, 3, *size). Files are open during a batch alone."""

    shards: tuple[Shard, ...]
    samples: np.ndarray
    size: tuple[int, int]
    bits: int = 16  # of white, in files of more than 8 bits of grey

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        from vitlab.data.images import decode

        images = np.empty((len(indices), 3, *self.size), dtype=np.uint8)
        problems = []
        for row, path, offset, data in self.read_files(np.asarray(indices)):
            try:
                images[row] = decode.read(BytesIO(data), self.size, 3, self.bits)
            except Exception as error:  # Pillow's readers raise a dozen types for broken files
                problems.append(f"{path}: cannot read the image at byte {offset}: {decode.explain(error)}")
        raise_all(problems)
        return images

    def read_files(self, indices: np.ndarray) -> Iterator[tuple[int, str, int, bytes]]:
        """(place in `indices`, path of the shard, offset, the image's file), shard by shard and forwards in each."""
        samples = self.samples[indices]
        order = np.lexsort((samples["offsets"], samples["shards"]))
        for number, rows in groupby(order.tolist(), key=lambda row: samples["shards"][row]):
            shard = self.shards[number]
            try:
                if stat_shards([shard.path]) not in ([], [shard]):
                    raise UserError(f"{shard.path}: has changed since it was indexed; run the command again")
                with open(shard.path, "rb", buffering=0) as file:
                    for row in rows:
                        offset, size = int(samples["offsets"][row]), int(samples["sizes"][row])
                        yield row, shard.path, offset, os.pread(file.fileno(), size, offset)
            except OSError as error:
                reason = "the file is missing" if isinstance(error, FileNotFoundError) else first_line(error)
                raise UserError(f"{shard.path}: {reason}; restore the shard and run the command again") from None
