"""The dataclass of each kind of a group, and what its fields say of the keys of a plain configuration."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.config import schema
from vitlab.config.errors import UserError
from vitlab.config.schema.fields import MISSING, Choice

PACKAGE = Path(__file__).resolve().parents[2]
FOLDERS = {  # of the modules of a group's kinds
    "model": ["models"],
    "data": ["data/images", "data/text"],
    "task": ["tasks"],
    "mixer": ["models/mixers"],
    "analysis": ["analysis"],
    "probe": ["analysis/probes"],
}


@cache
def base_classes() -> dict[str, type[Choice]]:
    """The dataclass that all kinds of a group derive from; of other groups that is Choice."""
    from vitlab.config.schema import data, models  # 26 dataclasses, 50 ms that `vitlab list` need not wait for

    return {
        "model": models.ModelConfig,
        "data": data.DataConfig,
        "task": schema.TaskConfig,
        "analysis": schema.AnalysisConfig,
        "recipe": schema.RecipeConfig,
    }


@cache
def shipped_classes() -> dict[tuple[str, str], type[Choice]]:
    """The dataclasses of this package that are of one kind, by group and kind."""
    from vitlab.config.schema import data, models

    members = [member for module in (models, data, schema) for member in vars(module).values()]
    classes = [member for member in members if isinstance(member, type) and issubclass(member, Choice)]
    return {
        (group, member.kind): member
        for group, base in base_classes().items()
        for member in classes
        if issubclass(member, base) and member.kind != MISSING
    }


def find_class(group: str, kind: str, modality: str | None = None) -> type[Choice]:
    """The dataclass of a kind: the schema's, the one named `Config` in the kind's module, or that of the group.

    Raises UserError for a `Config` that is none.
    """
    base = base_classes().get(group, Choice)
    return shipped_classes().get((group, kind)) or own_class(group, kind, base) or general_class(group, base, modality)


def general_class(group: str, base: type[Choice], modality: str | None) -> type[Choice]:
    if group == "data":
        from vitlab.config.schema import data

        return data.TextDataConfig if modality == "text" else data.ImageDataConfig
    return base


@cache
def own_class(group: str, kind: str, base: type[Choice]) -> type[Choice] | None:
    """The `Config` of the module of a kind, this package's or a user's own, which may import what it likes."""
    name = kind if "." in kind else find_module(group, kind)
    if name is None:
        return None
    try:
        module = importlib.import_module(name)
    except Exception:  # whoever builds the choice says why
        return None
    config_class = getattr(module, "Config", None)
    if config_class is None:
        return None
    if not (
        isinstance(config_class, type) and dataclasses.is_dataclass(config_class) and issubclass(config_class, base)
    ):
        raise UserError(f"kind={kind}: its Config is not a frozen dataclass with the base {base.__name__}")
    return config_class


def find_module(group: str, kind: str) -> str | None:
    """The module of this package for a kind, if it defines a `Config`; it is not imported, which may take seconds."""
    for folder in FOLDERS.get(group, ()):
        path = PACKAGE / folder / f"{kind}.py"
        if path.is_file() and "\nclass Config(" in path.read_text():
            return f"vitlab.{folder.replace('/', '.')}.{kind}"
    return None


def select(settings: Mapping[str, Any], parent: type, wanted: Callable[[Field], bool]) -> dict[str, Any]:
    """The part of a plain configuration of this class whose fields are wanted; keys that no class declares stay."""
    fields = {field.name: field for field in dataclasses.fields(parent)}
    selected = {}
    for key, value in settings.items():
        field = fields.get(key)
        if field is not None and field.metadata and not wanted(field):
            continue
        below = class_below(field, value)
        selected[key] = select(value, below, wanted) if below is not None else value
    return selected


def class_below(field: Field | None, value: Any) -> type | None:
    """The dataclass of a field's value, where it has one."""
    if field is None or not isinstance(value, Mapping):
        return None
    if (group := field.metadata.get("group")) and isinstance(value.get("kind"), str):
        return find_class(group, value["kind"], value.get("modality"))
    return field.type if dataclasses.is_dataclass(field.type) else None


def affecting(what: str) -> Callable[[Field], bool]:
    """Whether a field affects WEIGHTS, COST or CACHE, for `select`."""
    return lambda field: what in field.metadata["affects"]


def keys_per_study(parent: type) -> list[str]:
    """The fields that have the same value in all runs of a study."""
    return [field.name for field in dataclasses.fields(parent) if field.metadata.get("per") == "study"]
