"""YAML groups: the files under configs/, the schema that each choice is checked against, and setting keys of its node.

The schema of a choice is the dataclass of its kind (models, data, mixers), or the group's dataclass plus the keys and
defaults of the YAML file named after its kind, so that a user's own data set or mixer needs no dataclass.
Functions return the problems of a key or a value as lines.
"""

import copy
import dataclasses
import difflib
import importlib
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Optional, Union, get_args, get_origin

import yaml
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config import schema
from vitlab.config.errors import UserError, choices_text, raise_all, to_text
from vitlab.config.schema.fields import KINDS, ON, Choice, default_of

Loader, Dumper = (getattr(yaml, f"C{name}", getattr(yaml, name)) for name in ("SafeLoader", "SafeDumper"))


def dump_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=Dumper, sort_keys=False)


LIMITS = {  # of a field: what its values satisfy, as messages and as lists of keys say it
    "least": (operator.ge, "at least", "from"),
    "above": (operator.gt, "above", "above"),
    "most": (operator.le, "at most", "to"),
    "below": (operator.lt, "below", "below"),
}


def structured(settings: Any) -> DictConfig:
    """Make a node of a dataclass or an instance, and unlock it: OmegaConf makes nodes of frozen ones read-only."""
    node = OmegaConf.structured(settings)
    unlock(node)
    return node


def unlock(node: DictConfig) -> None:
    OmegaConf.set_readonly(node, False)
    for key in node:
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            unlock(node[key])


def assign(node: DictConfig, key: str, value: Any) -> list[str]:
    """Set one dotted key of a typed node; return its problems, a line each."""
    key = str(key)
    parent, parts = node, key.split(".")
    for depth, part in enumerate(parts):
        at = ".".join(parts[:depth])
        if not isinstance(parent, DictConfig):
            if depth > 2 and parts[0] == "models":  # a variant has `recipe: NAME` beside `recipe.lr`
                node["models"][parts[1]][".".join(parts[2:])] = value
                return []
            missing = f"; give {at}=NAME too" if at in GROUPS and at in node and parent is None else ""
            return [f"{key}: '{at}' has no keys{suggest_set(node, key, value) or missing}"]
        if is_open(parent):
            if depth < len(parts) - 1 and part not in parent:
                parent[part] = {}
        elif part not in parent.keys():
            where = f" in '{at}'" if at else ""
            hint = suggest_set(node, key, value) or f"; {suggest_key(node, parent, at, part)}"
            return [f"{key}: no key '{part}'{where}{hint}"]
        if depth < len(parts) - 1:
            parent = read_value(parent, part)
    return set_value(node, parent, key, value)


def set_value(node: DictConfig, parent: DictConfig, key: str, value: Any) -> list[str]:
    """Set a key that is there, or one of an open mapping."""
    last = key.rpartition(".")[2]
    old, declared = read_value(parent, last), declared_type(parent, last)
    if isinstance(old, DictConfig) and not is_open(old):
        short = getattr(OmegaConf.get_type(old), "SHORTHAND", None)
        if short and not isinstance(value, (dict, list)):
            return assign(node, f"{key}.{short}", value)
        if not isinstance(value, dict):
            choices = choices_text("", [f"{key}.{name}" for name in old])
            return [f"{key}={to_text(value)}: set one of its keys instead; {choices}"]
        return [problem for name, item in value.items() for problem in assign(node, f"{key}.{name}", item)]
    if get_origin(declared) is list and value is not None and not isinstance(value, list):
        return [f"{key}={to_text(value)}: expected a list, for example {key}=[{value}]"]
    if isinstance(value, bool) and declared not in (bool, Any):
        value = "on" if value else "off"  # YAML 1.1 reads these words as booleans
    try:  # an empty mapping replaces what is there: merged it would change nothing
        OmegaConf.update(node, key, value, merge=declared is not Any and value != {})
    except (OmegaConfBaseException, ValueError) as error:
        article = "a " if declared in (int, float) or get_origin(declared) in (list, dict) else ""
        shown = explain(error) if declared is Any else f"expected {article}{name_type(declared)}"
        if get_origin(declared) is Literal:
            shown = choices_text(to_text(value), map(str, get_args(declared)))
        return [f"{key}={to_text(value)}: {shown}"]
    return []


def explain(error: Exception) -> str:
    """Return the message of an error in one line; of OmegaConf's messages only the first line."""
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join((lines[0] if isinstance(error, OmegaConfBaseException) else " ".join(lines)).split())


def is_open(node: DictConfig) -> bool:
    """Tell whether a node is a mapping of any keys, rather than a dataclass."""
    return not dataclasses.is_dataclass(OmegaConf.get_type(node))


def read_value(parent: DictConfig, key: str) -> Any:
    return None if key not in parent.keys() or OmegaConf.is_missing(parent, key) else parent[key]


def declared_type(parent: DictConfig, key: str) -> Any:
    """Return the type of a key without `None`; Any in an open mapping."""
    if is_open(parent):
        return Any
    declared = OmegaConf.get_type(parent).__dataclass_fields__[key].type
    if get_origin(declared) in (Union, UnionType) and type(None) in get_args(declared):
        return Union[tuple(member for member in get_args(declared) if member is not type(None))]
    return declared


def suggest_set(node: DictConfig, key: str, value: Any) -> str:
    """Suggest how a study sets a key that only its runs have; nothing for other keys."""
    of_runs = key.partition(".")[0] in ("recipe", "model", "init")
    if OmegaConf.get_type(node) is not schema.StudyConfig or not of_runs:
        return ""
    words = [word for word in node.set if word.partition("=")[0] != key]
    return f' in a study; give "set=[{",".join([*words, f"{key}={to_text(value)}"])}]" for every run'


def suggest_key(root: DictConfig, parent: DictConfig, at: str, part: str) -> str:
    """Suggest the nearest key beside a misspelt one, else the nearest anywhere, and list the keys that are there."""
    # as other libraries call it: learning_rate, max_steps, num_train_epochs
    part = re.sub("^learning_?rate$", "lr", re.sub("^(max|num|n)_(train_)?(?=epochs|steps)", "", part))
    everywhere = list(list_key_paths(root))
    if "model" in root and root.model is None:  # a model that was refused: the keys that some model has
        everywhere += [(key.name, f"model.{key.name}") for _, keys in list_kind_keys("model") for key in keys]
    same = sorted((path for last, path in everywhere if last == part), key=lambda path: path.count("."))
    if same and not at:
        return f"did you mean '{same[0]}'?"
    here, names = list(map(str, parent.keys())), [last for last, _ in everywhere]
    near = [] if difflib.get_close_matches(part, here, n=1, cutoff=0.5) else difflib.get_close_matches(part, names, n=1)
    suggestion = f"did you mean '{everywhere[names.index(near[0])][1]}'? " if near else ""
    return suggestion + choices_text(part, here)


def list_key_paths(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (last part, dotted path) of every key below a node."""
    for key in node:
        yield str(key), f"{path}{key}"
        if isinstance(value := read_value(node, key), DictConfig):
            yield from list_key_paths(value, f"{path}{key}.")


def check_ranges(node: DictConfig, path: str = "") -> Iterator[str]:
    """Yield problems of values outside the limits that the dataclass of each node declares."""
    schema = OmegaConf.get_type(node)
    declared = {field.name: field for field in fields(schema)} if is_dataclass(schema) else {}
    for key in node:
        if OmegaConf.is_missing(node, key):
            continue
        value, name = node[key], f"{path}{key}"
        if isinstance(value, DictConfig):
            yield from check_ranges(value, f"{name}.")
        limits = declared[key].metadata if key in declared else {}
        for item in value if isinstance(value, ListConfig) else [value]:
            if not isinstance(item, (int, float)) or isinstance(item, bool):
                continue
            if not math.isfinite(item):
                yield f"{name}={item}: must be a finite number"
                continue
            for limit, (holds, must_be, _) in LIMITS.items():
                if limit in limits and not holds(item, limits[limit]):
                    yield f"{name}={item}: must be {must_be} {limits[limit]}"


def check_missing(node: DictConfig, path: str = "") -> Iterator[str]:
    for key in sorted(OmegaConf.missing_keys(node)):
        yield f"{path}{key} is missing: give {path}{key}=VALUE"


def find_idle(node: DictConfig, path: str = "") -> Iterator[tuple[DictConfig, Field, str]]:
    """Yield (its node, field, problem) of each key that has no effect beside other keys, and not its default."""
    schema = OmegaConf.get_type(node)
    for field in fields(schema) if is_dataclass(schema) else ():
        value = read_value(node, field.name)
        if isinstance(value, DictConfig):
            yield from find_idle(value, f"{path}{field.name}.")
        for key, wanted in field.metadata.get("when", {}).items():
            at, default = OmegaConf.select(node, key), default_of(field)
            if value == default or (bool(at) if wanted is ON else at in wanted or at is None):  # None: not known yet
                continue
            if key.endswith("task.kind") and "." in at:  # a user's own
                continue
            known = " or ".join(map(to_text, wanted)) if len(wanted) < 9 else f"{min(wanted)} to {max(wanted)}"
            other = key[2:].removesuffix(".kind") if key.startswith("..") else f"{path}{key}"
            only = f"only {other}={known} uses it, not {to_text(at)}"
            only = f"has no effect without {path}{key}" if wanted is ON else only
            only = f"needs {path}mixer=attention" if key == "mixer.attends" else only
            yield node, field, f"{path}{field.name}={to_text(value)}: {only}; give {to_text(default)}"
            break


GROUPS = ("model", "data", "task", "recipe", "analysis", "probe", "study", "mixer")


@cache
def config_dir() -> Path:
    """Find the folder of the shipped YAML files: in the wheel beside this package, in a checkout at the top."""
    package = Path(__file__).resolve().parent.parent
    return next(d for d in (package / "configs", package.parent / "configs") if d.is_dir())


def names(group: str) -> list[str]:
    """List the choices of a group, from the names of its files."""
    return sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))


def is_file_choice(choice: str) -> bool:
    return choice.endswith((".yaml", ".yml"))


def is_folder_choice(group: str, choice: str) -> bool:
    """Tell whether a choice is a Hugging Face folder; a shipped model's name is that model (`gpt2`, not `./gpt2`)."""
    return group == "model" and (Path(choice) / "config.json").is_file() and choice not in names(group)


def read(group: str, choice: str, key: str) -> dict[str, Any]:
    """Read the keys of a choice: a shipped YAML file or your own; of a model also `timm:NAME` or a Hugging Face folder.

    Raises UserError.
    """
    if group == "model" and choice.startswith("timm:"):
        return {"name": choice, "kind": "timm", "timm_name": choice.removeprefix("timm:")}
    if is_folder_choice(group, choice):
        from vitlab.config.schema.models import read_folder  # 50 ms that `vitlab list` need not wait for

        try:
            return read_folder(Path(choice))[1]
        except UserError as error:
            raise UserError(f"{key}={line}" for line in error.problems) from None
    path = Path(choice) if is_file_choice(choice) else config_dir() / group / f"{choice}.yaml"
    if not path.is_file() or (not is_file_choice(choice) and os.sep in choice):
        if is_file_choice(choice):
            near = difflib.get_close_matches(path.name, [one.name for one in path.parent.glob("*.y*ml")], n=1)
            hint = f"; did you mean '{path.with_name(near[0])}'?" if near else ""
            raise UserError(f"{key}={choice}: {'not a regular file' if path.exists() else f'no such file{hint}'}")
        if group == "model" and Path(choice).is_dir():
            raise UserError(
                f"{key}={choice}: holds no config.json of Hugging Face; for a run's weights give its model's name and "
                f"init={choice}"
            )
        extra = ["timm:NAME"] if group == "model" else []
        extra += [file] if Path(file := f"{choice}.yaml").is_file() else []
        raise UserError(f"{key}={choice}: unknown {group}; {choices_text(choice, names(group) + extra)}")
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{key}={choice}: cannot read the file: {explain(error)}") from None
    if not content or not isinstance(content, dict):
        raise UserError(f"{key}={choice}: the file holds no keys; give it some, for example name: {path.stem}")
    return {"name": path.stem, **content}


def load(group: str, choice: Any, key: str | None = None) -> Any:
    """Load one choice of a group as a frozen dataclass, its defaults filled in. Raises UserError.

    `choice` is a name, the path of a YAML file or of a Hugging Face folder, or a mapping: a resolved choice (it has a
    `kind`), or a `name` and the keys to change. Messages name `key`, by default the group.
    """
    node = load_node(group, choice, key)
    at = node.name if group == "analysis" else key or group  # `vitlab analyze` sets options by an analysis's name
    raise_all([*check_missing(node, f"{at}."), *check_ranges(node, f"{at}.")])
    return OmegaConf.to_object(node)


def load_node(group: str, choice: Any, key: str | None = None) -> DictConfig:
    """Load one choice as `load` does, but as a typed node whose values can be changed and may be missing."""
    choice = OmegaConf.to_container(choice) if OmegaConf.is_config(choice) else choice
    choice = choice if isinstance(choice, dict) else to_text(choice)
    if isinstance(choice, str) and not is_file_choice(choice) and not is_folder_choice(group, choice):
        return copy.deepcopy(load_shipped(group, choice, key or group))
    return load_choice(group, choice, key or group)


def load_choice(group: str, choice: str | dict[str, Any], key: str) -> DictConfig:
    if isinstance(choice, str):
        values = declared = read(group, choice, key)
    elif not isinstance(choice.get("name"), str):
        raise UserError(f"{key}={choice}: a mapping needs a name; choices: {', '.join(names(group))}")
    elif "kind" in choice:
        values = declared = choice
    else:
        declared = read(group, choice["name"], key)
        values = {**declared, **choice, "name": declared["name"]}  # not the path of a file
    label = values["name"]
    kind = str(values.get("kind") or ("recipe" if group == "recipe" else label))
    try:
        node = structured(choose_class(group, kind, declared))
    except (OmegaConfBaseException, TypeError) as error:  # the latter for a key that names no field
        raise UserError(f"{key}={label}: {explain(error)}") from None
    problems = []
    for name, value in {**values, "kind": kind}.items():
        problems += [f"{key}={label}: {line}" for line in assign(node, name, value)]
    if group == "analysis":  # nothing else gives its options later
        shown = choice if isinstance(choice, str) else choice["name"]
        problems += [f"{key}={shown}: {name} is missing; add it to the file" for name in OmegaConf.missing_keys(node)]
    for owner, field, line in list(find_idle(node)):
        if declared is values or re.split(r"[.=]", line)[0] in choice:
            problems.append(f"{key}={label}: {line}")
        else:  # of the file that a mapping changes
            owner[field.name] = default_of(field)
    raise_all(problems)
    return node


load_shipped = cache(load_choice)  # a study composes hundreds of configurations of the same few files


def choose_class(group: str, kind: str, values: dict[str, Any]) -> type:
    """Choose the dataclass that a choice of this kind is checked against.

    A kind without one has the keys of the YAML file named after it, or else of `values`, by their types.
    """
    declared = read(group, kind, group) if kind in names(group) else values
    found = find_class(group, kind, declared.get("modality"))
    if (group, kind) in kinds() or found not in kinds().values():
        return found
    extra = [(key, *infer_field(one)) for key, one in declared.items() if key not in found.__dataclass_fields__]
    return dataclasses.make_dataclass(f"{kind}Config", extra, bases=(found,), frozen=True)


def infer_field(value: Any) -> tuple[Any, Any]:
    """Infer the type and the default of a field that a YAML file declares by example."""
    if value == "???":
        return str, dataclasses.field(default=MISSING)
    if value is None:
        return Optional[Any], dataclasses.field(default=None)
    if isinstance(value, list):
        types = {type(v) for v in value}
        item = types.pop() if len(types) == 1 and not types & {list, dict} else Any
        return list[item], dataclasses.field(default_factory=lambda: list(value))
    if isinstance(value, dict):
        return dict[str, Any], dataclasses.field(default_factory=lambda: dict(value))
    return type(value), dataclasses.field(default=value)


def kinds() -> dict[tuple[str, str], type[Choice]]:
    """Map each (group, kind) to its dataclass; the kind "", of data their modality, stands for all others."""
    from vitlab.config.schema import data, models  # noqa: F401  50 ms that `vitlab list` need not wait for

    return KINDS


@cache
def find_class(group: str, kind: str, modality: str | None = None) -> type[Choice]:
    """Find the dataclass of a kind: its entry in `kinds`, else the group's default; `Config` of a user's module.

    Such a module may import what it likes; its `Config` is a frozen dataclass with the group's class as a base.
    """
    others = kinds()[group, "" if group != "data" else "text" if modality == "text" else "image"]
    if "." not in kind:
        return kinds().get((group, kind), others)
    try:
        return vars(importlib.import_module(kind)).get("Config", others)
    except Exception:  # whoever builds the choice says why
        return others


def select(settings: Mapping[str, Any], parent: type, wanted: Callable[[Field], bool]) -> dict[str, Any]:
    """Select a plain configuration's wanted fields of this class, also of nested ones; undeclared keys stay."""
    fields = {field.name: field for field in dataclasses.fields(parent)}
    selected = {}
    for key, value in settings.items():
        field = fields.get(key)
        if field is not None and field.metadata and not wanted(field):
            continue
        below = None  # the dataclass of the value
        if field is not None and isinstance(value, Mapping):
            below = field.type if dataclasses.is_dataclass(field.type) else None
            if (group := field.metadata.get("group")) and isinstance(value.get("kind"), str):
                below = find_class(group, value["kind"], value.get("modality"))
        selected[key] = value if below is None else select(value, below, wanted)
    return selected


def affecting(what: str) -> Callable[[Field], bool]:
    """Make a test for `select`: whether a field affects WEIGHTS, COST or CACHE."""
    return lambda field: what in field.metadata["affects"]


def keys_per_study(parent: type) -> list[str]:
    """List the fields that have the same value in all runs of a study."""
    return [field.name for field in dataclasses.fields(parent) if field.metadata.get("per") == "study"]


get_source = cache(inspect.getsource)  # it parses the whole file
WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text", Any: "any"}


@dataclass(frozen=True)
class Key:
    """A key below its class or group: `budget.steps`."""

    name: str
    type: str  # with the range and the unit
    default: str
    about: str


def list_keys(parent: type, path: str = "", values: dict[str, Any] | None = None, comments: str = "") -> Iterator[Key]:
    """Yield the keys of a dataclass in order; the keys of a nested dataclass stand in place of its field.

    `values` and `comments` are of a YAML file, and come before the dataclass's own.
    """
    source = ""
    for declared in filter(dataclasses.is_dataclass, reversed(parent.__mro__)):
        with suppress(OSError, TypeError):  # one that was made from a YAML file has no source
            source += get_source(declared)
    about = read_comments(source + comments)
    for field in dataclasses.fields(parent):
        if dataclasses.is_dataclass(field.type):
            below = (values or {}).get(field.name)
            yield from list_keys(field.type, f"{path}{field.name}.", below if isinstance(below, dict) else None)
        else:
            default = (values or {}).get(field.name, default_of(field))
            shown = "required" if default == MISSING else to_text(default)
            yield Key(f"{path}{field.name}", describe_type(field), shown, about.get(field.name, ""))


def list_kind_keys(group: str) -> Iterator[tuple[str, list[Key]]]:
    """Yield each kind of a group with its own keys; first the keys that all kinds have, under ""."""
    base = kinds()[group, ""]
    common = {field.name for field in dataclasses.fields(base)}
    yield "", list(list_keys(base))
    if group == "recipe":
        return
    chosen: dict[str, dict[str, Any]] = {}
    for name in names(group):
        by_kind = read(group, name, group)
        if name == by_kind["kind"] or by_kind["kind"] not in chosen:
            chosen[by_kind["kind"]] = by_kind
    for kind, by_kind in sorted(chosen.items()):
        shipped = kind in names(group)
        keys = list_choice_keys(group, kind)[1] if shipped else list_keys(choose_class(group, kind, by_kind))
        if own_keys := [key for key in keys if key.name.partition(".")[0] not in common]:
            yield kind, own_keys


def list_choice_keys(group: str, choice: str) -> tuple[str, Iterator[Key]]:
    """List the kind and all keys of a shipped choice, with the values of its file."""
    values, text = read(group, choice, group), (config_dir() / group / f"{choice}.yaml").read_text()
    return values["kind"], list_keys(choose_class(group, values["kind"], values), values=values, comments=text)


def describe_type(field: Field) -> str:
    """Describe a field's type: `number, from 0, below 1`, `whole number of steps or null`, `adamw, sgd or muon`."""
    if group := field.metadata.get("group"):
        return f"{group}: a name, a file or {{name: NAME, KEY: VALUE}}"
    shown = [
        f"{word} {field.metadata[key]:{',' if isinstance(field.metadata[key], int) else 'g'}}"
        for key, (_, _, word) in LIMITS.items()
        if key in field.metadata
    ]
    return ", ".join([name_type(field.type), *shown])


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


def read_comments(text: str) -> dict[str, str]:
    """Read the comment beside each `key: ...` of a dataclass or a YAML file, or on the lines above it."""
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
