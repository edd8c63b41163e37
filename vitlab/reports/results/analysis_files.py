"""What analyses found in a run, for its pages: numbers of heads, maps over pictures, receptive fields.

They lie in the run's analysis/, or in analysis/trained/ where `vitlab analyze` put them later. What is malformed comes
back as UserError that names the file.

Shapes: B images, L layers, H heads, gy x gx patches.
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError
from vitlab.config.errors import first_line
from vitlab.reports.results import study_results
from vitlab.training.files import RunFiles

MAPS = "attention_maps"
OVER_PATCHES = ("attention_distance", MAPS, "head_types", "rollout")  # apply to every model with such attention
OVER_TOKENS = ("attention_entropy", "head_patterns")
AGAIN = f"delete it, then vitlab analyze RUN {MAPS}"
LARGEST = 1_000_000_000  # bytes of a file's arrays: those of 128 pictures are some megabytes


@dataclass(frozen=True)
class Maps:
    """Attention over the pictures: maps (B, L, H, gy, gx), rollout (B, L, gy, gx), float32, shares in 0..1.

    `pictures` are uint8 (B, C, Y, X), `names` their classes. `class_token`: whether it is its attention, rather than
    the mean of the patches'.
    """

    maps: np.ndarray
    rollout: np.ndarray
    pictures: np.ndarray
    names: list[str]
    class_token: bool


def places(run: RunFiles) -> Iterator[RunFiles]:
    """Where findings of a run may lie: first what its training left, then what was added."""
    yield run
    added = RunFiles(run.folder)
    added.analysis_folder = run.analysis_folder / "trained"
    yield added


def of_heads(run: RunFiles, name: str) -> dict[str, Any] | None:
    """`{"unit", "rows"}` of an analysis with a row per head, of the trained model alone. Raises UserError."""
    for place in places(run):
        found = study_results.analysis(place, name)
        if found is not None and found["rows"]:
            last = max(row["step"] for row in found["rows"])
            return {**found, "rows": [row for row in found["rows"] if row["step"] == last]}
    return None


def maps(run: RunFiles) -> Maps | None:
    """What attention_maps found, or None where it did not run. Raises UserError."""
    path = file_of(run, f"{MAPS}.npz")
    return None if path is None else read_maps(path)


def file_of(run: RunFiles, name: str) -> Path | None:
    """A file of findings, where it is there."""
    paths = (place.analysis_folder / name for place in places(run))
    return next((path for path in paths if path.is_file()), None)


def read_maps(path: Path) -> Maps:
    """The arrays of a file, checked: it may come from elsewhere. Raises UserError."""
    arrays = read_arrays(path, ("maps", "rollout", "pictures", "names", "class_token"))
    if any(arrays[name].dtype.kind != "f" for name in ("maps", "rollout")) or arrays["names"].dtype.kind != "U":
        raise UserError(f"{path}: expected maps and rollout of floats and names of text; {AGAIN}")
    if arrays["class_token"].shape or arrays["class_token"].dtype.kind not in "bu" or arrays["names"].ndim != 1:
        raise UserError(f"{path}: expected class_token of one 0 or 1 and a list of names; {AGAIN}")
    found = Maps(
        maps=arrays["maps"].astype(np.float32),
        rollout=arrays["rollout"].astype(np.float32),
        pictures=arrays["pictures"],
        names=arrays["names"].tolist(),
        class_token=bool(arrays["class_token"]),
    )
    shape, images = found.maps.shape, found.pictures
    if (
        len(shape) != 5
        or not found.maps.size
        or found.rollout.shape != (*shape[:2], *shape[3:])
        or images.dtype != np.uint8
        or images.ndim != 4
        or not images.size
        or not len(images) == len(found.names) == shape[0]
        or not all(part.min() >= 0 and part.max() <= 1.001 for part in (found.maps, found.rollout))  # false of NaN
    ):
        raise UserError(
            f"{path}: expected maps (B, L, H, gy, gx) and rollout (B, L, gy, gx) of shares, B pictures and names; "
            f"{AGAIN}"
        )
    return found


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays of a .npz file, by their names. Raises UserError for what is damaged or far too large."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LARGEST:
            raise UserError(
                f"{path}: unpacks to {unpacked / 1e9:.1f} GB, more than the {LARGEST / 1e9:g} GB that are read; {AGAIN}"
            )
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except UserError:
        raise
    except Exception as error:  # what is damaged fails in as many ways as there are parts: zip, zlib, header, shape
        raise UserError(f"{path}: cannot read it: {first_line(error)}; {AGAIN}") from None


def of_texts(config: dict[str, Any]) -> bool:
    """Whether a run's data are texts."""
    data = config.get("data")
    return isinstance(data, dict) and data.get("modality") == "text"


def lacks_attention(run: RunFiles, config: dict[str, Any]) -> bool:
    """Whether an analysis of attention over tokens, or over patches, was asked for and did not apply to the model."""
    asked = set(OVER_TOKENS if of_texts(config) else OVER_PATCHES) & set(config.get("analyses") or [])
    return bool(asked) and not any((run.analysis_folder / f"{name}.json").is_file() for name in asked)
