"""Dotted keys of nested settings."""

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value): `recipe: {lr: 1}` is `recipe.lr: 1`; a choice of a group, which has a name, stays whole."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and "name" not in value:
            yield from flatten(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def get_value(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key in plain containers; None where there is none."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def list_leaves(settings: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The dotted keys of all single values, those of a group's choice too."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from list_leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"
