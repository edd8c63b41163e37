"""YAML groups: the files under configs/, and the schema that each choice is checked against.

The schema of a choice is the dataclass of its kind (models), or the group's dataclass plus the keys and defaults of
the YAML file named after its kind. So a new data set, task, mixer or analysis declares its options in its own YAML.
"""

import copy
import dataclasses
import difflib
import keyword
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Optional, get_args

import yaml
from omegaconf import MISSING, AnyNode, BooleanNode, DictConfig, FloatNode, IntegerNode, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.nodes import LiteralNode

from vitlab.config import huggingface, model_schema, schema
from vitlab.config.errors import UserError, choices_text
from vitlab.config.fields import Choice

GROUPS = ("model", "data", "task", "recipe", "analysis", "probe", "study", "mixer")
CLOSED = {  # every key of these is in the dataclass
    ("model", "vit"): model_schema.ViTConfig,
    ("model", "timm"): model_schema.TimmConfig,
    ("model", "resnet"): model_schema.ResNetConfig,
    ("model", "text"): model_schema.TextConfig,
    ("model", "encoder_decoder"): model_schema.EncoderDecoderConfig,
    ("model", "captioner"): model_schema.CaptionerConfig,
    ("model", "lstm"): model_schema.LSTMConfig,
    ("model", "recurrent"): model_schema.RecurrentConfig,
}
EXPECTED = {IntegerNode: "a whole number", FloatNode: "a number", BooleanNode: "true or false"}
OPEN = {  # others: Choice
    "model": model_schema.ModelConfig,
    "data": schema.ImageDataConfig,
    "task": schema.TaskConfig,
    "analysis": schema.AnalysisConfig,
}


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
    return group == "model" and huggingface.is_folder(choice) and choice not in names(group)


def short_name(group: str, choice: str) -> str:
    """What tables call a choice: its name, or that of its file or folder."""
    if is_file_choice(choice):
        return Path(choice).stem
    return Path(choice).resolve().name if is_folder_choice(group, choice) else choice


def read(group: str, choice: str, key: str) -> dict[str, Any]:
    """The mapping of a choice: a shipped YAML file or your own; for models also `timm:NAME`, or a Hugging Face folder.

    Raises UserError.
    """
    if group == "model" and choice.startswith("timm:"):
        return {"name": choice, "kind": "timm", "timm_name": choice.removeprefix("timm:")}
    if is_folder_choice(group, choice):
        try:
            return huggingface.read_model(Path(choice))
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
        found = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{key}={choice}: cannot read the file: {explain(error)}") from None
    if not isinstance(found, dict):
        raise UserError(f"{key}={choice}: the file must hold a mapping of keys, it holds {type(found).__name__}")
    return {"name": path.stem, **found}


def explain(error: Exception) -> str:
    """The message of an error in one line; OmegaConf's is its first."""
    said = str(error).splitlines() or [type(error).__name__]
    return " ".join((said[0] if isinstance(error, OmegaConfBaseException) else " ".join(said)).split())


def to_text(value: Any) -> str:
    """A value as the user wrote it in YAML, near enough."""
    return "null" if value is None else str(value)


def load(group: str, choice: str | dict[str, Any], key: str | None = None) -> DictConfig:
    """One choice of a group as a typed node with its defaults filled in. Raises UserError.

    `choice` is a name, the path of a YAML file or of a Hugging Face folder, or a mapping: a resolved choice (it has a
    `kind`), or a `name` and the keys to change. Messages name `key`, by default the group.
    """
    if isinstance(choice, str) and not is_file_choice(choice) and not is_folder_choice(group, choice):
        return copy.deepcopy(load_shipped(group, choice, key or group))
    return load_choice(group, choice, key or group)


@cache
def load_shipped(group: str, choice: str, key: str) -> DictConfig:
    """Read once: a study composes hundreds of configurations of the same few files."""
    return load_choice(group, choice, key)


def load_choice(group: str, choice: str | dict[str, Any], key: str) -> DictConfig:
    if isinstance(choice, str):
        found = declared = read(group, choice, key)
    elif not isinstance(choice.get("name"), str):
        raise UserError(f"{key}={choice}: a mapping needs a name; choices: {', '.join(names(group))}")
    elif "kind" in choice:
        found = declared = choice
    else:
        declared = read(group, choice["name"], key)
        found = {**declared, **choice, "name": declared["name"]}  # not the path of a file
    label = found["name"]
    kind = str(found.get("kind") or ("recipe" if group == "recipe" else label))
    unfit = [k for k in found if not isinstance(k, str) or not k.isidentifier() or keyword.iskeyword(k)]
    if unfit:
        raise UserError(f"{key}={label}: {k}: a key is a word of letters, digits and underscores" for k in unfit)
    try:
        node = OmegaConf.structured(choose_schema(group, kind, declared))
    except OmegaConfBaseException as error:
        raise UserError(f"{key}={label}: {explain(error)}") from None
    problems = []
    for name, value in {**found, "kind": kind}.items():
        problems += assign(node, name, value, prefix=f"{key}={label}: ")
    if group == "analysis":  # nothing else gives its options later
        shown = choice if isinstance(choice, str) else choice["name"]
        problems += [f"{key}={shown}: {name} is missing; add it to the file" for name in OmegaConf.missing_keys(node)]
    if problems:
        raise UserError(problems)
    return node


def choose_schema(group: str, kind: str, found: dict[str, Any]) -> type:
    """The dataclass that a choice of this kind is checked against."""
    if group == "recipe":
        return schema.RecipeConfig
    if (group, kind) in CLOSED:
        return CLOSED[group, kind]
    base = OPEN.get(group, Choice)
    declared = read(group, kind, group) if kind in names(group) else found
    if group == "data" and declared.get("modality") == "text":
        base = schema.TextDataConfig
    known = {f.name for f in dataclasses.fields(base)}
    extra = [(k, *infer_field(v)) for k, v in declared.items() if k not in known]
    return dataclasses.make_dataclass(f"{kind.rpartition('.')[2].title().replace('_', '')}Config", extra, bases=(base,))


def infer_field(value: Any) -> tuple[Any, Any]:
    """The type and the default of a field that a YAML file declares by example."""
    if value == "???":
        return str, dataclasses.field(default=MISSING)
    if value is None:
        return Optional[Any], dataclasses.field(default=None)
    if isinstance(value, list):
        kinds = {type(v) for v in value}
        item = kinds.pop() if len(kinds) == 1 and not kinds & {list, dict} else Any
        return list[item], dataclasses.field(default_factory=lambda: list(value))
    if isinstance(value, dict):
        return dict[str, Any], dataclasses.field(default_factory=lambda: dict(value))
    return type(value), dataclasses.field(default=value)


def assign(node: DictConfig, key: str, value: Any, prefix: str = "") -> list[str]:
    """Set one dotted key of a typed node; what is wrong with it comes back as lines."""
    parent, parts = node, str(key).split(".")
    for depth, part in enumerate(parts):
        at = ".".join(parts[:depth])
        if not isinstance(parent, DictConfig):
            return [f"{prefix}{key}: '{at}' has no keys{suggest_set(node, key, value)}"]
        if parent._metadata.object_type is not dict and part not in parent.keys():
            where = f" in '{at}'" if at else ""
            hint = suggest_set(node, key, value) or f"; {suggest_key(node, parent, at, part)}"
            return [f"{prefix}{key}: no key '{part}'{where}{hint}"]
        if depth < len(parts) - 1:
            if part not in parent and parent._metadata.element_type is Any:  # a mapping of anything, such as `grid`
                OmegaConf.update(node, ".".join(parts[: depth + 1]), {})
            parent = parent._get_node(part)
    old = parent._get_node(parts[-1])
    shown = f"{prefix}{key}={to_text(value)}"
    untyped = isinstance(old, (ListConfig, DictConfig)) and old._metadata.ref_type is Any
    if isinstance(old, ListConfig) and not untyped and value is not None and not isinstance(value, (list, ListConfig)):
        return [f"{shown}: expected a list, for example {key}=[{value}]"]
    if OmegaConf.is_config(old) and dataclasses.is_dataclass(old._metadata.object_type):
        short = getattr(old._metadata.object_type, "SHORTHAND", None)
        if short and not isinstance(value, (dict, DictConfig, list, ListConfig)):
            return assign(node, f"{key}.{short}", value, prefix)
        if not isinstance(value, (dict, DictConfig)):
            return [f"{shown}: set one of its keys instead; {choices_text('', [f'{key}.{k}' for k in old])}"]
        return [line for k, v in value.items() for line in assign(node, f"{key}.{k}", v, prefix)]
    if isinstance(value, bool) and not isinstance(old, (BooleanNode, AnyNode)):
        value = "on" if value else "off"  # YAML 1.1 reads these words as booleans
    try:
        OmegaConf.update(node, str(key), value, merge=not untyped)
    except (OmegaConfBaseException, ValueError) as error:
        if value is None and not old._is_optional():
            kept = "" if old._is_missing() else f", or leave it out for the default, {to_text(old._value())}"
            return [f"{shown}: must not be null; give a value{kept}"]
        if isinstance(old, DictConfig) and untyped | (old._metadata.object_type is dict):
            return [f"{shown}: expected a mapping with text as keys, {key}={{KEY: VALUE, ...}}"]
        if isinstance(old, LiteralNode):
            return [f"{shown}: {choices_text(to_text(value), map(str, get_args(old.ref_type)))}"]
        expected = next((words for kind, words in EXPECTED.items() if isinstance(old, kind)), None)
        return [f"{shown}: expected {expected}" if expected else f"{shown}: {explain(error)}"]
    return []


def suggest_set(node: DictConfig, key: str, value: Any) -> str:
    """How a study sets a key that only its runs have; nothing for other keys."""
    of_runs = str(key).partition(".")[0] in ("recipe", "model", "init")
    if OmegaConf.get_type(node) is not schema.StudyConfig or not of_runs:
        return ""
    words = [word for word in node.set if word.partition("=")[0] != key]
    return f' in a study; give "set=[{",".join([*words, f"{key}={to_text(value)}"])}]" for every run'


def suggest_key(root: DictConfig, parent: DictConfig, at: str, part: str) -> str:
    """The nearest key beside a misspelt one, else the nearest anywhere, with the keys that are there."""
    here = choices_text(part, map(str, parent.keys()))
    if here.startswith("did you mean"):
        return here
    everywhere = dict(list_key_paths(root))
    near = difflib.get_close_matches(part, everywhere, n=1, cutoff=0.6)
    return (f"did you mean '{everywhere[near[0]]}'? " if near else "") + here


def list_key_paths(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    """(last part, dotted path) of every key below a node."""
    for key in node.keys():
        yield str(key), f"{path}{key}"
        if isinstance(node._get_node(key), DictConfig):
            yield from list_key_paths(node._get_node(key), f"{path}{key}.")
