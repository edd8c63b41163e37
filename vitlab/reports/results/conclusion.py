"""What a study found, as `vitlab scale` prints it, kept beside its report.

The same start again, on the same data and by the same program, says it again at once while no file of the study has
changed: nothing is planned, fitted or drawn. It is a cache: where it is damaged or gone, the study is read anew.
Imports no torch, and neither scipy nor matplotlib.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

import vitlab
from vitlab.config import UserError, resolved
from vitlab.config.groups import config_dir
from vitlab.config.identity import drop_keys
from vitlab.data.cache.content_hash import contents
from vitlab.data.cache.file_stats import stat_files
from vitlab.data.opening import open_data
from vitlab.files import read_json, write_json

KEPT = ".conclusion.json"  # hidden, like leases: `stat_files` leaves those out
SOURCES = (".py", ".j2", ".js", ".css", ".yaml")


@dataclass(frozen=True)
class Conclusion:
    """`plan` says what was asked for; the table is that of `make_size_table`, empty where no run has finished."""

    plan: str
    header: list[str]
    body: list[list[str]]
    note: str
    says: list[str]  # sentences
    places: list[str]  # where the files are

    def keep(self, folder: Path, config: DictConfig) -> None:
        """Keep what the start of a configuration has found, once all files of the study are written."""
        with contextlib.suppress(OSError):  # another start may remove a file meanwhile; the next one reads all anew
            write_json(folder / KEPT, {**identify(folder, config), "found": asdict(self)})


def recall(folder: Path, config: DictConfig, console: Console | None = None) -> Conclusion | None:
    """What the last start has found, if this one is the same and nothing has changed since. Raises UserError."""
    if not is_unchanged(folder):
        return None
    kept = read_json(folder / KEPT)
    return Conclusion(**kept["found"]) if kept["start"] == identify(folder, config, console)["start"] else None


@contextlib.contextmanager
def redrawn(folder: Path) -> Iterator[None]:
    """The study's report is drawn again: what is kept is as true afterwards as it was before."""
    true = is_unchanged(folder)
    yield
    if true:
        write_json(folder / KEPT, {**read_json(folder / KEPT), "files": digest(stat_files(folder))})


def is_unchanged(folder: Path) -> bool:
    """Whether no file has changed since a conclusion was kept."""
    try:
        kept = read_json(folder / KEPT)
        return isinstance(kept, Mapping) and kept.get("files") == digest(stat_files(folder))
    except (UserError, OSError):  # damaged, or another start changes the folder
        return False


def identify(folder: Path, config: DictConfig, console: Console | None = None) -> dict[str, str]:
    """What the start of a study depends on: what is asked for, the data, this program; and the study's files."""
    asked = drop_keys(resolved(config), ["settled"])
    data = contents(config.data, open_data(config.data, console))
    program = [stat_files(path, SOURCES) for path in (Path(vitlab.__file__).parent, config_dir())]
    return {"start": digest([str(folder), asked, data, program]), "files": digest(stat_files(folder))}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
