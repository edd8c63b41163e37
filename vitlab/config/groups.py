"""YAML groups: the files under configs/, and the schema that each choice is checked against.

The schema of a choice is the dataclass of its kind (models), or the group's dataclass plus the keys and defaults of
the YAML file named after its kind. So a new data set, task, mixer or analysis declares its options in its own YAML.
"""

import copy
import dataclasses
import io
import keyword
import os
from functools import cache
from pathlib import Path
from typing import Any, Optional

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config import huggingface
from vitlab.config.assign import assign, explain, structured
from vitlab.config.errors import Problem, UserError, choices_text
from vitlab.config.plain_yaml import read_yaml_text
from vitlab.config.ranges import check_missing, check_ranges
from vitlab.config.schema import kinds

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
    base = kinds.find_class(group, kind, declared.get("modality"))
    if group == "recipe" or (group == "model" and base.kind != MISSING) or base is kinds.own_class(group, kind, base):
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
