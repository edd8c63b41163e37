"""List the pictures to advise on, from a folder or from a table of labels. Imports no torch."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitlab.config import UserError, raise_all
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import Show
from vitlab.data.images import imagefolder, tables
from vitlab.data.look import read_pictures

if TYPE_CHECKING:
    from vitlab.data.look import Look, Picture


@dataclass(frozen=True)
class Pictures:
    """The N readable pictures. groups (N,): one number for copies, and for pictures that a table keeps together.

    held_out: bool (N,), True for test pictures; None if neither folder nor table names a test.
    """

    root: Path
    files: "list[Picture]"
    labels: np.ndarray
    classes: tuple[str, ...]
    groups: np.ndarray
    held_out: np.ndarray | None
    bits: int

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    @property
    def digests(self) -> list[str]:
        return [f"{file.digest:016x}" for file in self.files]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_table().encode()).hexdigest()

    @property
    def side(self) -> int:
        return int(np.median([min(file.height, file.width) for file in self.files]))

    def to_table(self) -> str:
        """Format the pictures as a CSV file for data=imagetable."""
        from pandas import DataFrame

        columns = {"file": self.paths, "label": [self.classes[label] for label in self.labels], "group": self.groups}
        columns["digest"] = self.digests
        if self.held_out is not None:
            columns["split"] = np.where(self.held_out, "test", "train")
        return DataFrame(columns).to_csv(index=False, lineterminator="\n")


def list_folder_pictures(root: Path, look: "Look", bits: int) -> Pictures:
    """List the pictures of a folder from a look at it; leave out training copies of test pictures."""
    groups = np.arange(len(look.pictures))
    for pair in sorted(look.pairs, key=lambda pair: pair.second):
        groups[pair.second] = groups[pair.first]
    parts = {folder: part for part, folder in imagefolder.find_splits(root).items()}
    tested = np.array([parts.get(part) == "test" for part, _ in look.places], dtype=bool)
    rows = np.flatnonzero(tested | ~np.isin(groups, groups[tested]))
    files, labels = [look.pictures[row] for row in rows], [look.classes.index(look.places[row][1]) for row in rows]
    held_out = tested[rows] if parts else None
    of_rows = np.array(labels, dtype=int), tuple(look.classes), groups[rows], held_out
    return Pictures(root.resolve(), files, *of_rows, bits)


def list_table_pictures(config: DataConfig, progress: Show) -> Pictures:
    """List the pictures of data=imagetable. Raises UserError, also for an unreadable file that is not left out."""
    rows = tables.read_pictures(config)
    root = Path(config.root).expanduser().resolve()
    files = read_pictures(root, [row[config.file] for row in rows], progress)
    if config.skip_unreadable:
        rows = [row for row, file in zip(rows, files, strict=True) if not file.error]
        files = [file for file in files if not file.error]
    raise_all([f"data.root={root}: cannot read {file.path}: {file.error}" for file in files if file.error])
    classes, labels, _ = tables.read_targets(config, rows)
    names = [row[config.group] if config.group else f"{file.digest}" for row, file in zip(rows, files, strict=True)]
    groups, held_out = np.unique(names, return_inverse=True)[1], None
    if config.split:
        held_out = tables.read_parts(config, rows) == "test"
        if held_out.all() or not held_out.any():
            raise UserError(f"data.split={config.split}: leaves no picture for training or for the test; give both")
    return Pictures(root, files, labels, classes, groups, held_out, config.bits)
