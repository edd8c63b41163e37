"""`vitlab list`: the choices of each group, with what their files say about them."""

import json
from collections.abc import Sequence

from vitlab.commands.arguments import CommandParser
from vitlab.config import names
from vitlab.config.groups import config_dir

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


def main(words: Sequence[str]) -> int:
    parser = CommandParser("list", "List the choices of a group.")
    parser.add_argument("what", choices=list(GROUPS))
    parser.add_json()
    args = parser.parse_args(words)
    return list_choices(args.what, as_json=args.json)


def list_choices(what: str, *, as_json: bool) -> int:
    """Print the names of a group and the first line of each file's header; the exit code."""
    group = GROUPS[what]
    choices = [{"name": name, "about": read_about(group, name)} for name in names(group)]
    if group == "model":
        choices.append({"name": "timm:NAME", "about": "Any model of timm, by its name there."})
    if as_json:
        print(json.dumps(choices, indent=1))
        return 0
    width = max(len(item["name"]) for item in choices)
    for item in choices:
        print(f"{item['name']:{width}}  {item['about']}".rstrip())
    return 0


def read_about(group: str, name: str) -> str:
    """The first comment line of a choice's YAML file."""
    first = (config_dir() / group / f"{name}.yaml").read_text().partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
