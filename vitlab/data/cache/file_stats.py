"""Files as seen from outside: which there are, how large, and when they last changed."""

import os
from collections.abc import Iterator
from pathlib import Path


def stamps(path: str | Path, extensions: tuple[str, ...] = ()) -> list[tuple[str, int, int]]:
    """(path below `path`, bytes, modification time in ns) of a file, or of all files in a folder, sorted.

    With `extensions` (lower case, with the dot) only of such files. Empty when there is nothing.
    """
    path = os.fspath(path)
    if os.path.isfile(path):
        found = os.stat(path)
        return [(os.path.basename(path), found.st_size, found.st_mtime_ns)]
    prefix = len(path.rstrip(os.sep)) + 1
    return sorted(
        (entry.path[prefix:], entry.stat().st_size, entry.stat().st_mtime_ns) for entry in files(path, extensions)
    )


def files(folder: str | Path, extensions: tuple[str, ...] = ()) -> Iterator[os.DirEntry]:
    """All files below a folder, links followed, hidden ones (.DS_Store, ._photo.jpg) left out; no order to rely on."""
    pending, entered = [os.fspath(folder)], set()
    while pending:
        current = pending.pop()
        try:
            status = os.stat(current)
            with os.scandir(current) as entries:
                shown = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name, reverse=True)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        if (status.st_dev, status.st_ino) in entered:  # by a link back to a folder above
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in shown:
            if entry.is_dir():
                pending.append(entry.path)
            elif entry.is_file() and (not extensions or entry.name.lower().endswith(extensions)):
                yield entry
