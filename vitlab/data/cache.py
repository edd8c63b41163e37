"""Cache data sets on disk: one of any number of processes builds an entry, whole or not at all, and all open it.

Each entry is a folder <name>-<fingerprint>/ below $VITLAB_CACHE or ~/.cache/vitlab/. The fingerprint covers everything
its content depends on, so an entry is never outdated, only unused. Deleting entries is safe.
"""

import hashlib
import inspect
import json
import math
import os
import re
import shutil
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from vitlab.config import UserError, raise_all, resolved
from vitlab.config.groups import affecting, select
from vitlab.config.schema.data import DataConfig, FolderConfig
from vitlab.config.schema.fields import CACHE
from vitlab.data.base import BESIDE, ImageData, Show, Split, take_items
from vitlab.files import reading, replacing, write_json
from vitlab.formatting import cut_lines, cut_names, duration, plural, whole
from vitlab.hardware import count_cores

SILENT, BETWEEN = 3.0, 20.0  # seconds: before the first line of progress in a log, and from line to line
PATIENCE = 3.0  # seconds of waiting for another process before a line says so
LIMIT = 2_000_000_000  # most bytes of all splits together that `auto` caches
LAYOUT = 5  # version of an entry's files
CHUNK = 128  # images decoded at a time by one thread
BATCH = 32  # pictures whose features are computed at a time
EVERY = 20.0  # seconds; a crash loses at most so much computing of features
LISTED = 5  # names in an error about undecodable images, or in a warning about broken links
SYSTEM = re.compile(  # hidden files, and files that macOS, Windows, Linux, Python and network storage add
    r"\..*|__macosx|\$recycle\.bin|system volume information|found\.\d+|lost\+found|__pycache__"
    r"|@(eadir|tmp|recycle|recently-snapshot)|#(recycle|snapshot)",
    re.IGNORECASE | re.DOTALL,
)

Entry = tuple[dict[str, Any], dict[str, Any]]  # JSON, and arrays by their names


# -- files: their names, sizes and modification times


def stat_files(
    path: str | Path, extensions: tuple[str, ...] = (), broken: list[str] | None = None
) -> list[tuple[str, int, int]]:
    """List (path below `path`, bytes, modification time in ns) of a file, or of all files in a folder, sorted.

    With `extensions` (lower case, with the dot) lists only such files. Returns [] if there are none.
    """
    path = os.fspath(path)
    if os.path.isfile(path):
        status = os.stat(path)
        return [(os.path.basename(path), status.st_size, status.st_mtime_ns)]
    prefix = len(path.rstrip(os.sep)) + 1
    entries = walk_files(path, extensions, broken)
    return sorted((entry.path[prefix:], entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)


def walk_files(
    folder: str | Path, extensions: tuple[str, ...] = (), broken: list[str] | None = None
) -> Iterator[os.DirEntry]:
    """Yield all files below a folder, unordered, following links; leave out SYSTEM files.

    Skips broken and circular links, and adds the paths of broken links to `broken`.
    """
    above = (os.stat(parent) for parent in Path(os.path.realpath(folder)).parents if parent.exists())
    pending, entered = [os.fspath(folder)], {(status.st_dev, status.st_ino) for status in above}
    while pending:
        current = pending.pop()
        try:
            status = os.stat(current)
            with os.scandir(current) as entries:
                shown = sorted((e for e in entries if not SYSTEM.fullmatch(e.name)), key=lambda e: e.name, reverse=True)
        except OSError:  # gone, not a folder, not readable, or a link to itself
            continue
        if (status.st_dev, status.st_ino) in entered:  # by a link back to a folder above
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in shown:
            has_extension = not extensions or entry.name.lower().endswith(extensions)
            if is_folder(entry):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False) or os.path.isfile(entry.path):
                if has_extension:
                    yield entry
            elif broken is not None and (has_extension or "." not in entry.name):  # or a pipe, or a device
                broken.append(entry.path)


def is_folder(entry: os.DirEntry) -> bool:
    with suppress(OSError):  # a link to itself
        return entry.is_dir()
    return False


def warn_of_broken_links(source: str, folder: str | Path, broken: list[str]) -> None:
    """Warn once of broken links, naming the first; `source` begins the warning, such as `data.root=photos`."""
    if broken:
        names = cut_names([os.path.relpath(path, folder) for path in sorted(broken)], LISTED)
        warnings.warn(f"{source}: skipped {plural(len(broken), 'broken link')}: {names}", stacklevel=1)


def named_files(config: DataConfig) -> dict[str, str]:
    """Return the files and folders named in a configuration, by key.

    The dataclass says which keys are paths. For a user's own module without one, each text that names an existing file
    or folder counts. A shipped set's other keys, such as the column `label`, never count, whatever folders exist.
    """
    paths = {}
    for field in fields(config):
        value = vars(config)[field.name]
        of_hub = (config.kind, field.name) == ("huggingface", "dataset")
        is_guessed = of_hub or ("." in config.kind and not field.metadata)
        if isinstance(value, str) and "://" not in value:
            path = os.path.expanduser(value)
            if field.metadata.get("path") or (is_guessed and os.path.exists(path)):
                paths[field.name] = path
    return paths


# -- entries


def cache_root() -> Path:
    return Path(os.environ.get("VITLAB_CACHE") or "~/.cache/vitlab").expanduser().absolute()


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock at `path` while this process does `what`. Waits without a limit; prints a line after PATIENCE.

    Large data may take an hour, and a process that ends frees its lock.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        print(f"vitlab: waiting for another process, which is {what}; if it hangs, end it", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def key_of(config: DataConfig, module: Any) -> tuple[Any, Any]:
    """Return an entry's key as JSON: (its settings, the module's fingerprint or else its source and named files).

    Paths are absolute, because relative paths depend on the working folder.
    """
    settings, named = select(resolved(config), type(config), affecting(CACHE)), named_files(config)
    for field in fields(config):
        if field.metadata.get("path") and isinstance(value := settings.get(field.name), list):
            here = [one if "://" in str(one) else os.path.abspath(os.path.expanduser(str(one))) for one in value]
            settings[field.name] = here
    settings |= {key: os.path.abspath(path) for key, path in named.items()}
    if of := getattr(module, "fingerprint", None):
        return settings, of(config)
    source = Path(module.__file__).read_bytes() if module.__file__ else b""
    return settings, {"source": hashlib.sha256(source).hexdigest(), "files": list(map(stat_files, named.values()))}


def locate(name: str, *key: Any) -> Path:
    digest = hashlib.sha256(json.dumps([LAYOUT, *key], sort_keys=True).encode()).hexdigest()[:16]
    return cache_root() / (re.sub(r"[^\w.-]", "_", name) + f"-{digest}")


def cached(
    name: str, key: Callable[[], tuple[Any, Any]], build: Callable[[], Entry], progress: Show = lambda *_: None
) -> Entry:
    """Open a cached entry: (JSON, arrays by name). Builds a missing entry first, in one process at a time.

    key(): as `key_of`, recomputed after build(), which may download files. For images build() returns a Split, and the
    opened entry holds a Mapped in its place; the JSON has `channels` and `image_size`. Returns the built entry if it
    cannot be written (with a warning), or if its JSON has `keep` False.
    """
    if entry := open_entry(locate(name, *key())):
        return entry
    with ExitStack() as stack:
        try:
            cache_root().mkdir(parents=True, exist_ok=True)
            stack.enter_context(alone(Path(f"{locate(name, key()[0])}.lock"), f"preparing data={name}"))
        except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
            warn_of_no_cache(f"data={name}", error)
            return build()
        if entry := open_entry(locate(name, *key())):  # another process was first
            return entry
        about, arrays = build()
        if not about.get("keep", True):
            return about, arrays
        path = locate(name, *key())
        begun = Path(f"{path}.partial")  # ours alone, under the lock
        try:
            shutil.rmtree(begun, ignore_errors=True)
            write_arrays(name, about, arrays, begun, progress)
            images = [key for key, values in arrays.items() if isinstance(values, Split)]
            write_json(begun / "data.json", {**about, "arrays": list(arrays), "images": images})
            shutil.rmtree(path, ignore_errors=True)  # a damaged one
            os.replace(begun, path)
        except OSError as error:
            warn_of_no_cache(f"data={name}", error)
        finally:
            shutil.rmtree(begun, ignore_errors=True)
        return open_entry(path) or (about, arrays)


def open_entry(path: Path) -> Entry | None:
    """Open an entry; return None if it is missing or damaged."""
    try:
        about = json.loads((path / "data.json").read_text())
        readers = {name: Mapped(path / f"{name}.npy") for name in about["arrays"]}
        return about, {name: read if name in about["images"] else read.array for name, read in readers.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def warn_of_no_cache(what: str, error: Exception) -> None:
    again = f"{what} will be prepared again each time, which is slower; set VITLAB_CACHE to a folder that can be"
    warnings.warn(f"cannot write the cache in {cache_root()} ({error}): {again} written", stacklevel=4)


def write_lines(write: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)) -> Show:
    """Make a progress function that writes a line a few times a minute, once a task takes longer than a few seconds."""
    begun: dict[str, tuple[float, int]] = {}
    due = time.monotonic() + SILENT

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal due
        now = time.monotonic()
        first, before = begun.setdefault(what, (now, done))
        if now < due or done == total:
            return
        due = now + BETWEEN
        pace = (now - first) / (done - before) if done > before else None
        left = f", {duration(pace * (total - done))} left" if total and pace is not None else ""
        write(f"{what}: {whole(done)} of {whole(total)}{left}" if total else what)

    return progress


def hash_bytes(name: str, paths: Sequence[str]) -> str:
    """Hash the bytes of files, not their names. The cache keeps the hash until a size or modification time changes."""

    def digest(path: str) -> bytes:
        with reading(f"data={name}: {path}", "correct the file or its permissions"), open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    def build() -> Entry:
        show, joined = write_lines(), hashlib.sha256()
        with ThreadPoolExecutor(count_cores()) as pool:
            for done, part in enumerate(pool.map(digest, paths), 1):
                joined.update(part)
                show(f"hashing {name}", done, len(paths))
        return {"sha256": joined.hexdigest()}, {}

    stamps = [(os.path.abspath(path), stat_files(path)) for path in paths]
    return cached(name, lambda: ("bytes", stamps), build)[0]["sha256"]


class Mapped:
    """A reader of images in one .npy file; each process maps the file into its memory."""

    def __init__(self, path: Path):
        self.path = path
        self.array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))  # np.memmap takes longer to slice

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        return self.array[np.asarray(indices)]  # indexing by an array copies

    def __reduce__(self):
        return Mapped, (self.path,)


def write_arrays(name: str, about: dict[str, Any], arrays: dict[str, Any], folder: Path, progress: Show) -> None:
    """Write each array to a .npy file. Raises UserError for images that cannot be read, and OSError."""
    total, done, problems = sum(len(values) for values in arrays.values() if isinstance(values, Split)), 0, []
    for key, values in arrays.items():
        with replacing(folder / f"{key}.npy") as file:
            if not isinstance(values, Split):
                np.save(file, values, allow_pickle=False)
                continue
            shape = about["channels"], *about["image_size"]
            header = {"descr": "|u1", "fortran_order": False, "shape": (len(values), *shape)}
            np.lib.format.write_array_header_1_0(file, header)
            # written, not mapped: a full disk then raises an error instead of ending the process
            for count, future in decode_ahead(values):
                progress(f"caching {name}", done, total)
                done += count
                try:
                    images = future.result()
                except UserError as error:
                    problems += error.problems
                    continue
                if images.shape != (count, *shape) or images.dtype != np.uint8:
                    wrong = f"{images.dtype} {images.shape}, not uint8 {(count, *shape)}"
                    raise UserError(f"data={name}: its {key} images are read as {wrong}")
                file.write(np.ascontiguousarray(images).data)
    progress(f"caching {name}", done, total)
    raise_all(cut_lines(problems, LISTED, " images that cannot be read"))


def decode_ahead(split: Split, chunk: int = CHUNK) -> Iterator[tuple[int, Future]]:
    """Yield (number of images, future of their pixels) in order; all cores decode a little ahead of the writer."""
    cores, ahead = count_cores(), deque()
    with ThreadPoolExecutor(cores) as pool:
        for start in range(0, len(split), chunk):
            indices = np.arange(start, min(start + chunk, len(split)))
            ahead.append((len(indices), pool.submit(split.read, indices)))
            if len(ahead) > 2 * cores:
                yield ahead.popleft()
        yield from ahead


def find_unreadable(name: str, splits: Mapping[str, Split], progress: Show) -> Entry:
    """Find the rows of each split's images that cannot be decoded."""
    found: dict[str, list[int]] = {part: [] for part in splits}
    for part, split in splits.items():
        for row, (_, future) in enumerate(decode_ahead(split, 1)):
            found[part] += [row] * isinstance(future.exception(), UserError)
            progress(f"reading {name}, {part}", row + 1, len(split))
    return found, {}


def load_images(config: DataConfig, module: Any, progress: Show) -> ImageData:
    """Load images through the cache, which decodes each split once into a .npy file, unless `auto` finds too many."""
    takes_progress = "progress" in inspect.signature(module.load).parameters

    def build() -> Entry:
        data, arrays = module.load(config, **({"progress": progress} if takes_progress else {})), {}
        left_out, unreadable = list[str](), dict[str, Any]()
        if vars(config).get("skip_unreadable"):  # an entry of its own: pixels beyond LIMIT are decoded at every step
            find = partial(find_unreadable, config.name, data.splits, progress)
            unreadable, _ = find() if config.cache == "never" else cached(f"{config.name}-unreadable", key, find)
        for part, split in data.splits.items():
            if gone := unreadable.get(part):
                fine = np.setdiff1d(np.arange(len(split)), gone)
                left_out += split.names[gone].tolist()
                if lost := {*split.labels} - {*split.labels[fine]}:
                    name = (*data.classes, "any class")[min(lost)]
                    raise UserError(f"data.skip_unreadable=true: no {part} picture of {name} can be read; add some")
                split = take_items(split, fine)
            own = {"labels": np.asarray(split.labels, dtype=np.int64), **{name: vars(split)[name] for name in BESIDE}}
            arrays |= {part: split, **{f"{part}_{name}": own[name] for name in own if own[name] is not None}}
        about = {"classes": data.classes, "image_size": data.image_size, "channels": data.channels}
        size = sum(map(len, data.splits.values())) * data.channels * math.prod(data.image_size)
        return {**about, "left_out": left_out, "keep": config.cache != "auto" or size <= LIMIT}, arrays

    # a folder's key is the listing before its pictures are decoded; others may change by downloads
    key = (cache if isinstance(config, FolderConfig) else lambda of: of)(partial(key_of, config, module))
    about, arrays = build() if config.cache == "never" else cached(config.name, key, build, progress)
    if names := about.get("left_out"):
        what = f"left out {plural(len(names), 'picture')} that cannot be read"
        warnings.warn(f"data.skip_unreadable=true: {what}: {cut_names(names, LISTED)}", stacklevel=1)
    splits = {}
    for part in {"train", "validation", "test"} & arrays.keys():
        own = {name: arrays.get(f"{part}_{name}") for name in ("labels", *BESIDE)}
        is_kept = isinstance(arrays[part], Mapped)
        splits[part] = Split(read=arrays[part] if is_kept else arrays[part].read, **own, decoded=is_kept)
    return ImageData(config.name, tuple(about["classes"]), tuple(about["image_size"]), about["channels"], **splits)


# -- features of pictures, by each picture's hash: sets with common pictures share their features


def keep_features(
    path: Path, split: Split, compute: Callable[..., Any], progress: Callable[..., None], digests: Sequence[str] = ()
) -> np.ndarray:
    """Return features (N, ...) of a split's N pictures: read stored features from a file, compute and store the others.

    compute: at most BATCH pictures uint8 (B, C, H, W) -> features float32 (B, ...), in one process at a time.
    progress(done, total): called after each batch. digests: hashes of the pictures; default: hashes of their pixels.
    """
    batches = () if digests else (np.ascontiguousarray(future.result()) for _, future in decode_ahead(split))
    digests = digests or [hashlib.blake2b(item, digest_size=16).hexdigest() for batch in batches for item in batch]
    kept = read_kept(path)
    with ExitStack() as stack:
        if not kept.keys() >= set(digests):
            with suppress(OSError, NotImplementedError):  # as in `cached`; write_kept warns
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(alone(path.with_suffix(".lock"), f"computing {path.stem}"))
                kept = read_kept(path)  # another process may have been first
        rows = {digest: row for row, digest in enumerate(digests) if digest not in kept}
        lacking, done, due = list(rows), 0, time.monotonic() + EVERY
        for count, future in decode_ahead(take_items(split, np.array([*rows.values()], dtype=np.int64)), BATCH):
            kept |= zip(lacking[done : done + count], compute(future.result()), strict=True)
            done += count
            progress(done, len(lacking))
            if done == len(lacking) or time.monotonic() > due:
                due = time.monotonic() + EVERY
                write_kept(path, kept)
    return np.stack([kept[digest] for digest in digests])


def read_kept(path: Path) -> dict[str, np.ndarray]:
    """Read the stored features by digest; {} from a missing or damaged file."""
    try:
        arrays = load_file(path)
        return dict(zip(map(bytes.hex, map(bytes, arrays["digests"])), arrays["features"], strict=True))
    except (SafetensorError, KeyError, ValueError, OSError):
        return {}


def write_kept(path: Path, kept: dict[str, np.ndarray]) -> None:
    """Write the features; warn if they cannot be written."""
    digests = np.array([list(bytes.fromhex(digest)) for digest in kept], dtype=np.uint8)
    features = np.ascontiguousarray(np.stack([*kept.values()]))  # safetensors writes the memory as it lies
    try:
        with replacing(path) as file:
            file.write(save({"digests": digests, "features": features}))
    except OSError as error:
        warn_of_no_cache("features", error)
