"""`vitlab list`: the choices of each group, with what their files say of them. Imports nothing heavy."""

import json

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


def listing(what: str, *, as_json: bool) -> int:
    """Print the names of a group and the first line of each file's header; the exit code."""
    group = GROUPS[what]
    found = [{"name": name, "about": about(group, name)} for name in names(group)]
    if group == "model":
        found.append({"name": "timm:NAME", "about": "Any model of timm, by its name there."})
    if as_json:
        print(json.dumps(found, indent=1))
        return 0
    width = max(len(item["name"]) for item in found)
    for item in found:
        print(f"{item['name']:{width}}  {item['about']}".rstrip())
    return 0


def about(group: str, name: str) -> str:
    """The first comment line of a choice's YAML file."""
    first = (config_dir() / group / f"{name}.yaml").read_text().partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
