"""What an analysis of a model found, with the pictures that it looked at: all that its drawings need.

Shapes: B images, C channels, Y x X pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Findings:
    """`rows`, `arrays` and `references` are as the analysis gave them; any may be empty."""

    name: str
    unit: str
    rows: list[dict[str, Any]]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    images: np.ndarray | None = None  # uint8 (B, C, Y, X), before normalisation; None of texts
    labels: np.ndarray | None = None  # int64 (B,)
    classes: Sequence[str] = ()  # their names
    references: dict[str, float] = field(default_factory=dict)  # values of known cases by name, in the unit of the rows

    @property
    def array(self) -> np.ndarray:
        """The first array, which is the one to draw."""
        return next(iter(self.arrays.values()))

    def to_dict(self) -> dict[str, Any]:
        """What a run's analysis/NAME.json holds."""
        document = {"name": self.name, "unit": self.unit, "rows": self.rows}
        return {**document, "references": self.references} if self.references else document

    def with_pictures(self, side: int) -> "Findings":
        """With the images as an array "pictures" uint8 (B, C, y, x), no side longer than that, and their "names"."""
        assert self.images is not None, "texts have no pictures"
        labels = [] if self.labels is None else self.labels
        names = [str(self.classes[label]) for label in labels] or [""] * len(self.images)
        return replace(
            self,
            arrays={**self.arrays, "pictures": shrink_images(self.images, side), "names": np.array(names, dtype=str)},
        )

    @classmethod
    def of(cls, found: list[dict[str, Any]] | dict[str, Any], **others: Any) -> "Findings":
        """From what an analysis's `run` gives."""
        if isinstance(found, list):
            return cls(rows=found, **others)
        plain = {key: found[key] for key in ("rows", "references") if key in found}
        arrays = {key: value for key, value in found.items() if key not in plain}
        return cls(**{"rows": [], **plain}, arrays=arrays, **others)


def shrink_images(images: np.ndarray, side: int) -> np.ndarray:
    """Images uint8 (B, C, Y, X) made smaller, where that is needed for a longer side of at most `side` pixels."""
    height, width = images.shape[-2:]
    factor = side / max(height, width)
    if factor >= 1:
        return images
    size = max(1, round(factor * width)), max(1, round(factor * height))
    channels = [Image.fromarray(channel).resize(size, Image.Resampling.LANCZOS) for channel in np.concatenate(images)]
    return np.stack([np.asarray(channel) for channel in channels]).reshape(*images.shape[:2], *size[::-1])
