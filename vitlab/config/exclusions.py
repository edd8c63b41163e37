"""Settings that do not go with a context, as their fields declare."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from vitlab.config.errors import Problem, to_text
from vitlab.config.schema.fields import default_of

REASONS = {
    "text": "is only for images",
    "captions": "a caption does not say what it makes of a picture",
}


def find_excluded(settings: Any, context: str, path: str) -> Iterator[Problem]:
    """The settings at `path` of a configuration that do not go with a context, one of REASONS."""
    for field in fields(settings):
        key, value = f"{path}.{field.name}", vars(settings)[field.name]
        if is_dataclass(value):
            yield from find_excluded(value, context, key)
        default = default_of(field)
        if value != default and context in field.metadata.get("excludes", ()):
            shown = f"{default:g}" if isinstance(default, float) else to_text(default)
            yield Problem(key, value, f"{REASONS[context]}; give {key}={shown}")
