"""Settings that do not go with a context, as their fields declare."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from vitlab.config.errors import Problem, to_text
from vitlab.config.schema.fields import ANY, default_of

REASONS = {
    "text": "is only for images",
    "captions": "a caption does not say what it makes of a picture",
    "fsdp": "needs whole weights on each device, fsdp shards them",
}
INSTEAD = {"fsdp": ", or trainer.strategy=ddp"}


def find_excluded(settings: Any, context: str, path: str) -> Iterator[Problem]:
    """The settings at `path` of a configuration that do not go with a context, one of REASONS."""
    for field in fields(settings):
        key, value = f"{path}.{field.name}", vars(settings)[field.name]
        if is_dataclass(value):
            yield from find_excluded(value, context, key)
        excluded, default = field.metadata.get("excludes", {}).get(context), default_of(field)
        if value != default and (excluded is ANY or (excluded is not None and value == excluded)):
            advice = f"give {key}={format_default(default)}{INSTEAD.get(context, '')}"
            yield Problem(key, value, f"{REASONS[context]}; {advice}")


def format_default(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else to_text(value)
