"""What the fields of configurations are declared with: limits, lists, sizes that are mistakes beyond."""

from dataclasses import dataclass, field
from typing import Any, Literal, Union

from omegaconf import MISSING

Extent = Union[int, list[int]]  # a square's side, or [height, width]
LARGEST_IMAGE = 2**16  # pixels a side; a larger number is a mistake, and would take long to count divisors of
LARGEST_LAYER = 2**20  # the same for widths
LARGEST_LENGTH = 2**20  # tokens of a sequence
LARGEST_DEPTH = 256  # layers; a larger number is a mistake, and would take minutes to count
Modality = Literal["image", "text"]


def ranged(default: Any, **limits: float) -> Any:
    """A field with `least=`, `most=` (inclusive), `above=` or `below=` (exclusive) limits."""
    return field(default=default, metadata=limits)


def items(*defaults: Any, **limits: float) -> Any:
    """A field that holds a list; limits hold for each item."""
    return field(default_factory=lambda: list(defaults), metadata=limits)


@dataclass
class Choice:
    """What every choice of a group has: its name, and the module (`kind`) that implements it."""

    name: str = MISSING
    kind: str = MISSING
