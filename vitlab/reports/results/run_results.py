"""What one run left: its configuration, result, metrics and analyses, each file read once, when it is asked for.

Analyses lie in the run's analysis/, or in analysis/trained/ where `vitlab analyze` added them later.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.config import UserError, read_yaml
from vitlab.config.errors import first_line
from vitlab.files import read_json
from vitlab.studies.outcomes import Outcomes, read_outcomes
from vitlab.training.files import RunFiles

MAPS = "attention_maps"
OVER_PATCHES = ("attention_distance", MAPS, "head_types", "rollout")  # apply to every model with such attention
OVER_TOKENS = ("attention_entropy", "head_patterns")


@dataclass(frozen=True)
class AttentionMaps:
    """Attention over B images: maps (B, L, H, gy, gx), rollout (B, L, gy, gx), float32, shares in 0..1.

    L layers, H heads, gy x gx patches. `pictures` are uint8 (B, C, Y, X), `names` their classes. `class_token`: whether
    it is the class token's attention, rather than the mean of the patches'.
    """

    maps: np.ndarray
    rollout: np.ndarray
    pictures: np.ndarray
    names: list[str]
    class_token: bool


class RunResults:
    """A run's files as values. A file that is gone is empty or None; one that does not parse raises UserError."""

    def __init__(self, files: RunFiles):
        self.files = files
        self._analyses: dict[Path, dict[str, Any] | None] = {}

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.yaml."""
        return read_yaml(self.files.config_path) if self.files.config_path.is_file() else {}

    @cached_property
    def result(self) -> dict[str, Any]:
        """result.json; empty where it is damaged."""
        return self.files.read_result()[0] or {}

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return self.files.metrics()

    @cached_property
    def outcomes(self) -> Outcomes | None:
        """What it gave on each test item."""
        return read_outcomes(self.files.heldout_path)

    @property
    def generated(self) -> list[dict[str, str]]:
        """`{"source", "reference", "generated"}` of each test item of a task that generates texts; else empty."""
        return read_json(self.files.generated_path) or []

    @property
    def wandb(self) -> dict[str, Any]:
        """`mode`, and `id`, `path` or `url` of the run in W&B; empty for a run that was not logged there."""
        return self.result.get("wandb") or {}

    @property
    def analyses(self) -> list[str]:
        """Names of the analyses that the training left."""
        return sorted(path.stem for path in self.files.analysis_folder.glob("*.json"))

    def analysis(self, name: str) -> dict[str, Any] | None:
        """`{"name", "unit", "rows": [{"step", "layer", "head", "value"}, ...]}`; None without rows of heads."""
        return self._read_heads(self.files.analysis_folder / f"{name}.json")

    def last_analysis(self, name: str) -> dict[str, Any] | None:
        """An analysis of heads of the trained model alone, also where it was added later."""
        for path in self._places(f"{name}.json"):
            if heads := self._read_heads(path):
                last = max(row["step"] for row in heads["rows"])
                return {**heads, "rows": [row for row in heads["rows"] if row["step"] == last]}
        return None

    def attention_maps(self) -> AttentionMaps | None:
        """The arrays of the analysis attention_maps, which are not kept in memory; None where it did not run."""
        path = self.find_file(f"{MAPS}.npz")
        if path is None:
            return None
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return AttentionMaps(
                    maps=arrays["maps"].astype(np.float32),
                    rollout=arrays["rollout"].astype(np.float32),
                    pictures=arrays["pictures"],
                    names=arrays["names"].tolist(),
                    class_token=bool(arrays["class_token"]),
                )
        except Exception as error:  # a damaged file fails in zip, zlib, the header or the shape
            again = f"delete it, then vitlab analyze {self.files.folder} {MAPS}"
            raise UserError(f"{path}: cannot read it: {first_line(error)}; {again}") from None

    def find_file(self, name: str) -> Path | None:
        """A file of an analysis, where it is there."""
        return next((path for path in self._places(name) if path.is_file()), None)

    @property
    def reads_text(self) -> bool:
        return (self.config.get("data") or {}).get("modality") == "text"

    @property
    def lacks_attention(self) -> bool:
        """Whether an analysis of attention over tokens or patches was asked for and did not apply to the model."""
        wanted = set(OVER_TOKENS if self.reads_text else OVER_PATCHES) & set(self.config.get("analyses") or [])
        return bool(wanted) and not wanted & set(self.analyses)

    def _places(self, name: str) -> list[Path]:
        folder = self.files.analysis_folder
        return [folder / name, folder / "trained" / name]

    def _read_heads(self, path: Path) -> dict[str, Any] | None:
        if path not in self._analyses:
            document = read_json(path)
            self._analyses[path] = document if document and document["rows"] and "head" in document["rows"][0] else None
        return self._analyses[path]
