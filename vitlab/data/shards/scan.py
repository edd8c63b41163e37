"""The samples of one shard."""

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from vitlab.config import first_line
from vitlab.data.keys import hash_key


@dataclass(eq=False)
class Scan:
    """The samples of a shard in their order, (n,) each: hash of the key, place of the label in `texts`, image's place.

    texts: each label's text -> the key of the first sample that has it.
    problems: what is wrong -> where first, and of how many samples.
    """

    keys: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    codes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    offsets: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint32))
    texts: dict[str, str] = field(default_factory=dict)
    problems: dict[str, tuple[str, int]] = field(default_factory=dict)


def scan_shard(path: str, images: tuple[str, ...], label: str) -> Scan:
    """All samples of a shard; `images` are the extensions that an image may have, `label` as in `read_label`."""
    rows, texts, numbers, problems = [], {}, {}, {}
    try:
        with open(path, "rb", buffering=0) as file:
            for key, files in list_samples(path):
                try:
                    image = next((files[ext] for ext in images if ext in files), None)
                    if image is None:
                        raise ValueError(f"has no image (.{' .'.join(images)}), only {list_extensions(files)}")
                    if not image[1]:
                        raise ValueError("its image is empty")
                    text = read_label(file.fileno(), files, label)
                except ValueError as error:
                    where, count = problems.get(str(error), (f"{path}: sample {key}", 0))
                    problems[str(error)] = where, count + 1
                    continue
                texts.setdefault(text, key)
                rows.append((hash_key(key), numbers.setdefault(text, len(numbers)), *image))
    except ValueError as error:
        problems = {str(error): (path, 1)}
    except OSError as error:
        problems = {f"cannot be read: {error.strerror or first_line(error)}": (path, 1)}
    if not rows and not problems:
        problems = {"holds no samples (files named KEY.EXTENSION)": (path, 1)}
    if problems:
        return Scan(problems=problems)
    keys, codes, offsets, sizes = zip(*rows, strict=True)
    kinds = (np.uint64, np.int32, np.int64, np.uint32)
    return Scan(*(np.array(v, kind) for v, kind in zip((keys, codes, offsets, sizes), kinds, strict=True)), texts=texts)


def list_samples(path: str) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """(key, {extension: (offset, bytes)}) of neighbours that differ only in their extension, as WebDataset has it."""
    from webdataset.tariterators import base_plus_ext

    members = ((*base_plus_ext(name), *place) for name, *place in list_members(path) if not name.startswith("__"))
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
            compressed = "is compressed, so no image can be read by its place; decompress it"
            raise ValueError(compressed if is_compressed(path) else "is not a tar") from None
        end = b""
        with suppress(tarfile.ReadError):  # of a member that is cut off
            for member in archive:
                if member.issparse():
                    raise ValueError(f"holds a sparse file, {member.name}; write it again without")
                if member.isfile():
                    yield member.name, member.offset_data, member.size
                archive.members = []  # else tarfile keeps all of them
            file.seek(archive.offset)
            end = file.read(tarfile.BLOCKSIZE)
        if end != bytes(tarfile.BLOCKSIZE):  # tarfile takes a damaged header for the end
            raise ValueError(f"is damaged, cut off or still being written at byte {archive.offset}")


def is_compressed(path: str) -> bool:
    try:
        tarfile.open(path, "r:*").close()
    except tarfile.ReadError:
        return False
    return True


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
