"""What picture files say of themselves, read by several processes. Imports no torch."""

import hashlib
import io
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from vitlab.config import UserError
from vitlab.data.images import decode, imagefolder
from vitlab.hardware import count_cores

SIDE = 16  # pixels of a thumbnail
FINE = 4  # pixels of which one of a thumbnail is the mean, in each direction: smooth skies differ by less than a level
FULL_SCALE = 8 * SIDE  # a JPEG is decoded at a fraction of its size, this or more
BATCH = 32  # files that a process is given at a time
ALONE = 200  # so many files or fewer are read by this process: starting others takes a second
ORIENTATION = 0x0112  # EXIF's tag


@dataclass(frozen=True, eq=False)
class Picture:
    """What one file says. Of a file that cannot be read `error` is the reason, and the rest is empty.

    height, width: pixels, upright. mode, format: as Pillow names them. orientation: EXIF's, 1 where it is upright.
    digest: 64 bits, equal for files of equal bytes. thumbnail: float16 (SIDE, SIDE, 3), levels from 0 to 255,
    whatever the aspect ratio.
    """

    path: str
    height: int = 0
    width: int = 0
    mode: str = ""
    format: str = ""
    orientation: int = 1
    digest: int = 0
    thumbnail: np.ndarray | None = None
    error: str = ""


def read_pictures(
    root: Path, paths: Sequence[str], progress: Callable[[str, int, int | None], None] = lambda *_: None
) -> list[Picture]:
    """The pictures of files below a root, in their order; progress(what, done, total) is called on the way.

    Raises UserError when a process that reads is killed.
    """
    pictures: list[Picture] = []
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    for batch in read_batches(root, batches):
        pictures += batch
        progress("reading pictures", len(pictures), len(paths))
    return pictures


def read_batches(root: Path, batches: Sequence[Sequence[str]]) -> Iterator[list[Picture]]:
    """The pictures of each batch of paths, in their order, by as many processes as there are cores."""
    read, workers = partial(read_batch, os.fspath(root)), min(count_cores(), len(batches))
    if workers < 2 or len(batches) * BATCH <= ALONE:
        yield from map(read, batches)
        return
    context = multiprocessing.get_context("spawn")  # a progress bar is a thread, and forking beside threads may hang
    pool = ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield from pool.map(read, batches)
    except BrokenProcessPool:
        raise UserError(f"data.root={root}: a process that reads pictures was killed; free some memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


def read_batch(root: str, paths: Sequence[str]) -> list[Picture]:
    return [read_picture(root, path) for path in paths]


def read_picture(root: str, path: str) -> Picture:
    """One file, read whole, so that a truncated one is found, and refused for the reasons that training has."""
    full = os.path.join(root, path)
    try:
        content = Path(full).read_bytes()
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(content)) as image:
            mode, orientation = image.mode, image.getexif().get(ORIENTATION, 1)
            width, height = image.size[::-1] if orientation in (5, 6, 7, 8) else image.size
            thumbnail = shrink(image)
            digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
            return Picture(path, height, width, mode, image.format or "", orientation, digest, thumbnail)
    except Exception as error:  # Pillow's readers raise a dozen types for broken files
        return Picture(path, error=imagefolder.explain(full, error))


def shrink(image: Image.Image) -> np.ndarray:
    """float16 (SIDE, SIDE, 3) of an opened image, from 0 to 255: upright, transparency on white, not cropped."""
    image.draft(None, (FULL_SCALE, FULL_SCALE))
    image = decode.to_mode(ImageOps.exif_transpose(image), "RGB")
    pixels = np.asarray(image.resize((FINE * SIDE, FINE * SIDE), Image.Resampling.BILINEAR))
    return pixels.reshape(SIDE, FINE, SIDE, FINE, 3).mean(axis=(1, 3)).astype(np.float16)
