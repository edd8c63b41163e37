"""`vitlab list`: the choices of each group with what their files say about them, and all keys."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile

import yaml

from vitlab.commands.arguments import CommandParser
from vitlab.config import names
from vitlab.config.groups import config_dir
from vitlab.config.schema import StudyConfig, TrainConfig

GROUPS = {
    "models": "model",
    "data": "data",
    "tasks": "task",
    "recipes": "recipe",
    "analyses": "analysis",
    "probes": "probe",
    "studies": "study",
    "mixers": "mixer",
}
SCHEMAS = {"runs": TrainConfig, "study": StudyConfig}


def main(words: Sequence[str]) -> int:
    parser = CommandParser("list", "List the choices of a group, or its keys with their types, ranges and defaults.")
    keys = [f"{what}.keys" for what in (*SCHEMAS, *(what for what in GROUPS if what != "studies"))]
    parser.add_argument("what", choices=[*GROUPS, *keys])
    parser.add_json()
    args = parser.parse_args(words)
    if args.what in GROUPS:
        return list_choices(args.what, as_json=args.json)
    return show_keys(args.what.removesuffix(".keys"), as_json=args.json)


def list_choices(what: str, *, as_json: bool) -> int:
    """Print the names of a group and what the header of each file says, of models their sizes; the exit code."""
    group, sizes = GROUPS[what], []
    choices = [{"name": name, "about": read_about(group, name)} for name in names(group)]
    if group == "model":
        sizes = ["layers", "width", "mlp", "heads"]
        choices = [{"name": one["name"], **read_sizes(one["name"]), "about": one["about"]} for one in choices]
        choices.append({"name": "timm:NAME", "about": "Any model of timm, by its name there."})
    if as_json:
        print(json.dumps(choices, indent=1))
        return 0
    width = max(len(item["name"]) for item in choices)
    lines = [{"name": "", **{key: key for key in sizes}, "about": ""}] * bool(sizes) + choices
    for item in lines:
        cells = "".join(f"{item.get(key) or '':>8}" for key in sizes)
        print(f"{item['name']:{width}}{cells}  {item['about']}".rstrip())
    return 0


def read_sizes(model: str) -> dict[str, int | None]:
    """Layers, width, width of the MLP (by default 4 times that) and heads of a shipped model, as far as it has them."""
    file = yaml.safe_load((config_dir() / "model" / f"{model}.yaml").read_text())
    width = file.get("width")
    mlp = file.get("mlp_width") or (4 * width if width and "heads" in file else None)
    return {
        "layers": file.get("depth"),
        "width": width,
        "mlp": mlp,
        "heads": None if "mixer" in file else file.get("heads"),
    }


def show_keys(what: str, *, as_json: bool) -> int:
    """Print the keys of runs, of studies or of a group's kinds; the exit code."""
    from vitlab.config.groups import list_keys, list_kind_keys

    sections = [("", list(list_keys(SCHEMAS[what])))] if what in SCHEMAS else list(list_kind_keys(GROUPS[what]))
    if as_json:
        print(json.dumps([{"kind": kind, **asdict(key)} for kind, keys in sections for key in keys], indent=1))
        return 0
    for kind, keys in sections:
        if kind:
            print(f"\nkind {kind}")
        width = max(len(key.name) for key in keys)
        for key in keys:
            about = f"  # {key.about}" if key.about else ""
            print(f"{key.name:{width}}  {key.type}; {key.default or 'empty'}{about}")
    return 0


def read_about(group: str, name: str) -> str:
    """The first line of the header of a choice's YAML file, without a sentence that it breaks off, or with its rest."""
    lines = (config_dir() / group / f"{name}.yaml").read_text().splitlines()
    header = [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    first = header[0] if header else ""
    ends_with_command = "vitlab " in first or "=" in first.rpartition(" ")[2]
    if not header[1:] or first.endswith((".", ")")) or ends_with_command:
        return first
    whole = re.match(r".*(?<!et al)\.(?= )", first) or re.match(r".*?(?<!et al)\.(?= |$)", f"{first} {header[1]}")
    return whole.group() if whole else f"{first} {header[1]}"
