"""Where torchvision's sets come from: files in place, else archives or a download."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from vitlab.config import UserError, first_line
from vitlab.config.schema.data import ImageDataConfig
from vitlab.data.cache.store import Progress

MEGABYTE = 1_000_000


def open_part(config: ImageDataConfig, constructor: type, part: dict[str, Any]) -> Any:
    """One part of the set: as it is on disk, else unpacked or downloaded by torchvision if that is allowed.

    torchvision unpacks archives that are in place, and unpickles only files whose MD5 is the published one. Raises
    UserError with torchvision's message.
    """
    root, name, place = Path(config.root).expanduser(), config.dataset, f"data.root={config.root}"
    options = {**config.options, **part}
    try:
        return constructor(root, **options, **downloading(constructor, False))
    except Exception as error:  # the sets raise RuntimeError, OSError, ValueError, and their parsers' errors
        missing = error
    if isinstance(missing, ValueError) and config.options:
        raise UserError(f"data.options={config.options}: {shorten(missing)}") from None
    if not downloading(constructor, True):
        advice = f"torchvision cannot download it: put its files in {place}"
        raise UserError(f"data.dataset={name}: {shorten(missing)}; {advice}") from None
    if not config.download:
        advice = note_repacked(root, constructor) or (
            f"put its files or archives in {place} and give data.download=true, which fetches only what is missing"
        )
        raise UserError(f"data.dataset={name}: {shorten(missing)}; {advice}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{name}.lock"):  # another process may be unpacking or downloading it
            return constructor(root, **options, **downloading(constructor, True))
    except Exception as error:  # as above, and those of urllib, tarfile and zipfile
        advice = note_repacked(root, constructor) or f"put its archives into {place}, they are unpacked there"
        raise UserError(f"data.dataset={name}: cannot download or unpack it: {shorten(error)}; {advice}") from None


def note_repacked(root: Path, constructor: type) -> str:
    """What to do with archives of the MNIST family that are there with another MD5, such as Debian's; "" if none are.

    torchvision checks the MD5 of such an archive, and takes its unpacked file as it is.
    """
    raw = root / constructor.__name__ / "raw"
    resources = getattr(constructor, "resources", ())
    for name, md5 in resources if isinstance(resources, list) else ():  # QMNIST has a mapping of addresses
        for path in (raw / name, root / name):
            if path.is_file() and hashlib.md5(path.read_bytes()).hexdigest() != md5:
                return (
                    f"the MD5 of {path} is not the published one, so it was packed again or is damaged: unpack such "
                    f"archives into {raw}/, whose files are taken as they are"
                )
    return ""


@contextlib.contextmanager
def download_shown(progress: Progress) -> Iterator[None]:
    """Replaces torchvision's progress bar, which fills a log with lines, by ours."""
    from torchvision.datasets import utils

    class Bar:
        """What torchvision asks of tqdm. A file's end is followed by its check and its unpacking."""

        def __init__(self, total: int | None, **_: Any):
            self.total, self.done = total, 0

        def __enter__(self) -> Bar:
            return self

        def update(self, count: int) -> None:
            self.done += count
            progress("downloading (MB)", self.done // MEGABYTE, self.total and -(-self.total // MEGABYTE))

        def __exit__(self, error: object, *_: object) -> None:
            if error is None:
                progress("checking and unpacking", 0, None)

    original, utils.tqdm = utils.tqdm, Bar
    try:
        yield
    finally:
        utils.tqdm = original


def downloading(constructor: type, allowed: bool) -> dict[str, bool]:
    """The argument that says so, of a set that can be downloaded: some do it unless told not to."""
    accepted = inspect.signature(constructor).parameters
    return {"download": allowed} if "download" in accepted or constructor.__name__ in ("EMNIST", "QMNIST") else {}


def shorten(error: Exception) -> str:
    """The first line of an error, without torchvision's advice in its own terms."""
    return re.sub(r"\.?\s*You can use download=True to download it\.?", "", first_line(error)).rstrip(" :.")
