"""Values outside the limits that the fields of a node declare, and values that are missing."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from vitlab.config.assign import declared_type
from vitlab.config.errors import IS_MISSING, Problem


def check_ranges(node: DictConfig, path: str = "") -> Iterator[str]:
    """Values outside the limits that the dataclass of each node declares."""
    schema = OmegaConf.get_type(node)
    declared = {field.name: field for field in fields(schema)} if is_dataclass(schema) else {}
    for key in node:
        if OmegaConf.is_missing(node, key):
            continue
        value, name = node[key], f"{path}{key}"
        if isinstance(value, DictConfig):
            yield from check_ranges(value, f"{name}.")
        limits = declared[key].metadata if key in declared else {}
        single = key in declared and declared_type(node, key)[0] != list[Any]
        for item in value if isinstance(value, ListConfig) else [value]:
            if isinstance(item, (int, float)) and not isinstance(item, bool):
                yield from check_limits(name, item, limits)
            elif isinstance(item, bytes):
                yield Problem(name, value, "expected text")
            elif single and isinstance(value, ListConfig) and OmegaConf.is_config(item):
                yield Problem(name, value, f"expected a list of single values, not of {item}")


def check_limits(name: str, value: float, limits: Any) -> Iterator[str]:
    if value != value or value in (float("inf"), float("-inf")):
        yield Problem(name, value, "must be a finite number")
    elif "least" in limits and value < limits["least"]:
        yield Problem(name, value, f"must be at least {limits['least']}")
    elif "above" in limits and value <= limits["above"]:
        yield Problem(name, value, f"must be above {limits['above']}")
    elif "most" in limits and value > limits["most"]:
        yield Problem(name, value, f"must be at most {limits['most']}")
    elif "below" in limits and value >= limits["below"]:
        yield Problem(name, value, f"must be below {limits['below']}")


def check_missing(node: DictConfig, path: str = "") -> Iterator[Problem]:
    for key in sorted(OmegaConf.missing_keys(node)):
        yield Problem(f"{path}{key}", IS_MISSING, f"give {path}{key}=VALUE")
