"""Compose a resolved, checked configuration from a schema and `key=value` overrides."""

import copy
import dataclasses
import math
import os
import pickle
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import Field, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vitlab.config import checks, groups
from vitlab.config.errors import UserError, collecting, key_of, raise_all, to_text
from vitlab.config.groups import Loader, assign, explain, structured
from vitlab.config.identity import flatten
from vitlab.config.schema import BudgetConfig
from vitlab.config.schema.fields import default_of

T = TypeVar("T")
SLOTS = ("model", "data", "task")
RESTORE = "restore it from a copy, or start again with another --out"
FIRST_TASK = "classification"  # when neither data nor a task is named


def parse_override(text: str) -> tuple[str, Any]:
    """Parse `key=value`, whose value is YAML. Raises UserError."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(part.isidentifier() for part in key.split(".")):
        raise UserError(f"'{text}' is not key=value{suggest_assignment(text)}")
    if not value.strip():
        raise UserError(f"{text}: has no value; give one after '=', null for none")
    if value.startswith("[") and "]" not in value:
        raise UserError(f"{text}: the list has no ']'; quote a list with spaces, for example '{key}=[a, b]'")
    try:
        value = OmegaConf.select(OmegaConf.from_dotlist([f"{key}={value}"]), key)
    except (RecursionError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{text}: the value is not valid YAML: {explain(error)}") from None
    return key, OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def suggest_assignment(text: str) -> str:
    """Suggest the override that a lone word stands for: a choice without its key, a key without its value."""
    if text.endswith(("]", ",")):
        return "; quote a list with spaces, for example 'sizes=[100, 200]'"
    if text.endswith((".yaml", ".yml")):
        return f"; of a study's file: vitlab scale {text} --dry-run"
    group = next((slot for slot in ("data", "task", "model", "recipe", "mixer") if text in groups.names(slot)), None)
    key = "model.mixer" if group == "mixer" else group
    return f"; did you mean {key}={text}?" if key else "; write the key, '=' and the value without spaces"


def compose(
    schema: type,
    overrides: Sequence[str | tuple[str, Any]] = (),
    base: Mapping[str, Any] | None = None,
    also: Callable[[dict[str, Any], bool], None] | None = None,
) -> Any:
    """Compose an instance of the schema: its defaults, then `base` (a mapping, as of a YAML file), then the overrides.

    An override is `key=value` as a text, or a dotted key and its value. Groups are chosen before fields are set,
    whatever their order. `also` gets the configuration as plain containers, in which refused keys have their
    defaults, and whether anything was refused. All problems, also those that `also` raises, are raised at once, as
    UserError.
    """
    problems: list[str] = []
    config = copy.deepcopy(make_defaults(schema))
    base = base or {}
    # a dotted key of a file is what it is on the command line
    overrides = [*((key, value) for key, value in base.items() if "." in str(key)), *overrides]
    base = {key: value for key, value in base.items() if "." not in str(key)}
    if base.get("budget"):
        config.budget = structured(BudgetConfig)  # a unit that the user names replaces the default one
    for key, value in base.items():
        problems += assign(config, key, value)
    pairs: list[tuple[str, Any]] = []
    for override in overrides:
        with collecting(problems):
            pairs.append(parse_override(override) if isinstance(override, str) else override)
    slots, failed, group_problems = choose_groups(config, dict(pairs))
    problems += group_problems
    budget_given = any(key.partition(".")[0] == "budget" for key, _ in pairs)
    if budget_given and "budget" in config:
        config.budget = structured(BudgetConfig)
    for key, value in pairs:
        if key in slots or key.startswith(tuple(f"{slot}." for slot in failed)):
            continue
        slot, _, last = key.rpartition(".")
        if slot in slots and is_fixed(config, slot, last):
            instead = last if last in config else slot
            problems.append(f"{key}={to_text(value)}: is fixed by the choice; give {instead}=NAME")
        else:
            problems += assign(config, key, value)
    fill_defaults(config, {key for key, _ in flatten({**base, **dict(pairs)}, choices=True)})
    own = config.recipe.budget if isinstance(config.get("recipe"), DictConfig) else {}
    budget_given = budget_given or bool(base.get("budget"))
    if not budget_given and sum(value is not None for value in own.values()) == 1:  # `check_recipe` reports more
        config.budget = copy.deepcopy(own)
    if config.get("tune"):
        tune = dict(flatten(OmegaConf.to_container(config.tune)))
        problems += (refused := [*checks.check_tune(tune)])
        wrong = {key_of(line).removeprefix("tune.") for line in refused}
        config.tune = {k: v for k, v in tune.items() if not wrong or (k not in wrong and isinstance(v, list))}
    wrong = {*map(key_of, problems)}
    wrong |= {"no budget" for key in wrong if key.startswith("budget.")}
    # a key whose value was refused is not missing as well
    found = [problem for problem in checks.find_problems(config) if key_of(problem) not in wrong]
    problems += [problem for problem in found if not checks.judges_by(problem, wrong)]
    wrong |= {*map(key_of, problems)}
    later: list[str] = []  # what rests on all the keys
    if problems:  # what would be refused next
        later += checks.check_paths(config.get("data"))
    if also is not None:
        with collecting(later):
            also({**OmegaConf.to_container(config), **failed}, bool(problems))
    problems += [problem for problem in later if not checks.judges_by(problem, wrong)]
    raise_all(dict.fromkeys(problems))
    return OmegaConf.to_object(config)


def change(settings: T, values: Mapping[str, Any]) -> T:
    """Return settings with other values of dotted keys. Raises UserError for unknown keys and wrong types."""
    node = structured(settings)
    raise_all(problem for key, value in values.items() for problem in assign(node, key, value))
    return OmegaConf.to_object(node)


make_defaults = cache(structured)  # it takes five times as long as a copy


def is_fixed(config: DictConfig, slot: str, key: str) -> bool:
    """Tell whether a key of a choice is read while it is chosen: setting it afterwards would change nothing."""
    choice = OmegaConf.select(config, slot)
    declared = fields(OmegaConf.get_type(choice)) if isinstance(choice, DictConfig) else ()
    return any(field.name == key and field.metadata.get("fixed") for field in declared)


def fill_defaults(config: DictConfig, given: Set[str]) -> None:
    """Fill keys that the user left open from the chosen model, data and task, so that the configuration shows them."""
    model, data, task = (choice if isinstance(choice := config.get(slot), DictConfig) else None for slot in SLOTS)
    if model is not None and model.init is not None:  # a model's weights, their image size, their tokenizer
        if "init" in config and not given & {"init", "init.weights", "init.encoder"}:
            config.init.weights = model.init
        brought = {"image_size": model.get("published_image_size")}
        if (Path(model.init) / "tokenizer.json").is_file():
            brought["tokenizer"] = model.init
        for key, value in brought.items():
            if data is not None and key in data and value is not None and f"data.{key}" not in given:
                data[key] = value
    for key, value in (("image_size", 224), ("num_classes", 1000), ("channels", 3)):  # of a described model of images
        if key in config and config[key] is None:
            published = OmegaConf.select(config, f"model.published_{key}")
            config[key] = value if published is None else published
    size = checks.read_image_size(config)
    for slot in ("model", "model.encoder"):
        chosen = OmegaConf.select(config, slot)
        if isinstance(chosen, DictConfig) and chosen.get("size") and f"{slot}.kind" not in given:  # else it was scaled
            scale_model(chosen)
        if OmegaConf.select(config, f"{slot}.patch_size") == "auto" and size is not None:
            sides = [checks.choose_patch(side) for side in size]
            if all(sides):  # else `check_images` says so
                OmegaConf.update(config, f"{slot}.patch_size", sides[0] if sides[0] == sides[1] else sides)
    # where a task reads labels they are in the column `label`, as texts are in the column `text`
    if task is not None and task.kind == "text_classification" and data is not None and data.get("label", "") is None:
        data.label = "label"
    # a model that may be causal reads a source and its target as one sequence, an encoder-decoder as two
    if task is not None and model is not None and task.get("one_sequence", "") is None:
        task.one_sequence = "causal" in model
    if not config.get("variant", "named") and model is not None:
        config.variant = model.name
    if "analyses" in config:
        names = config.analyses if config.analyses is not None else task.analyses if task is not None else []
        config.analyses = [name for index, name in enumerate(names) if name not in names[:index]]
    for node, field, problem in list(groups.find_idle(config)):  # a recipe's betas with another optimizer
        if key_of(problem) not in given:
            node[field.name] = default_of(field)


def scale_model(model: DictConfig) -> None:
    """Scale a model's depth x width^2 by its `size`, the width by size^0.4, the depth by size^0.2.

    From ViT-Ti to ViT-H these are 119, 6.7 and 2.7, from BiT-50x1 to 101x3 19, 3 and 2.1. Heads keep their width.
    """
    if [*groups.check_ranges(model)]:  # they are refused later
        return
    size, deeper = model.size, model.size**0.2
    if "layers" in model:
        layers = [max(1, round(deeper * count)) for count in model.layers]
        old, new = (sum(n * w**2 for n, w in zip(of, model.widths, strict=False)) for of in (model.layers, layers))
        wider, unit = (size * old / max(new, 1)) ** 0.5, max(1, min(model.widths, default=1) // 8)
        model.layers, model.widths = layers, [unit * max(1, round(wider * width / unit)) for width in model.widths]
        return
    depth, heads, around = model.depth, model.heads, lambda value: {max(1, int(value)), int(value) + 1}
    pairs = [(d, h) for d in around(deeper * depth) for h in around((size * depth / d) ** 0.5 * heads)]
    d, h = min(pairs, key=lambda pair: abs(math.log(pair[0] * pair[1] ** 2 / (size * depth * heads**2))))
    for key in ("depth", "decoder_depth", "heads", "width", "mlp_width"):
        if model.get(key) is not None:
            model[key] = max(1, round(model[key] * (d / depth if "depth" in key else h / heads)))


def choose_groups(config: DictConfig, given: dict[str, Any]) -> tuple[list[str], dict[str, Any], list[str]]:
    """Replace the name at each place of a choice by the loaded choice; return places, the failed choices, problems."""
    slots: list[str] = []
    failed: dict[str, Any] = {}
    problems: list[str] = []
    given = {**given, **choose_defaults(config, given)}
    pending = [(field.name, config, field) for field in list_choice_fields(config)]
    while pending:
        slot, parent, field = pending.pop(0)
        key, group = field.name, field.metadata["group"]
        slots.append(slot)
        choice = given[slot] if given.get(slot) is not None else parent[key]
        if choice is None and slot == "recipe":
            # with a model that failed, any recipe will do: it lets the recipe's keys be checked all the same
            choice = "adamw" if "model" in failed else config.model.recipe
        if choice is None and field.default is None:
            continue
        try:
            parent[key] = groups.load_node(group, choice, key=slot)
        except UserError as error:
            parent[key] = None
            failed[slot] = choice
            problems += error.problems
        else:
            pending += [(f"{slot}.{below.name}", parent[key], below) for below in list_choice_fields(parent[key])]
    return slots, failed, problems


def list_choice_fields(node: DictConfig) -> list[Field]:
    """List the fields of a node that hold a whole choice of a group."""
    return [field for field in dataclasses.fields(OmegaConf.get_type(node)) if field.metadata.get("group")]


def choose_defaults(config: DictConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the data, the task and the model that nobody names: data have a task, a task its data and its model."""
    if "task" not in config:
        return {}

    def of(group: str, choice: Any, key: str) -> Any:
        try:
            return None if choice is None else groups.load_node(group, choice)[key]
        except UserError:
            return None  # whoever loads it says why

    named = {slot: given.get(slot, config[slot]) for slot in SLOTS if slot in config}
    task = named["task"] if named["task"] is not None else of("data", named.get("data"), "task") or FIRST_TASK
    defaults = {slot: of("task", task, slot) or of("task", FIRST_TASK, slot) for slot in ("data", "model")}
    return {slot: value for slot, value in {**defaults, "task": task}.items() if slot in named and named[slot] is None}


@lru_cache(4096)
def parse_yaml(text: str) -> bytes:
    """Parse a text once: a report reads each run's configuration several times, and changes the copy that it gets."""
    return pickle.dumps(yaml.load(text, Loader))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a resolved configuration that this program wrote, as plain containers. Raises UserError."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait
            raise ValueError("it is not a regular file")
        config = pickle.loads(parse_yaml(Path(path).read_text()))
        if not config or not isinstance(config, dict):
            raise ValueError("it has no keys")
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path}: is damaged or was cut ({' '.join(str(error).split())}); {RESTORE}") from None
    return config


def read_config(schema: type, path: str | Path, without: Sequence[str] = ()) -> dict[str, Any]:
    """Read a resolved configuration with every key of the schema; keys that it lacks, or in `without`, have defaults.

    Nothing that the file names is opened. Raises UserError for keys and types that are not the schema's.
    """
    config = structured(schema)
    config.budget = structured(BudgetConfig)
    values = {key: value for key, value in read_yaml(path).items() if key not in without}
    problems = [line for key, value in values.items() for line in assign(config, key, value)]
    problems += choose_groups(config, {})[2]
    raise_all(f"{path}: {line}" for line in problems)
    return OmegaConf.to_container(config, resolve=True)


def resolved(config: Any) -> dict[str, Any]:
    """Convert a configuration to plain containers, every key present."""
    return dataclasses.asdict(config)
