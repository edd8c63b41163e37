"""YAML of plain containers, by libyaml where PyYAML has it: ten times as fast, which a study of 1,000 runs notices."""

from pathlib import Path
from typing import Any

import yaml

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
