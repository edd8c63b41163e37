"""Files as seen from outside: which there are, how large, and when they last changed."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from vitlab.formatting import plural

SHOWN = 5  # broken links named in a warning


def stat_files(
    path: str | Path, extensions: tuple[str, ...] = (), broken: list[str] | None = None
) -> list[tuple[str, int, int]]:
    """(path below `path`, bytes, modification time in ns) of a file, or of all files in a folder, sorted.

    With `extensions` (lower case, with the dot) only of such files. Empty when there is nothing.
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
    """All files below a folder, links followed, hidden ones (.DS_Store, ._photo.jpg) left out; no order to rely on.

    Links that lead nowhere or in a circle are skipped, and their paths added to `broken`.
    """
    pending, entered = [os.fspath(folder)], set()
    while pending:
        current = pending.pop()
        try:
            status = os.stat(current)
            with os.scandir(current) as entries:
                shown = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name, reverse=True)
        except OSError:  # gone, not a folder, not readable, or a link to itself
            continue
        if (status.st_dev, status.st_ino) in entered:  # by a link back to a folder above
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in shown:
            has_extension = not extensions or entry.name.lower().endswith(extensions)
            if is_folder(entry):
                pending.append(entry.path)
            elif is_file(entry):
                if has_extension:
                    yield entry
            elif broken is not None and entry.is_symlink() and (has_extension or "." not in entry.name):
                broken.append(entry.path)


def is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def is_file(entry: os.DirEntry) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def warn_of_broken_links(source: str, folder: str | Path, broken: list[str]) -> None:
    """One warning that names the first of the links; `source` begins it, such as `data.root=photos`."""
    if broken:
        names = ", ".join(os.path.relpath(path, folder) for path in sorted(broken)[:SHOWN])
        more = f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        warnings.warn(f"{source}: skipped {plural(len(broken), 'broken link')}: {names}{more}", stacklevel=1)
