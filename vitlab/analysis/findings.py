"""What an analysis of a model found, with the pictures that it looked at: all that its drawings need.

Shapes: B images, C channels, Y x X pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Findings:
    """`rows` and `arrays` are as the analysis gave them; either may be empty."""

    name: str
    unit: str
    rows: list[dict[str, Any]]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    images: np.ndarray | None = None  # uint8 (B, C, Y, X), before normalisation; None of texts
    labels: np.ndarray | None = None  # int64 (B,)
    classes: Sequence[str] = ()  # their names

    @property
    def array(self) -> np.ndarray:
        """The first array, which is the one to draw."""
        return next(iter(self.arrays.values()))

    @classmethod
    def of(cls, found: list[dict[str, Any]] | dict[str, Any], **others: Any) -> "Findings":
        """From what an analysis's `run` gives."""
        if isinstance(found, list):
            return cls(rows=found, **others)
        arrays = {key: value for key, value in found.items() if key != "rows"}
        return cls(rows=found.get("rows", []), arrays=arrays, **others)
