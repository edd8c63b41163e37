"""Identity of a run: a hash of the settings that change its final weights, and of its data's content.

It has helpers for dotted keys of nested settings, too.
"""

import copy
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from vitlab.config.groups import affecting, select
from vitlab.config.schema import TrainConfig
from vitlab.config.schema.fields import WEIGHTS


def flatten(settings: Mapping[str, Any], path: str = "", choices: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) pairs: `recipe: {lr: 1}` is `recipe.lr: 1`. A choice of a group, which has a name,
    stays whole unless `choices` are flattened too.
    """
    for key, value in settings.items():
        if isinstance(value, Mapping) and (choices or "name" not in value):
            yield from flatten(value, f"{path}{key}.", choices)
        else:
            yield f"{path}{key}", value


def get_value(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key in plain containers; None if there is none."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


PARTS = "trainer.devices x nodes x accumulate"


def identity(config: Mapping[str, Any], data_hash: str) -> str:
    """Hash all that changes a run's final weights to 16 hexadecimal digits.

    `config` is resolved; `data_hash` is the SHA-256 of the data, which stands for their path.
    """
    settings = {**weight_settings(config, contents_known=True), "contents": data_hash}
    if settings[PARTS] == 1:
        del settings[PARTS]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def weight_settings(config: Mapping[str, Any], *, contents_known: bool) -> dict[str, Any]:
    """Select the part of a run's resolved configuration that changes its final weights.

    The data's path does not count if `contents_known`: their contents are compared. It counts for a data set of the
    user's own module, whose contents cover the labels alone. `PARTS` is the number of parts of a batch.
    """
    settings = select(copy.deepcopy(dict(config)), TrainConfig, affecting(WEIGHTS))
    if subset_seed(config) == config["seed"] or takes_all(config):
        settings.pop("subset_seed", None)
    recipe = config.get("recipe") or {}
    if recipe.get("patience") is not None or recipe.get("keep", "last") != "last":  # evaluations choose the weights
        settings["trainer"]["evaluations"] = config["trainer"]["evaluations"]
        if (metric := config["task"].get("metric")) is not None:  # and choices go by it
            settings["task"]["metric"] = metric
    if contents_known and "." not in config["data"]["kind"]:
        settings |= select({"data": settings["data"]}, TrainConfig, lambda field: not field.metadata["path"])
    return {**settings, PARTS: count_parts(config.get("trainer") or {})}


def count_parts(trainer: Mapping[str, Any]) -> int:
    """Count the parts in which a batch is computed, each with random numbers of its own."""
    return math.prod(trainer.get(key, 1) for key in ("devices", "nodes", "accumulate"))


def takes_all(config: Mapping[str, Any]) -> bool:
    """Tell whether a run trains on the same items and labels with any `subset_seed`."""
    return config.get("train_size") == "all" and not config["data"].get("label_noise")


def subset_seed(config: Mapping[str, Any]) -> int:
    """Return the seed of a run's training subset: its own if the configuration gives one, else the run's."""
    return config["seed"] if config.get("subset_seed") is None else config["subset_seed"]


def list_changes(new: Mapping[str, Any], old: Mapping[str, Any], path: str = "") -> list[str]:
    """List `key old -> new` of each leaf that differs between two resolved configurations."""
    changes = []
    for key in dict.fromkeys([*new, *old]):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            changes += list_changes(b, a, f"{path}{key}.")
        elif a != b:
            changes.append(f"{path}{key} {a} -> {b}")
    return changes
