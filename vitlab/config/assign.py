"""Typed nodes of settings, and setting a dotted key of one; what is wrong comes back as problems."""

import dataclasses
import difflib
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config.errors import NO_VALUE, Problem, choices_text, to_text
from vitlab.config.schema import StudyConfig

EXPECTED = {int: "a whole number", float: "a number", bool: "true or false"}


def structured(settings: Any) -> DictConfig:
    """A node of a dataclass or of an instance. Those of frozen ones are read-only until they are unlocked."""
    node = OmegaConf.structured(settings)
    unlock(node)
    return node


def unlock(node: DictConfig) -> None:
    OmegaConf.set_readonly(node, False)
    for key in node:
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            unlock(node[key])


def assign(node: DictConfig, key: str, value: Any, prefix: str = "") -> list[Problem]:
    """Set one dotted key of a typed node; gives what is wrong with it."""
    key = str(key)
    parent, parts = node, key.split(".")
    for depth, part in enumerate(parts):
        at = ".".join(parts[:depth])
        if not isinstance(parent, DictConfig):
            return [Problem(key, NO_VALUE, f"'{at}' has no keys{suggest_set(node, key, value)}", prefix)]
        if is_open(parent):
            if depth < len(parts) - 1 and part not in parent:
                try:
                    parent[part] = {}
                except OmegaConfBaseException as error:  # a mapping of lists, such as `per_model`
                    return [Problem(key, value, explain(error), prefix)]
        elif part not in parent.keys():
            where = f" in '{at}'" if at else ""
            hint = suggest_set(node, key, value) or f"; {suggest_key(node, parent, at, part)}"
            return [Problem(key, NO_VALUE, f"no key '{part}'{where}{hint}", prefix)]
        if depth < len(parts) - 1:
            parent = read_value(parent, part)
    return set_value(node, parent, key, value, prefix)


def set_value(node: DictConfig, parent: DictConfig, key: str, value: Any, prefix: str) -> list[Problem]:
    """Set a key that is there, or one of an open mapping."""
    last = key.rpartition(".")[2]
    old, declared, optional = read_value(parent, last), *declared_type(parent, last)
    if isinstance(old, DictConfig) and not is_open(old):
        short = getattr(OmegaConf.get_type(old), "SHORTHAND", None)
        if short and not isinstance(value, (dict, list)):
            return assign(node, f"{key}.{short}", value, prefix)
        if not isinstance(value, dict):
            choices = choices_text("", [f"{key}.{name}" for name in old])
            return [Problem(key, value, f"set one of its keys instead; {choices}", prefix)]
        return [problem for name, item in value.items() for problem in assign(node, f"{key}.{name}", item, prefix)]
    if get_origin(declared) is list and value is not None and not isinstance(value, list):
        return [Problem(key, value, f"expected a list, for example {key}=[{value}]", prefix)]
    if isinstance(value, bool) and declared not in (bool, Any):
        value = "on" if value else "off"  # YAML 1.1 reads these words as booleans
    try:
        OmegaConf.update(node, key, value, merge=declared is not Any)
    except (OmegaConfBaseException, ValueError) as error:
        return [Problem(key, value, explain_type(declared, optional, old, value, error), prefix)]
    return []


def explain_type(declared: Any, optional: bool, old: Any, value: Any, error: Exception) -> str:
    """Why a value is not of a field's type."""
    if value is None and not optional:
        advice = "" if old is None else f", or leave it out for the default, {to_text(old)}"
        return f"must not be null; give a value{advice}"
    if get_origin(declared) is dict or (declared is Any and isinstance(old, DictConfig)):
        return "expected a mapping with text as keys, {KEY: VALUE, ...}"
    if get_origin(declared) is Literal:
        return choices_text(to_text(value), map(str, get_args(declared)))
    expected = EXPECTED.get(declared)
    return f"expected {expected}" if expected else explain(error)


def explain(error: Exception) -> str:
    """The message of an error in one line; OmegaConf's is its first."""
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join((lines[0] if isinstance(error, OmegaConfBaseException) else " ".join(lines)).split())


def is_open(node: DictConfig) -> bool:
    """Whether a node is a mapping of any keys, rather than a dataclass."""
    return not dataclasses.is_dataclass(OmegaConf.get_type(node))


def read_value(parent: DictConfig, key: str) -> Any:
    return None if key not in parent.keys() or OmegaConf.is_missing(parent, key) else parent[key]


def declared_type(parent: DictConfig, key: str) -> tuple[Any, bool]:
    """The type of a key without `None`, and whether it may be null. In an open mapping it is any."""
    if is_open(parent):
        return Any, True
    declared = OmegaConf.get_type(parent).__dataclass_fields__[key].type
    if get_origin(declared) in (Union, UnionType) and type(None) in get_args(declared):
        rest = tuple(member for member in get_args(declared) if member is not type(None))
        return (rest[0] if len(rest) == 1 else Union[rest]), True
    return declared, declared is Any


def suggest_set(node: DictConfig, key: str, value: Any) -> str:
    """How a study sets a key that only its runs have; nothing for other keys."""
    of_runs = key.partition(".")[0] in ("recipe", "model", "init")
    if OmegaConf.get_type(node) is not StudyConfig or not of_runs:
        return ""
    words = [word for word in node.set if word.partition("=")[0] != key]
    return f' in a study; give "set=[{",".join([*words, f"{key}={to_text(value)}"])}]" for every run'


def suggest_key(root: DictConfig, parent: DictConfig, at: str, part: str) -> str:
    """The nearest key beside a misspelt one, else the nearest anywhere, with the keys that are there."""
    everywhere = list(list_key_paths(root))
    same = sorted((path for last, path in everywhere if last == part), key=lambda path: path.count("."))
    if same and not at:
        return f"did you mean '{same[0]}'?"
    here, names = list(map(str, parent.keys())), [last for last, _ in everywhere]
    near = [] if difflib.get_close_matches(part, here, n=1, cutoff=0.5) else difflib.get_close_matches(part, names, n=1)
    suggestion = f"did you mean '{everywhere[names.index(near[0])][1]}'? " if near else ""
    return suggestion + choices_text(part, here)


def list_key_paths(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    """(last part, dotted path) of every key below a node."""
    for key in node:
        yield str(key), f"{path}{key}"
        if isinstance(value := read_value(node, key), DictConfig):
            yield from list_key_paths(value, f"{path}{key}.")
