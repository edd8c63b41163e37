"""Write docs/keys.md, the reference of all keys, from the dataclasses and YAML files that declare them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from vitlab.commands.list import GROUPS, SCHEMAS
from vitlab.config.groups import Key, list_keys, list_kind_keys

HEAD = """# All keys

Written by `python scripts/write_keys.py`. `vitlab list GROUP.keys` prints the same: `vitlab list runs.keys`.
"""


def write_table(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | |"
    yield "|---|---|---|---|"
    for key in keys:
        yield (
            "| "
            + " | ".join(cell.replace("|", "\\|") for cell in (f"`{key.name}`", key.type, key.default, key.about))
            + " |"
        )


def write_page() -> str:
    lines = [HEAD]
    for what, schema in SCHEMAS.items():
        lines += [f"## {what}", "", *write_table(list_keys(schema)), ""]
    for what, group in GROUPS.items():
        for kind, keys in list_kind_keys(group) if group != "study" else ():
            lines += [f"### {what} of kind `{kind}`" if kind else f"## {what}", "", *write_table(keys), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    Path("docs/keys.md").write_text(write_page())
