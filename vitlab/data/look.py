"""Inspect a folder of labelled pictures: its splits, classes, sizes, faults and copies. Imports no torch.

A copy has the same bytes, or nearly the same thumbnail: re-encoded, resized, mirrored or a little brighter. Cropped and
rotated copies are not found.
"""

import hashlib
import io
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from PIL import Image

from vitlab.config import UserError
from vitlab.data.base import Show
from vitlab.data.cache import walk_files
from vitlab.data.images import decode, imagefolder
from vitlab.formatting import TIMES, cut_names, plural
from vitlab.hardware import count_cores

SIDE = 16  # pixels of a thumbnail
FULL_SCALE = 8 * SIDE  # pixels; a JPEG is decoded at a reduced size, this or more
ALONE = 200  # files; up to so many are read by this process, because starting others takes a second
ORIENTATION = 0x0112  # EXIF's tag
WHITE = 254  # the darkest level of a blank thumbnail: a thin line in a large picture leaves less


@dataclass(frozen=True, eq=False)
class Picture:
    """Facts about one file. An unreadable file has only its path and `error`, the reason.

    height, width: pixels, upright. mode, format: as Pillow names them. orientation: EXIF's, 1 if it is upright.
    digest: 64 bits, equal for files of equal bytes. thumbnail: uint8 (SIDE, SIDE, 3) for any aspect ratio.
    largest: the highest level of a picture with more than 8 bits, else 0. blank: transparent, and all white on white.
    """

    path: str
    height: int = 0
    width: int = 0
    mode: str = ""
    format: str = ""
    orientation: int = 1
    digest: int = 0
    thumbnail: np.ndarray | None = None
    largest: int = 0
    blank: bool = False
    error: str = ""


def read_pictures(root: Path, paths: Sequence[str], progress: Show = lambda *_: None) -> list[Picture]:
    """Read picture files below a root, in order. Calls progress(what, done, total) after each."""
    pictures: list[Picture] = []
    jobs = Parallel(count_cores() if len(paths) > ALONE else 1, return_as="generator")
    for picture in jobs(delayed(read_picture)(os.fspath(root), path) for path in paths):
        pictures.append(picture)
        progress("reading pictures", len(pictures), len(paths))
    return pictures


def read_picture(root: str, path: str) -> Picture:
    """Read one whole file, to find truncated files. Rejects the files that training would reject."""
    full = os.path.join(root, path)
    try:
        content = Path(full).read_bytes()
        with warnings.catch_warnings(action="ignore"), decode.open_image(io.BytesIO(content)) as image:
            mode, orientation = decode.name_mode(image), image.getexif().get(ORIENTATION, 1)
            is_turned = orientation in (5, 6, 7, 8) and image.format != "TIFF"  # Pillow gives a TIFF's size upright
            width, height = image.size[::-1] if is_turned else image.size
            largest, bits = 0, decode.BITS
            if mode.startswith("I"):
                bits = count_bits(largest := int(np.asarray(image).max()))
            elif mode.endswith(";16"):
                largest = 256 * int(np.asarray(image).max()) + 255
            may_vanish, thumbnail = image.has_transparency_data, shrink(image, bits)
            blank = may_vanish and bool(thumbnail.min() >= WHITE)
            digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
            return Picture(
                path, height, width, mode, image.format or "", orientation, digest, thumbnail, largest, blank
            )
    except Exception as error:  # Pillow's readers raise a dozen types for broken files
        return Picture(path, error=imagefolder.explain(full, error))


def count_bits(largest: int) -> int:
    """Compute `data.bits` from the highest level of pictures: 8, 10, 12, 14 or 16, as cameras use, or more."""
    return max(8, largest.bit_length() + largest.bit_length() % 2)


def shrink(image: Image.Image, bits: int = decode.BITS) -> np.ndarray:
    """Shrink an opened image to uint8 (SIDE, SIDE, 3): upright, transparency on white, not cropped."""
    image.draft(None, (FULL_SCALE, FULL_SCALE))
    image = decode.upright(image, 4 * FULL_SCALE, bits)
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=3.0)  # half of the time
    return np.asarray(decode.flatten(image, "RGB"))


ALIKE = 0.992  # least likeness of a copy with another size or quality
LOUDER = 0.15  # largest gap of log(level + DARK) between a copy and its original, in each color and in contrast
DARK, FLAT = 8.0, 2.0  # levels; below a contrast of FLAT a picture is noise, and only equal bytes count
BLOCK = 256  # pictures compared at a time with all earlier ones


@dataclass(frozen=True)
class Pair:
    """Two similar pictures: their indices (first < second), likeness (at most 1), and whether their bytes are equal."""

    first: int
    second: int
    likeness: float
    identical: bool


def find_pairs(pictures: Sequence[Picture], splits: Sequence[int], progress: Show = lambda *_: None) -> list[Pair]:
    """Pair each picture with its most similar earlier copy, if any, from the first split that has one.

    splits: split number of each picture, ascending. N pictures make at most N - 1 pairs, and a held-out picture is
    paired with a training picture if possible. Returns pairs across splits first, then by likeness. Likeness is the
    correlation of two thumbnails, or of one with the other's mirror image; colors and contrasts must agree, too.
    """
    count, pairs, parts = len(pictures), [], np.array(splits)
    digests = np.array([picture.digest for picture in pictures], np.uint64)
    pixels = np.array([picture.thumbnail for picture in pictures], np.float32).reshape(count, SIDE, SIDE, 3)
    colors, contrasts = pixels.mean(axis=(1, 2)), np.sqrt(pixels.var(axis=(1, 2)).sum(axis=1))
    levels = np.log(np.column_stack([colors, contrasts]) + DARK)
    scales = np.where(contrasts < FLAT, 0, 1 / np.maximum(contrasts, FLAT)) / SIDE
    pixels = (pixels - colors[:, None, None]) * scales[:, None, None, None]
    looks, mirrored = (one.reshape(count, 3 * SIDE**2) for one in (pixels, pixels[:, :, ::-1]))
    for start in range(0, count, BLOCK):
        rows, before = slice(start, start + BLOCK), looks[: start + BLOCK].T
        likeness = np.maximum(looks[rows] @ before, mirrored[rows] @ before)
        likeness[digests[rows, None] == digests[: start + BLOCK]] = 2  # equal bytes count more than any likeness
        seconds, firsts = np.nonzero(np.tril(likeness >= ALIKE, start - 1))
        found, seconds = likeness[seconds, firsts], seconds + start
        order = np.lexsort((-found, parts[firsts], seconds))
        order = order[np.abs(levels[seconds] - levels[firsts]).max(axis=1)[order] <= LOUDER]
        for place in order[np.unique(seconds[order], return_index=True)[1]]:
            alike = float(found[place])
            pairs.append(Pair(int(firsts[place]), int(seconds[place]), min(alike, 1.0), alike == 2))
        progress("comparing pictures", min(start + BLOCK, count), count)
    return sorted(pairs, key=lambda pair: (splits[pair.first] == splits[pair.second], -pair.likeness))


FEW = 10  # training pictures; classes with fewer are named
NAMED = 3  # names listed of small classes, and of each kind of skipped files
STEP, LARGEST = 16, 224  # pixels; a suggested image size is a multiple of STEP, up to LARGEST


@dataclass(frozen=True, eq=False)
class Look:
    """Findings about a folder.

    listed: split -> class -> file paths below the root, the training split first. pictures: the readable pictures, in
    that order. places: (split, class) of each picture. pairs: indices into `pictures`. problems: reasons why
    data=imagefolder cannot open the folder, a line each.
    """

    root: Path
    listed: dict[str, imagefolder.Listing]
    pictures: list[Picture]
    places: list[tuple[str, str]]
    unreadable: list[Picture]
    skipped: list[dict[str, Any]]
    pairs: list[Pair]
    problems: list[str]

    @property
    def classes(self) -> list[str]:
        return list(dict.fromkeys(name for listing in self.listed.values() for name in listing))


def look_at(
    root: Path, progress: Show = lambda *_: None, of_table: dict[str, imagefolder.Listing] | None = None
) -> Look:
    """Read all pictures of a folder that passes `imagefolder.check_root`, or of a table below its root.

    Unreadable pictures are no error. Calls progress(what, done, total) on the way. Raises UserError if a folder has no
    pictures.
    """
    listed = imagefolder.list_splits(root) if of_table is None else of_table
    files = [
        (path, (part, name)) for part, listing in listed.items() for name, paths in listing.items() for path in paths
    ]
    skipped = list_skipped(root, {path for path, _ in files})
    if not files:
        others = "; ".join(f"{skip['count']:,} {skip['kind']}" for skip in skipped)
        raise UserError(
            f"data.root={root}: its class folders hold no images ({imagefolder.KINDS})"
            + (f", but {others}" if others else "")
        )
    read = read_pictures(root, [path for path, _ in files], progress)
    pictures = [picture for picture in read if not picture.error]
    places = [place for picture, (_, place) in zip(read, files, strict=True) if not picture.error]
    return Look(
        root=root,
        listed=listed,
        pictures=pictures,
        places=places,
        unreadable=[picture for picture in read if picture.error],
        skipped=skipped,
        pairs=find_pairs(pictures, [list(listed).index(part) for part, _ in places], progress),
        problems=imagefolder.find_problems(root, listed) if of_table is None else [],
    )


def list_skipped(root: Path, used: set[str]) -> list[dict[str, Any]]:
    """List unused files below a root by kind (extension, stray image, broken link, device): count and first names."""
    start, broken = len(str(root).rstrip(os.sep)) + 1, []
    found: dict[str, list[str]] = {}
    for entry in walk_files(root, broken=broken):
        path = entry.path[start:]
        if path not in used:
            extension = os.path.splitext(path)[1].lower()
            outside = path.lower().endswith(imagefolder.EXTENSIONS)
            kind = "images outside of the class folders" if outside else extension or "without an extension"
            found.setdefault(kind, []).append(path)
    for path in broken:
        kind = "broken links" if os.path.islink(path) else "pipes, sockets and devices"
        found.setdefault(kind, []).append(path[start:])
    most_first = sorted(found.items(), key=lambda item: -len(item[1]))
    return [{"kind": kind, "count": len(paths), "names": sorted(paths)[:NAMED]} for kind, paths in most_first]


def suggest_size(sides: np.ndarray) -> int:
    """Suggest data.image_size from the shorter sides (N,) of pictures, in pixels: near their median.

    Rounds the median to a multiple of 16, halves upwards: patches and strides of most models divide such sizes, and
    larger pictures would only be interpolated. Returns 16 to 224. Most models are trained at 224; beyond it the cost
    grows with the square of the side, so the user should decide.
    """
    nearest = STEP * int((np.median(sides) + STEP / 2) // STEP)
    return min(max(nearest, STEP), LARGEST)


def summarize(look: Look) -> dict[str, Any]:
    """Summarize a look as JSON. Counts readable pictures; sizes are [height, width] in pixels, upright."""
    found, (train, *_) = Counter(look.places), look.listed
    counts = {name: {part: found[part, name] for part in look.listed} for name in look.classes}
    counts = dict(sorted(counts.items(), key=lambda row: -row[1][train]))  # largest training class first
    numbers = [row[train] for row in counts.values() if row[train]]
    levels: dict[str, int] = {}
    for picture in look.pictures:
        if picture.largest:
            levels[picture.mode] = max(picture.largest, levels.get(picture.mode, 0))
    return {
        "root": str(look.root),
        "splits": list(look.listed),
        "classes": counts,
        "few": FEW,
        "small_classes": [name for name, row in counts.items() if row[train] < FEW],
        "imbalance": round(max(numbers) / min(numbers), 2) if numbers else None,
        "pictures": len(look.pictures),
        "levels": levels,
        "bits": max((count_bits(levels[mode]) for mode in levels if mode.startswith("I")), default=decode.BITS),
        **(summarize_sizes(look.pictures) if look.pictures else {"image_size": None}),
        "modes": dict(Counter(picture.mode for picture in look.pictures).most_common()),
        "formats": dict(Counter(picture.format for picture in look.pictures).most_common()),
        "blank": [picture.path for picture in look.pictures if picture.blank],
        "rotated": sum(picture.orientation != 1 for picture in look.pictures),
        "unreadable": [{"path": picture.path, "reason": picture.error} for picture in look.unreadable],
        "skipped": look.skipped,
        "problems": look.problems,
        "duplicates": [
            {
                "first": look.pictures[pair.first].path,
                "second": look.pictures[pair.second].path,
                "across_splits": look.places[pair.first][0] != look.places[pair.second][0],
                "across_classes": look.places[pair.first][1] != look.places[pair.second][1],
                "identical": pair.identical,
                "likeness": round(pair.likeness, 3),
            }
            for pair in look.pairs
        ],
    }


def summarize_sizes(pictures: list[Picture]) -> dict[str, Any]:
    sizes = np.array([(picture.height, picture.width) for picture in pictures])
    by_area = sizes[np.argsort(sizes.prod(axis=1), kind="stable")]
    aspects = sizes[:, 1] / sizes[:, 0]
    return {
        "median_size": np.median(sizes, axis=0).round().astype(int).tolist(),
        "smallest_size": by_area[0].tolist(),
        "largest_size": by_area[-1].tolist(),
        "aspect_ratio": {
            name: round(float(of(aspects)), 3) for name, of in (("median", np.median), ("min", np.min), ("max", np.max))
        },
        "image_size": suggest_size(sizes.min(axis=1)),
    }


MOST = 20  # names in a line


def suggest(facts: Mapping[str, Any]) -> str:
    """Suggest the keys to train with, as words of a command line."""
    keys = ("image_size", *(["bits"] if facts["bits"] != decode.BITS else []))
    return " ".join(f"data.{key}={facts[key]}" for key in keys if facts[key])


def describe(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for each fact of `summarize` that fits on a line."""
    if len(facts["splits"]) == 1:
        yield "split", "none, so a share of each class is held out (data.test_share)"
    if facts["imbalance"] is not None:
        yield "largest to smallest class", f"{facts['imbalance']:,.1f} to 1"
    counts = {name: row[facts["splits"][0]] for name, row in facts["classes"].items()}
    if few := describe_few(counts, whole=len(facts["splits"]) == 1):
        yield "few", few
    if facts["pictures"]:
        sizes = [
            TIMES.join(f" {n:,} " for n in facts[f"{one}_size"]).strip() for one in ("median", "smallest", "largest")
        ]
        yield f"height {TIMES} width", "median {}, smallest {}, largest {}".format(*sizes)
        ratio = facts["aspect_ratio"]
        yield "width / height", f"median {ratio['median']:.2f}, from {ratio['min']:.2f} to {ratio['max']:.2f}"
        for name, key in (("color modes", "modes"), ("formats", "formats")):
            yield name, ", ".join(f"{kind} {count:,}" for kind, count in facts[key].items())
        for mode, highest in facts["levels"].items():
            advice = "; the upper 8 bits of a color are read: convert dark pictures to 8 bits"
            if mode.startswith("I"):
                advice = "" if facts["bits"] == decode.BITS else f" unless you give data.bits={facts['bits']}"
            yield f"levels of {mode}", f"up to {highest:,}, white is {2**decode.BITS - 1:,}{advice}"
        turned = f"{plural(facts['rotated'], 'picture')}, turned upright when read" if facts["rotated"] else "none"
        yield "stored turned (EXIF orientation)", turned
    if count := len(facts["blank"]):
        text = f"{plural(count, 'picture')}, as transparency is drawn on white: {cut_names(facts['blank'], NAMED)}"
        yield "blank", f"{text}; draw them on a dark background"
    if facts.get("flip"):
        yield "mirrored", facts["flip"]
    for skip in facts["skipped"]:
        yield f"skipped {skip['kind']}", f"{skip['count']:,}: {cut_names(skip['names'], MOST, skip['count'])}"


def describe_few(counts: Mapping[str, int], whole: bool) -> str:
    """Advise about classes with few training pictures, given each class's count; empty if no class has few.

    whole: the counts include the share of pictures that will be held out.
    """
    small = sorted((count, name) for name, count in counts.items() if count < FEW)
    if not small:
        return ""
    names = cut_names([f"{name} {count:,}" for count, name in small], NAMED)
    what = "pictures, before a share of them is held out" if whole else "training pictures"
    having = f"{len(small):,} of {plural(len(counts), 'class', 'classes')} with fewer than {FEW} {what}"
    return f"{having}: {names}; add pictures or merge classes, so few neither teach a class nor test it"


def describe_duplicates(facts: Mapping[str, Any]) -> str:
    """Describe the number of duplicates: `5 (3 across splits, 1 across classes)`."""
    pairs = facts["duplicates"]
    counts = ((sum(pair[f"across_{what}"] for pair in pairs), what) for what in ("splits", "classes"))
    across = ", ".join(f"{count:,} across {what}" for count, what in counts if count)
    return f"{len(pairs):,}" + (f" ({across})" if across else "")


def describe_pair(pair: Mapping[str, Any]) -> str:
    notes = [("identical", "same bytes"), ("across_splits", "another split"), ("across_classes", "another class")]
    return ", ".join(note for key, note in notes if pair[key])
