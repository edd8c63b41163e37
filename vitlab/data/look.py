"""A look at a folder of labelled pictures: its splits, classes, sizes, faults and copies. Imports no torch.

A copy has the same bytes, or looks the same: encoded again, resized or a little brighter. Candidates have perceptual
hashes a few bits apart (after Zauner, 2010, "Implementation and Benchmarking of Perceptual Image Hash Functions");
simple drawings share such hashes, so the edges and the colours of thumbnails decide. Copies that are cropped, turned
or mirrored are not found.
"""

import hashlib
import io
import multiprocessing
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitlab.config import UserError
from vitlab.data.cache import walk_files
from vitlab.data.images import decode, imagefolder
from vitlab.formatting import TIMES, cut_names, plural
from vitlab.hardware import count_cores

Progress = Callable[[str, int, int | None], None]

SIDE = 16  # pixels of a thumbnail
FINE = 4  # pixels of which one of a thumbnail is the mean, in each direction: smooth skies differ by less than a level
FULL_SCALE = 8 * SIDE  # a JPEG is decoded at a fraction of its size, this or more
GAP = 3.0  # times FINE * SIDE pixels, to which others are reduced before they are resized: half of the time
BATCH = 32  # files that a process is given at a time
ALONE = 200  # so many files or fewer are read by this process: starting others takes a second
ORIENTATION = 0x0112  # EXIF's tag


@dataclass(frozen=True, eq=False)
class Picture:
    """What one file says. Of a file that cannot be read `error` is the reason, and the rest is empty.

    height, width: pixels, upright. mode, format: as Pillow names them. orientation: EXIF's, 1 where it is upright.
    digest: 64 bits, equal for files of equal bytes. thumbnail: float16 (SIDE, SIDE, 3), levels from 0 to 255,
    whatever the aspect ratio. largest: the highest level of one with more than 8 bits, else 0.
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
    error: str = ""


def read_pictures(root: Path, paths: Sequence[str], progress: Progress = lambda *_: None) -> list[Picture]:
    """The pictures of files below a root, in their order; progress(what, done, total) is called on the way.

    Raises UserError when a process that reads is killed.
    """
    pictures: list[Picture] = []
    for picture in read_each(root, paths):
        pictures.append(picture)
        progress("reading pictures", len(pictures), len(paths))
    return pictures


def read_each(root: Path, paths: Sequence[str]) -> Iterator[Picture]:
    """The pictures of paths, in their order, by as many processes as there are cores."""
    read, workers = partial(read_picture, os.fspath(root)), count_cores()
    if workers < 2 or len(paths) <= ALONE:
        yield from map(read, paths)
        return
    context = multiprocessing.get_context("spawn")  # a progress bar is a thread, and forking beside threads may hang
    pool = ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield from pool.map(read, paths, chunksize=BATCH)
    except BrokenProcessPool:
        raise UserError(f"data.root={root}: a process that reads pictures was killed; free some memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


def read_picture(root: str, path: str) -> Picture:
    """One file, read whole, so that a truncated one is found, and refused for the reasons that training has."""
    full = os.path.join(root, path)
    try:
        content = Path(full).read_bytes()
        with warnings.catch_warnings(action="ignore"), decode.open_image(io.BytesIO(content)) as image:
            mode, orientation = decode.name_mode(image), image.getexif().get(ORIENTATION, 1)
            is_turned = orientation in (5, 6, 7, 8) and image.format != "TIFF"  # whose size Pillow gives upright
            width, height = image.size[::-1] if is_turned else image.size
            largest, bits = 0, decode.BITS
            if mode.startswith("I"):
                bits = count_bits(largest := int(np.asarray(image).max()))
            elif mode.endswith(";16"):
                largest = 256 * int(np.asarray(image).max()) + 255
            thumbnail = shrink(image, bits)
            digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
            return Picture(path, height, width, mode, image.format or "", orientation, digest, thumbnail, largest)
    except Exception as error:  # Pillow's readers raise a dozen types for broken files
        return Picture(path, error=imagefolder.explain(full, error))


def count_bits(largest: int) -> int:
    """`data.bits` for pictures whose highest level is this: those that cameras have, 8, 10, 12, 14 or 16, or more."""
    return max(8, largest.bit_length() + largest.bit_length() % 2)


def shrink(image: Image.Image, bits: int = decode.BITS) -> np.ndarray:
    """float16 (SIDE, SIDE, 3) of an opened image, from 0 to 255: upright, transparency on white, not cropped."""
    image.draft(None, (FULL_SCALE, FULL_SCALE))
    image = decode.upright(image, 4 * FULL_SCALE, bits)
    small = image.resize((FINE * SIDE, FINE * SIDE), Image.Resampling.BILINEAR, reducing_gap=GAP)
    pixels = np.asarray(decode.flatten(small, "RGB"))
    return pixels.reshape(SIDE, FINE, SIDE, FINE, 3).mean(axis=(1, 3)).astype(np.float16)


FREQUENCIES = 8  # of the hash, in each direction: 64 bits
NOISE = 0.1  # of the spectrum's root mean square: below this the sign of a coefficient is chance,
GRAIN = 8.0  # as it is below this, which JPEG makes of plain ground
NEAR = 12  # the most bits that the hashes of a copy and its original differ by
ALIKE = 0.92  # the least correlation of their edges,
CONTRAST = 1.5  # and the largest ratio of the strengths of these;
SMOOTH = 1.0, 0.3  # or what their levels differ by: at most so many, and so much of their standard deviation
COARSE = 4  # side of the grid of mean colours in which they may differ
BRIGHTER = 1.12  # by a factor of at most this
APART = 3.2  # and besides by so many levels of 255, root mean square
CLIPPED = 243.0  # levels: what is brighter in both pictures is not compared, a brighter copy ends at 255
FLAT = 2.0  # levels, standard deviation: below this a thumbnail is a single colour, and only equal bytes count
BLOCK = 64  # pictures that are compared with all before them at a time
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # brightness of red, green and blue, ITU-R BT.601


@dataclass(frozen=True)
class Pair:
    """Places of two pictures, the first before the second; the correlation of their edges; whether bytes are equal."""

    first: int
    second: int
    likeness: float
    identical: bool


def find_pairs(
    thumbnails: np.ndarray,
    digests: np.ndarray,
    splits: np.ndarray,
    progress: Progress = lambda *_: None,
) -> list[Pair]:
    """A pair for each picture with a copy before it: of the copies in the first split that has any, the likest.

    thumbnails: (N, S, S, 3), levels from 0 to 255. digests: uint64 (N,), equal for equal bytes. splits: (N,), numbers
    that never fall. So N pictures make N - 1 pairs at most, and a held-out picture is paired with one in training
    where it can be. Takes N^2 / 2 comparisons of 64 bits, and a few matrix products over the candidates.
    """
    count, pairs = len(thumbnails), []
    hashes, spread = np.zeros(count, np.uint64), np.zeros(count, np.float32)
    colours = np.zeros((count, 3 * COARSE**2), np.float32)
    for start in range(0, count, BLOCK):  # only these are kept of each picture, beside its thumbnail
        rows = slice(start, start + BLOCK)
        some = thumbnails[rows].astype(np.float32)
        hashes[rows], colours[rows] = hash_thumbnails(some), mean_colours(some)
        spread[rows] = some.std(axis=(1, 2)).max(axis=1)  # of the levels of the color that varies most
    is_flat = spread < FLAT
    for start in range(0, count, BLOCK):
        rows = np.arange(start, min(start + BLOCK, count))
        before = np.arange(rows[-1])
        same = digests[rows, None] == digests[before]
        near = np.bitwise_count(hashes[rows, None] ^ hashes[before]) <= NEAR
        near &= ~(is_flat[rows, None] | is_flat[before])
        candidates = (near | same) & (before < rows[:, None])
        inside = np.ix_(candidates.any(axis=1), candidates.any(axis=0))
        left, right = rows[inside[0][:, 0]], before[inside[1][0]]
        candidates[inside] &= same[inside] | (compare(colours[left], colours[right]) <= APART)  # it takes least
        inside = np.ix_(candidates.any(axis=1), candidates.any(axis=0))
        left, right = rows[inside[0][:, 0]], before[inside[1][0]]
        progress("comparing pictures", start + len(rows), count)
        if not len(left):
            continue
        these, those = (thumbnails[places].astype(np.float32) for places in (left, right))
        likeness = correlate(find_edges(these), find_edges(those))
        smooth = np.minimum(SMOOTH[0], SMOOTH[1] * spread[left])[:, None]
        alike = compare(these.reshape(len(left), -1), those.reshape(len(right), -1)) <= smooth
        likeness[same[inside]] = 1
        is_copy = candidates[inside] & (same[inside] | alike | (likeness >= ALIKE))
        best = np.where(is_copy, likeness - 3 * splits[right], -np.inf).argmax(axis=1)  # a likeness is -1 to 1
        for row in np.flatnonzero(is_copy.any(axis=1)):
            one, other = int(right[best[row]]), int(left[row])
            pairs.append(Pair(one, other, float(likeness[row, best[row]]), bool(digests[one] == digests[other])))
    return pairs


def hash_thumbnails(thumbnails: np.ndarray) -> np.ndarray:
    """uint64 (N,) of thumbnails float32 (N, S, S, 3): which low frequencies of the brightness are clearly positive.

    The hash of Zauner sets half of the bits, by the median; of a symmetric drawing half of the coefficients are near
    zero, and their bits would be chance.
    """
    side = thumbnails.shape[1]
    places, frequencies = np.arange(side) + 0.5, np.arange(1, FREQUENCIES + 1)
    waves = np.cos(np.pi / side * np.outer(frequencies, places)).astype(np.float32)
    spectrum = waves @ (thumbnails @ GREY) @ waves.T
    # pictures have less of high frequencies, which would never count
    weights = np.sqrt(np.hypot(frequencies[:, None], frequencies)).astype(np.float32)
    weighted = spectrum * weights
    least = np.maximum(NOISE * np.sqrt((weighted**2).mean(axis=(1, 2), keepdims=True)), GRAIN * weights)
    bits = (weighted > least).reshape(len(thumbnails), FREQUENCIES**2)
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0]


def find_edges(thumbnails: np.ndarray) -> np.ndarray:
    """float32 (N, 6 S (S - 1)) of thumbnails float32 (N, S, S, 3): the differences of neighbours."""
    count, side = thumbnails.shape[:2]
    down, across = (np.diff(thumbnails, axis=axis).reshape(count, 3 * side * (side - 1)) for axis in (1, 2))
    return np.concatenate([down, across], axis=1)


def mean_colours(thumbnails: np.ndarray) -> np.ndarray:
    """float32 (N, 3 COARSE^2) of thumbnails float32 (N, S, S, 3): mean colours."""
    count, side = thumbnails.shape[:2]
    cells = thumbnails.reshape(count, COARSE, side // COARSE, COARSE, side // COARSE, 3)
    return cells.mean(axis=(2, 4)).reshape(count, 3 * COARSE**2)


def correlate(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(A, B) of edges (A, D) and (B, D): their cosines, 0 where their lengths differ by more than CONTRAST."""
    lengths, others = (np.maximum(np.linalg.norm(edges, axis=1), 1e-6) for edges in (left, right))
    ratios = lengths[:, None] / others
    cosines = left @ right.T / lengths[:, None] / others
    return np.where((ratios <= CONTRAST) & (ratios >= 1 / CONTRAST), cosines, 0)


def compare(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(A, B) of levels (A, D) and (B, D): what they differ by when one is as bright as the other, root mean square.

    Infinite where that takes a factor above BRIGHTER. What is CLIPPED in both is left out, without a loop over pairs.
    """
    bright, others = ((levels >= CLIPPED).astype(np.float32) for levels in (left, right))
    squares = (left**2).sum(axis=1)[:, None] - (bright * left**2) @ others.T
    other_squares = (right**2).sum(axis=1) - bright @ (others * right**2).T
    products = left @ right.T - (bright * left) @ (others * right).T
    factors = np.where(other_squares >= 1, products / np.maximum(other_squares, 1), 1)
    rest = np.sqrt(np.maximum(squares - factors * products, 0) / left.shape[1])
    return np.where((factors <= BRIGHTER) & (factors >= 1 / BRIGHTER), rest, np.inf)


FEW = 10  # training pictures: a class with fewer is named
NAMED = 3  # small classes, and files of each kind that are skipped, that are named
STEP, LARGEST = 16, 224  # pixels: what a suggested image size is a multiple of, and its limit


@dataclass(frozen=True, eq=False)
class Look:
    """What was found in a folder.

    listed: split -> class -> the paths of its files below the root; the training split comes first. pictures: those
    that can be read, in that order, with the split and the class of each. pairs: places in `pictures`. problems: what
    keeps data=imagefolder from being opened, a line each.
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


def look_at(root: Path, progress: Progress = lambda *_: None) -> Look:
    """Read all pictures of a folder that `imagefolder.check_root` finds no fault with. Raises UserError if it has none.

    Pictures that cannot be read are no error. progress(what, done, total) is called on the way.
    """
    listed = imagefolder.list_splits(root)
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
        pairs=pair_pictures(pictures, [list(listed).index(part) for part, _ in places], progress),
        problems=imagefolder.find_problems(root, listed),
    )


def pair_pictures(pictures: list[Picture], splits: list[int], progress: Progress) -> list[Pair]:
    """The copies among pictures, those across splits first, then the likest first."""
    thumbnails = np.array([picture.thumbnail for picture in pictures], np.float16).reshape(-1, SIDE, SIDE, 3)
    digests = np.array([picture.digest for picture in pictures], np.uint64)
    pairs = find_pairs(thumbnails, digests, np.array(splits), progress)
    return sorted(pairs, key=lambda pair: (splits[pair.first] == splits[pair.second], -pair.likeness))


def list_skipped(root: Path, used: set[str]) -> list[dict[str, Any]]:
    """The files below a root that are not used, by extension; images outside of the class folders; broken links: the
    kind, the count, and the names of the first.
    """
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
    """data.image_size for pictures with these shorter sides (N,), pixels: near their median.

    The nearest multiple of 16, which the patches and strides of most models divide, half way upwards: larger ones
    would only be interpolated. At least 16, and at most 224, what most models are trained with; above it the cost
    grows by the square, so that it should be a decision.
    """
    nearest = STEP * int((np.median(sides) + STEP / 2) // STEP)
    return min(max(nearest, STEP), LARGEST)


def summarize(look: Look) -> dict[str, Any]:
    """All that was found as JSON: pictures are those that can be read, sizes are [height, width] in pixels, upright."""
    counts = count_classes(look)
    train, *_ = look.listed
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
        "rotated": sum(picture.orientation != 1 for picture in look.pictures),
        "unreadable": [{"path": picture.path, "reason": picture.error} for picture in look.unreadable],
        "skipped": look.skipped,
        "problems": look.problems,
        "duplicates": [list_pair(look, pair) for pair in look.pairs],
    }


def count_classes(look: Look) -> dict[str, dict[str, int]]:
    """class -> split -> how many pictures can be read; the classes with the most for training first."""
    counts = Counter(look.places)
    rows = {name: {part: counts[part, name] for part in look.listed} for name in look.classes}
    return dict(sorted(rows.items(), key=lambda row: -next(iter(row[1].values()))))


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


def list_pair(look: Look, pair: Pair) -> dict[str, Any]:
    return {
        "first": look.pictures[pair.first].path,
        "second": look.pictures[pair.second].path,
        "across_splits": look.places[pair.first][0] != look.places[pair.second][0],
        "across_classes": look.places[pair.first][1] != look.places[pair.second][1],
        "identical": pair.identical,
        "likeness": round(pair.likeness, 3),
    }


MOST = 20  # names in a line


def suggest(facts: Mapping[str, Any]) -> str:
    """The keys that training should be given."""
    keys = ("image_size", *(["bits"] if facts["bits"] != decode.BITS else []))
    return " ".join(f"data.{key}={facts[key]}" for key in keys if facts[key])


def describe(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(what, how it is) of the facts of `folder.summarize` that are a line each."""
    if len(facts["splits"]) == 1:
        yield "split", "none: no train/ with val/ or test/, so a share of each class is held out (data.test_share)"
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
    for skip in facts["skipped"]:
        yield f"skipped {skip['kind']}", f"{skip['count']:,}: {cut_names(skip['names'], MOST, skip['count'])}"


def describe_few(counts: Mapping[str, int], whole: bool) -> str:
    """What is to be done about classes with few training pictures, from how many each has; empty where none has few.

    With `whole` they are all pictures of the class: those that will be held out are among them.
    """
    small = sorted((count, name) for name, count in counts.items() if count < FEW)
    if not small:
        return ""
    names = cut_names([f"{name} {count:,}" for count, name in small], NAMED)
    what = "pictures, before a share of them is held out" if whole else "training pictures"
    having = f"{len(small):,} of {plural(len(counts), 'class', 'classes')} with fewer than {FEW} {what}"
    return f"{having}: {names}; add pictures or merge classes, so few neither teach a class nor test it"


def describe_duplicates(facts: Mapping[str, Any]) -> str:
    """How many pictures look like another one: `5 (3 across splits, 1 across classes)`."""
    pairs = facts["duplicates"]
    counts = ((sum(pair[f"across_{what}"] for pair in pairs), what) for what in ("splits", "classes"))
    across = ", ".join(f"{count:,} across {what}" for count, what in counts if count)
    return f"{len(pairs):,}" + (f" ({across})" if across else "")


def describe_pair(pair: Mapping[str, Any]) -> str:
    notes = [("identical", "same bytes"), ("across_splits", "another split"), ("across_classes", "another class")]
    return ", ".join(note for key, note in notes if pair[key])
