"""The weight of the project's Python code, and whether it stays within `[tool.weight]` of pyproject.toml.

    python scripts/weight.py            # files, lines and statements of each folder; exit code 1 where one is too many
    python scripts/weight.py --lower    # write what is measured where it is less than the limit

A statement is any of the syntax tree but imports and docstrings: unlike lines it does not change with the layout. The
limits are only ever lowered.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = ROOT / "pyproject.toml"


def measure(folder: Path) -> dict[str, int]:
    weight = {"files": 0, "lines": 0, "statements": 0}
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        nodes = [*ast.walk(ast.parse(text))]
        docstrings = sum(isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in nodes)
        statements = sum(isinstance(n, ast.stmt) and not isinstance(n, ast.Import | ast.ImportFrom) for n in nodes)
        weight["files"] += 1
        weight["lines"] += text.count("\n")
        weight["statements"] += statements - docstrings
    return weight


def main(words: list[str]) -> int:
    text, over = PROJECT.read_text(encoding="utf-8"), False
    for name, limits in tomllib.loads(text)["tool"]["weight"].items():
        found = measure(ROOT / name)
        for key, limit in limits.items():
            over |= found[key] > limit
            note = "" if found[key] <= limit else f", {found[key] - limit} too many"
            print(f"{name:16} {key:10} {found[key]:7,} of {limit:,}{note}")
            if words == ["--lower"] and found[key] < limit:
                text = re.sub(
                    rf"^({re.escape(name)} = .*\b{key} = )\d+", rf"\g<1>{found[key]}", text, flags=re.MULTILINE
                )
    if words == ["--lower"]:
        PROJECT.write_text(text, encoding="utf-8")
    return int(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
