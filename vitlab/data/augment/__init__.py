"""Augmentation of whole batches of uint8 images, on the device that holds them: one module each, found by listing.

A module has `apply(images, config, recipe, generator)`, uint8 (B, C, H, W) -> the same, where `config` is
`data.augment` and `recipe` the recipe; all that is random is drawn from `generator`. `ORDER` is its place among the
others (crop 10, flip_shift 20, rand_augment 30), and a dataclass `Config` holds its keys below `data.augment`, with
ranges by `vitlab.config.schema.fields.setting` and a comment that docs/keys.md shows (`python scripts/write_keys.py`).
One that is off gives the very tensor and draws nothing, so that others draw what they did. The generator may be on the
CPU where the images are not. torch is imported inside the functions, because commands that only print read the keys. A
module may have `check(recipe, data)`, which yields what does not fit, a line each.
"""

from functools import cache
from importlib import import_module
from types import ModuleType

from vitlab.registry import find_function, list_modules


@cache
def list_augmentations() -> tuple[ModuleType, ...]:
    """The modules in the order in which they are applied."""
    modules = [import_module(f"{__name__}.{name}") for name in list_modules(__name__)]
    return tuple(sorted((m for m in modules if find_function(m, "apply")), key=lambda module: module.ORDER))
