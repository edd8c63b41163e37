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
    """All files below a folder in no order, links followed, hidden ones (.DS_Store, ._photo.jpg) left out."""
    pending = [os.fspath(folder)]
    entered = set()
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                shown = [e for e in entries if not e.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        for entry in shown:
            if entry.is_dir():
                # a link may lead back to a folder above it
                identity = (entry.stat().st_dev, entry.stat().st_ino) if entry.is_symlink() else entry.path
                if identity not in entered:
                    entered.add(identity)
                    pending.append(entry.path)
            elif entry.is_file() and (not extensions or entry.name.lower().endswith(extensions)):
                yield entry
