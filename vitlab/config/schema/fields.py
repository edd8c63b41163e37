"""Declaring the fields of settings: default, range, unit, what a value changes."""

import dataclasses
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union

from omegaconf import MISSING
from typing_extensions import dataclass_transform

Extent = Union[int, list[int]]  # a square's side, or [height, width]
LARGEST_IMAGE = 2**16  # pixels a side; a larger number is a mistake, and would take long to count divisors of
LARGEST_LAYER = 2**20  # the same for widths
LARGEST_LENGTH = 2**20  # tokens of a sequence
LARGEST_DEPTH = 256  # layers; a larger number is a mistake, and would take minutes to count
Modality = Literal["image", "text"]

WEIGHTS = "weights"  # a run's final weights: the setting is part of the run's identity
COST = "cost"  # the time or memory of a step
CACHE = "cache"  # what the cache holds of a data set
NO_EFFECT = ""
ON = "on"  # in `when`: any value but null, 0, false and an empty list
KINDS: dict[tuple[str, str], type] = {}  # (group, kind) -> the dataclass of its settings; "" is for all other kinds
T = TypeVar("T")


def setting(
    default: Any = MISSING,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    affects: str = f"{WEIGHTS} {COST} {CACHE}",
    per: Literal["run", "study"] = "run",
    fixed: bool = False,
    path: bool = False,
    group: str = "",
    when: Mapping[str, Container[Any]] | None = None,
) -> Any:
    """Declare a field of a settings dataclass; each instance copies a list or dict, and calls a class, as default.

    least, most (inclusive), above, below (exclusive): limits of a number, or of each number of a list. affects: what a
    value changes, some of WEIGHTS, COST and CACHE. per: "study" if all runs of a study have the same value. fixed:
    the value belongs to the choice of a group, and cannot be set beside it. path: names a file or folder of data.
    group: holds a whole choice of that group. when: the field acts only where each of these keys beside it has one of
    these values, or is ON.
    """
    limits = {"least": least, "most": most, "above": above, "below": below}
    metadata = {key: limit for key, limit in limits.items() if limit is not None}
    metadata |= {"affects": frozenset(affects.split()), "per": per, "fixed": fixed, "path": path, "group": group}
    metadata["when"] = when or {}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def default_of(field: dataclasses.Field) -> Any:
    """Return the value that a field holds if nobody sets it."""
    return field.default if field.default_factory is NO_DEFAULT else field.default_factory()


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def choice(group: str, *kinds: str) -> Callable[[type[T]], type[T]]:
    """Declare a frozen dataclass as the settings of these kinds of a group; the kind "" stands for all others."""

    def declare(settings: type[T]) -> type[T]:
        declared = dataclass(frozen=True)(settings)
        KINDS.update(((group, kind), declared) for kind in kinds)
        return declared

    return declare


@dataclass(frozen=True)
class Choice:
    """A choice of a group: its name, and the module (`kind`) that implements it."""

    name: str = setting(affects=WEIGHTS)
    kind: str = setting(fixed=True)
