"""The settings that a run is tuned over: every combination of the values of `tune`, chosen on validation data."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from vitlab.config.keys import get_value

FACTOR = re.compile(r"x\d*\.?\d+")
TUNED = ("recipe", "model")  # whose keys can be


def list_settings(tune: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination, as dotted keys with a value each; one without keys where nothing is tuned."""
    return [dict(zip(tune, values, strict=True)) for values in product(*tune.values())]


def check_tune(tune: Mapping[str, Any]) -> Iterator[str]:
    """Keys that cannot be tuned, and values that are no list of different ones."""
    for key, values in tune.items():
        if key.partition(".")[0] not in TUNED or "." not in key:
            example = "for example tune.recipe.lr=[0.001,0.01]"
            yield f"tune.{key}: cannot be tuned; give keys of {' or '.join(TUNED)}, {example}"
        elif not isinstance(values, list) or not values:
            shown = values if isinstance(values, list) else f"[{values}]"
            yield f"tune.{key}={values}: expected a list of at least one value, for example tune.{key}={shown or '[1]'}"
        elif twice := [value for index, value in enumerate(values) if value in values[:index]]:
            yield f"tune.{key}={values}: '{twice[0]}' is given twice"


def apply_factors(tune: Mapping[str, list[Any]], config: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values with each `x0.5` as that multiple of what the configuration has, so that one list fits all recipes."""

    def apply(value: Any, own: Any) -> Any:
        is_factor = isinstance(value, str) and FACTOR.fullmatch(value) and isinstance(own, int | float)
        return float(f"{own * float(value[1:]):.6g}") if is_factor else value

    return {key: [apply(value, get_value(config, key)) for value in values] for key, values in tune.items()}


def read_choice(config: Mapping[str, Any], tune: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a resolved configuration has of the tuned keys."""
    return {key: get_value(config, key) for key in tune}
