"""YAML groups: the files under configs/, the schema that each choice is checked against, and setting keys of its node.

The schema of a choice is the dataclass of its kind (models), or the group's dataclass plus the keys and defaults of
the YAML file named after its kind. So a new data set, task, mixer or analysis declares its options in its own YAML.
What is wrong with a key or a value comes back as problems.
"""

import copy
import dataclasses
import difflib
import inspect
import io
import keyword
import os
import re
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Optional, Union, get_args, get_origin

import yaml
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config.errors import IS_MISSING, NO_VALUE, Problem, UserError, choices_text, to_text
from vitlab.config.schema import StudyConfig
from vitlab.config.schema.fields import Choice, base_classes, default_of, find_class, own_class

Loader, Dumper = (getattr(yaml, f"C{name}", getattr(yaml, name)) for name in ("SafeLoader", "SafeDumper"))
LARGEST, DEEPEST = 10_000_000, 50  # bytes of a file, nested brackets and indents: parsers recurse until they crash


def read_yaml_text(path: str | Path) -> str:
    """The text of a YAML file. Raises yaml.YAMLError for one that is too large or nested too deeply."""
    if (size := Path(path).stat().st_size) > LARGEST:
        raise yaml.YAMLError(f"it has {size / 1e6:,.1f} MB; a YAML file may have {LARGEST / 1e6:.0f}")
    text = Path(path).read_text()
    check_depth(text)
    return text


def check_depth(text: str) -> None:
    """Raises yaml.YAMLError for text that is nested too deeply, or is not YAML."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                break
    except yaml.YAMLError as error:
        if "maximum nesting depth" not in str(error):  # libyaml reads ahead, up to 1,000 brackets
            raise
        depth = DEEPEST + 1
    if depth > DEEPEST:
        raise yaml.YAMLError(f"it is nested deeper than {DEEPEST} levels")


def load_yaml(text: str) -> Any:
    """Raises yaml.YAMLError."""
    return yaml.load(text, Loader)


def dump_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=Dumper, sort_keys=False)


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


GROUPS = ("model", "data", "task", "recipe", "analysis", "probe", "study", "mixer")


@cache
def config_dir() -> Path:
    """The folder of the shipped YAML files: in the wheel beside this package, in a checkout at the top."""
    package = Path(__file__).resolve().parent.parent
    return next(d for d in (package / "configs", package.parent / "configs") if d.is_dir())


def names(group: str) -> list[str]:
    """The choices of a group, from the names of its files."""
    return sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))


def is_file_choice(choice: str) -> bool:
    return choice.endswith((".yaml", ".yml"))


def is_folder_choice(group: str, choice: str) -> bool:
    """Whether a choice is a Hugging Face folder; the name of a shipped model is that model (`gpt2`, not `./gpt2`)."""
    return group == "model" and (Path(choice) / "config.json").is_file() and choice not in names(group)


def read(group: str, choice: str, key: str) -> dict[str, Any]:
    """The mapping of a choice: a shipped YAML file or your own; for models also `timm:NAME`, or a Hugging Face folder.

    Raises UserError.
    """
    if group == "model" and choice.startswith("timm:"):
        return {"name": choice, "kind": "timm", "timm_name": choice.removeprefix("timm:")}
    if is_folder_choice(group, choice):
        from vitlab.config.schema.models import read_model  # 50 ms that `vitlab list` need not wait for

        try:
            return read_model(Path(choice))
        except UserError as error:
            raise UserError(f"{key}={line}" for line in error.problems) from None
    path = Path(choice) if is_file_choice(choice) else config_dir() / group / f"{choice}.yaml"
    if not path.is_file() or (not is_file_choice(choice) and os.sep in choice):
        if is_file_choice(choice):
            raise UserError(f"{key}={choice}: no such file")
        if group == "model" and Path(choice).is_dir():
            raise UserError(
                f"{key}={choice}: holds no config.json of Hugging Face; for a run's weights give its model's name and "
                f"init={choice}"
            )
        extra = ["timm:NAME"] if group == "model" else []
        raise UserError(f"{key}={choice}: unknown {group}; {choices_text(choice, names(group) + extra)}")
    try:
        content = OmegaConf.to_container(OmegaConf.load(io.StringIO(read_yaml_text(path))), resolve=True)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{key}={choice}: cannot read the file: {explain(error)}") from None
    if not content:
        raise UserError(f"{key}={choice}: the file is empty; give it keys, for example name: {path.stem}")
    if not isinstance(content, dict):
        raise UserError(f"{key}={choice}: the file must hold a mapping of keys, it holds {type(content).__name__}")
    return {"name": path.stem, **content}


def load(group: str, choice: str | dict[str, Any], key: str | None = None) -> Any:
    """One choice of a group as a frozen dataclass, its defaults filled in. Raises UserError.

    `choice` is a name, the path of a YAML file or of a Hugging Face folder, or a mapping: a resolved choice (it has a
    `kind`), or a `name` and the keys to change. Messages name `key`, by default the group.
    """
    node = load_node(group, choice, key)
    at = node.name if group == "analysis" else key or group  # `vitlab analyze` sets options by an analysis's name
    problems = [*check_missing(node, f"{at}."), *check_ranges(node, f"{at}.")]
    if problems:
        raise UserError(problems)
    return OmegaConf.to_object(node)


def load_node(group: str, choice: str | dict[str, Any], key: str | None = None) -> DictConfig:
    """`load`, as a typed node whose values can be changed and may be missing."""
    if isinstance(choice, str) and not is_file_choice(choice) and not is_folder_choice(group, choice):
        return copy.deepcopy(load_shipped(group, choice, key or group))
    return load_choice(group, choice, key or group)


@cache
def load_shipped(group: str, choice: str, key: str) -> DictConfig:
    """Read once: a study composes hundreds of configurations of the same few files."""
    return load_choice(group, choice, key)


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
    unfit = [k for k in values if not isinstance(k, str) or not k.isidentifier() or keyword.iskeyword(k)]
    if unfit:
        raise UserError(f"{key}={label}: {k}: a key is a word of letters, digits and underscores" for k in unfit)
    try:
        node = structured(choose_class(group, kind, declared))
    except OmegaConfBaseException as error:
        raise UserError(Problem(key, label, explain(error))) from None
    problems = []
    for name, value in {**values, "kind": kind}.items():
        problems += assign(node, name, value, prefix=f"{key}={label}: ")
    if group == "analysis":  # nothing else gives its options later
        shown = choice if isinstance(choice, str) else choice["name"]
        problems += [f"{key}={shown}: {name} is missing; add it to the file" for name in OmegaConf.missing_keys(node)]
    if problems:
        raise UserError(problems)
    return node


def choose_class(group: str, kind: str, values: dict[str, Any]) -> type:
    """The dataclass that a choice of this kind is checked against.

    A kind without one of its own has the keys of the YAML file named after it, or else of `values`, by their types.
    """
    declared = read(group, kind, group) if kind in names(group) and group != "recipe" else values
    base = find_class(group, kind, declared.get("modality"))
    if group == "recipe" or (group == "model" and base.kind != MISSING) or base is own_class(group, kind, base):
        return base
    keys = {field.name for field in dataclasses.fields(base)}
    extra = [(name, *infer_field(value)) for name, value in declared.items() if name not in keys]
    label = kind.rpartition(".")[2].title().replace("_", "")
    return dataclasses.make_dataclass(f"{label}Config", extra, bases=(base,), frozen=True)


def infer_field(value: Any) -> tuple[Any, Any]:
    """The type and the default of a field that a YAML file declares by example."""
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
    shown = [
        f"{word} {field.metadata[key]:{',' if isinstance(field.metadata[key], int) else 'g'}}"
        for key, word in limits
        if key in field.metadata
    ]
    unit = f" of {field.metadata['unit']}" if field.metadata.get("unit") else ""
    return ", ".join([name_type(field.type) + unit, *shown])


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
