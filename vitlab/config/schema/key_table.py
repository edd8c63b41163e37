"""All keys with their type, range, default and comment, as the dataclasses and the YAML files say them."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import Field, dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from vitlab.config.errors import to_text
from vitlab.config.groups import choose_class, config_dir, names, read
from vitlab.config.schema.fields import MISSING, default_of
from vitlab.config.schema.kinds import Choice, base_classes

WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text", Any: "any"}


@dataclass(frozen=True)
class Key:
    """A key below its class or group: `budget.steps`."""

    name: str
    type: str  # with the range and the unit
    default: str
    about: str


def list_keys(parent: type, path: str = "", values: dict[str, Any] | None = None, comments: str = "") -> Iterator[Key]:
    """The keys of a dataclass, in order; those of a dataclass in it follow in its place.

    `values` and `comments` are those of a YAML file, which come before the dataclass's.
    """
    about = {**read_class_comments(parent), **read_comments(comments)}
    for field in dataclasses.fields(parent):
        if dataclasses.is_dataclass(field.type):
            yield from list_keys(field.type, f"{path}{field.name}.")
        else:
            default = (values or {}).get(field.name, default_of(field))
            shown = "required" if default == MISSING else to_text(default)
            yield Key(f"{path}{field.name}", describe_type(field), shown, about.get(field.name, ""))


def list_kind_keys(group: str) -> Iterator[tuple[str, list[Key]]]:
    """The keys of all kinds of a group by the kind, "" for those that all have."""
    base = base_classes().get(group, Choice)
    common = {field.name for field in dataclasses.fields(base)}
    yield "", list(list_keys(base))
    if group == "recipe":
        return
    kinds: dict[str, dict[str, Any]] = {}
    for name in names(group):
        by_kind = read(group, name, group)
        if name == by_kind["kind"] or by_kind["kind"] not in kinds:
            kinds[by_kind["kind"]] = by_kind
    for kind, by_kind in sorted(kinds.items()):
        file = config_dir() / group / f"{kind}.yaml"
        values, comments = (by_kind, file.read_text()) if file.is_file() else ({}, "")
        keys = list_keys(choose_class(group, kind, by_kind), values=values, comments=comments)
        if own_keys := [key for key in keys if key.name.partition(".")[0] not in common]:
            yield kind, own_keys


def describe_type(field: Field) -> str:
    """`number, from 0, below 1`, `whole number of steps or null`, `adamw, sgd or muon`."""
    if group := field.metadata.get("group"):
        return f"{group}: a name, a file or {{name: NAME, KEY: VALUE}}"
    limits = [("least", "from"), ("above", "above"), ("most", "to"), ("below", "below")]
    shown = [f"{word} {format_limit(field.metadata[key])}" for key, word in limits if key in field.metadata]
    unit = f" of {field.metadata['unit']}" if field.metadata.get("unit") else ""
    return ", ".join([name_type(field.type) + unit, *shown])


def format_limit(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def name_type(declared: Any) -> str:
    origin, args = get_origin(declared), get_args(declared)
    if origin is Literal:
        return ", ".join(map(str, args))
    if origin in (Union, UnionType):
        return " or ".join("null" if member is type(None) else name_type(member) for member in args)
    if origin is list:
        return f"list of {name_type(args[0])}"
    if origin is dict:
        return "mapping"
    return WORDS.get(declared, declared.__name__)


def read_class_comments(parent: type) -> dict[str, str]:
    """The comment of each field in a dataclass's source, and in that of its bases."""
    comments: dict[str, str] = {}
    for parent_class in reversed(parent.__mro__):
        try:
            comments |= read_comments(inspect.getsource(parent_class)) if dataclasses.is_dataclass(parent_class) else {}
        except (OSError, TypeError):  # made from a YAML file
            continue
    return comments


def read_comments(text: str) -> dict[str, str]:
    """The comment beside each `key: ...` of a dataclass or a YAML file, or on the lines above it."""
    comments, above = {}, []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            above.append(line.strip().lstrip("# "))
            continue
        if match := re.match(r"\s*(\w+):.*?(?:\s#\s+(.*))?$", line):
            beside = [match[2].strip()] if match[2] else []
            if above or beside:
                comments[match[1]] = " ".join([*above, *beside])
        above = []
    return comments
