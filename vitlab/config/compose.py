"""From a schema and `key=value` overrides to a resolved, checked configuration."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config import groups
from vitlab.config.checks import auto_patch, image_size_of, problems_of
from vitlab.config.errors import UserError
from vitlab.config.schema import BudgetConfig

SLOTS = {"model": "model", "data": "data", "task": "task", "recipe": "recipe", "model.mixer": "mixer"}
WITHOUT_EFFECT = ("wandb", "study")  # keys that do not change what a run computes


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` with a YAML value. Raises UserError."""
    key, equals, _ = text.partition("=")
    key = key.strip()
    if not equals or not all(part.isidentifier() for part in key.split(".")):
        raise UserError(f"'{text}' is not key=value")
    try:
        value = OmegaConf.select(OmegaConf.from_dotlist([text]), key)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise UserError(f"{text}: the value is not valid YAML: {' '.join(str(error).split())}") from None
    return key, OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def compose(schema: type, overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None) -> DictConfig:
    """The schema's defaults, then `base` (a mapping, as a YAML file holds), then the overrides.

    Groups are chosen before fields are set, whatever their order. All problems are raised at once, as UserError.
    """
    problems: list[str] = []
    config = OmegaConf.structured(schema)
    for key, value in (base or {}).items():
        problems += groups.assign(config, key, value)
    pairs: list[tuple[str, Any]] = []
    for text in overrides:
        try:
            pairs.append(parse_override(text))
        except UserError as error:
            problems += error.problems
    slots = {slot for slot in SLOTS if takes_choice(schema, slot)}
    failed, found = choose_groups(config, {k: v for k, v in pairs if k in slots}, slots)
    problems += found
    if any(key.startswith("budget.") for key, _ in pairs) and "budget" in config:
        config.budget = BudgetConfig()  # a unit that the user names replaces the default one
    for key, value in pairs:
        if key not in slots and not key.startswith(tuple(f"{slot}." for slot in failed)):
            problems += groups.assign(config, key, value)
    settle_patch(config)
    refused = any(line.startswith("budget.") for line in problems)
    problems += [line for line in problems_of(config) if not (refused and line.startswith("no budget"))]
    if problems:
        raise UserError(dict.fromkeys(problems))
    return config


def settle_patch(config: DictConfig) -> None:
    """Replace `model.patch_size=auto` by the number that it means, so that the resolved configuration says it."""
    size = image_size_of(config)
    if OmegaConf.select(config, "model.patch_size") == "auto" and size is not None:
        sides = [auto_patch(side) for side in size]
        config.model.patch_size = sides[0] if sides[0] == sides[1] else sides


def takes_choice(schema: type, slot: str) -> bool:
    """Whether the schema holds a whole choice at this slot, rather than only its name."""
    field = schema.__dataclass_fields__.get(slot.partition(".")[0])
    return field is not None and field.type is Any


def choose_groups(config: DictConfig, chosen: dict[str, Any], slots: set[str]) -> tuple[list[str], list[str]]:
    """Replace the name at each slot by the loaded choice; gives the slots that failed, and the problems."""
    failed: list[str] = []
    problems: list[str] = []
    for slot, group in SLOTS.items():
        parent_slot, _, key = slot.rpartition(".")
        parent = OmegaConf.select(config, parent_slot) if parent_slot else config
        if slot not in slots or not isinstance(parent, DictConfig) or key not in parent:
            continue
        choice = chosen.get(slot, parent[key])
        if choice is None and slot == "recipe":
            # with a model that failed, any recipe will do: it lets the recipe's keys be checked all the same
            choice = config.model.recipe if isinstance(config.model, DictConfig) else "adamw"
        if choice is None:
            continue
        if isinstance(choice, DictConfig):
            choice = OmegaConf.to_container(choice)
        try:
            parent[key] = groups.load(group, choice if isinstance(choice, dict) else str(choice), key=slot)
        except UserError as error:
            failed.append(slot)
            problems += error.problems
    return failed, problems


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A resolved configuration that was written by `write_yaml`, as plain containers. Raises UserError."""
    try:
        found = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot read the configuration: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a configuration")
    return found


def resolved(config: DictConfig) -> dict[str, Any]:
    """Plain containers, every key present."""
    return OmegaConf.to_container(config, resolve=True)


def differences(new: Mapping[str, Any], old: Mapping[str, Any], path: str = "") -> list[str]:
    """`key old -> new` of each leaf that differs between two resolved configurations."""
    found = []
    for key in dict.fromkeys([*new, *old]):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(b, a, f"{path}{key}.")
        elif a != b:
            found.append(f"{path}{key} {a} -> {b}")
    return found


def identity(config: DictConfig) -> str:
    """A hash of all that changes what a run computes: 16 hexadecimal digits."""
    kept = {k: v for k, v in resolved(config).items() if k not in WITHOUT_EFFECT}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
