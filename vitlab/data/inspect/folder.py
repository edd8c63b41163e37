"""What a folder of labelled pictures holds: its splits, classes, sizes, faults and copies. Imports no torch."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError
from vitlab.data.cache.file_stats import walk_files
from vitlab.data.images import imagefolder
from vitlab.data.inspect.duplicates import Pair, find_pairs
from vitlab.data.inspect.pictures import SIDE, Picture, read_pictures

WHOLE = "all"  # the name of the one split of a folder that has none
FEW = 10  # training pictures: a class with fewer is named
NAMED = 3  # files of each kind that are named where they are skipped
STEP, LARGEST = 16, 224  # pixels: what a suggested image size is a multiple of, and its limit

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Skipped:
    """Files that are no part of the data: what they are, how many, and the names of the first, below the root."""

    kind: str
    count: int
    names: tuple[str, ...]


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
    skipped: list[Skipped]
    pairs: list[Pair]
    problems: list[str]

    @property
    def image_size(self) -> int:
        """The size that is suggested, pixels a side."""
        return suggest_size(np.array([min(picture.height, picture.width) for picture in self.pictures]))

    @property
    def classes(self) -> list[str]:
        return list(dict.fromkeys(name for listing in self.listed.values() for name in listing))


def look_at(root: Path, progress: Progress = lambda *_: None) -> Look:
    """Read all pictures of a folder that `imagefolder.check_root` finds no fault with. Raises UserError if it has none.

    Pictures that cannot be read are no error. progress(what, done, total) is called on the way.
    """
    folders = imagefolder.find_splits(root)
    listed = {name: imagefolder.list_images(root, name) for name in folders.values()}
    if not folders:
        listed = {WHOLE: imagefolder.list_images(root)}
    files = [
        (path, (part, name)) for part, listing in listed.items() for name, paths in listing.items() for path in paths
    ]
    skipped = list_skipped(root, {path for path, _ in files})
    if not files:
        others = "; ".join(f"{skip.count:,} {skip.kind}" for skip in skipped)
        kinds = " ".join(kind.removeprefix(".") for kind in imagefolder.EXTENSIONS)
        raise UserError(
            f"data.root={root}: its class folders hold no images ({kinds})" + (f", but {others}" if others else "")
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
        problems=list(dict.fromkeys(find_problems(root, listed))),
    )


def pair_pictures(pictures: list[Picture], splits: list[int], progress: Progress) -> list[Pair]:
    """The copies among pictures, those across splits first, then the likest first."""
    thumbnails = np.array([picture.thumbnail for picture in pictures], np.float32).reshape(-1, SIDE, SIDE, 3)
    digests = np.array([picture.digest for picture in pictures], np.uint64)
    pairs = find_pairs(thumbnails, digests, np.array(splits), progress)
    return sorted(pairs, key=lambda pair: (splits[pair.first] == splits[pair.second], -pair.likeness))


def list_skipped(root: Path, used: set[str]) -> list[Skipped]:
    """The files below a root that are not used, by extension; images outside of the class folders; broken links."""
    start, broken = len(str(root).rstrip(os.sep)) + 1, []
    found: dict[str, list[str]] = {}
    for entry in walk_files(root, broken=broken):
        path = entry.path[start:]
        if path not in used:
            extension = os.path.splitext(path)[1].lower()
            outside = path.lower().endswith(imagefolder.EXTENSIONS)
            kind = "images outside of the class folders" if outside else extension or "without an extension"
            found.setdefault(kind, []).append(path)
    if broken:
        found["broken links"] = [path[start:] for path in broken]
    most_first = sorted(found.items(), key=lambda item: -len(item[1]))
    return [Skipped(kind, len(paths), tuple(sorted(paths)[:NAMED])) for kind, paths in most_first]


def find_problems(root: Path, listed: dict[str, imagefolder.Listing]) -> Iterator[str]:
    """What data=imagefolder would refuse in the names and counts of files."""
    train, *others = listed.values()
    yield from imagefolder.check_classes(root, train, least=1 if others else 2)
    for held_out in list(listed)[1:]:
        yield from imagefolder.check_classes(root, listed[held_out])
        yield from imagefolder.check_same_classes(root, train, listed[held_out], held_out)
    if len(train) == 1:
        yield imagefolder.only_one(root, train)


def suggest_size(sides: np.ndarray) -> int:
    """data.image_size for pictures with these shorter sides (N,), pixels: near their median.

    The nearest multiple of 16, which the patches and strides of most models divide, half way upwards: larger ones
    would only be interpolated. At least 16, and at most 224, what most models are trained with; above it the cost
    grows by the square, so that it should be a decision.
    """
    nearest = STEP * int((np.median(sides) + STEP / 2) // STEP)
    return min(max(nearest, STEP), LARGEST)


def summarize(look: Look) -> dict[str, Any]:
    """All that was found as JSON: counts are of files, sizes are [height, width] in pixels, upright."""
    counts = count_classes(look)
    train, *_ = look.listed
    numbers = [row[train] for row in counts.values() if row[train]]
    return {
        "root": str(look.root),
        "splits": list(look.listed),
        "classes": counts,
        "few": FEW,
        "small_classes": [name for name, row in counts.items() if row[train] < FEW],
        "imbalance": round(max(numbers) / min(numbers), 2) if numbers else None,
        "pictures": len(look.pictures),
        **(summarize_sizes(look.pictures) if look.pictures else {"image_size": None}),
        "modes": dict(Counter(picture.mode for picture in look.pictures).most_common()),
        "formats": dict(Counter(picture.format for picture in look.pictures).most_common()),
        "rotated": sum(picture.orientation != 1 for picture in look.pictures),
        "unreadable": [{"path": picture.path, "reason": picture.error} for picture in look.unreadable],
        "skipped": [{"kind": skip.kind, "count": skip.count, "names": list(skip.names)} for skip in look.skipped],
        "problems": look.problems,
        "duplicates": [describe_pair(look, pair) for pair in look.pairs],
    }


def count_classes(look: Look) -> dict[str, dict[str, int]]:
    """class -> split -> how many files; the classes with the most training files first."""
    rows = {name: {part: len(listing.get(name, ())) for part, listing in look.listed.items()} for name in look.classes}
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


def describe_pair(look: Look, pair: Pair) -> dict[str, Any]:
    return {
        "first": look.pictures[pair.first].path,
        "second": look.pictures[pair.second].path,
        "across_splits": look.places[pair.first][0] != look.places[pair.second][0],
        "across_classes": look.places[pair.first][1] != look.places[pair.second][1],
        "identical": pair.identical,
        "likeness": round(pair.likeness, 3),
    }
