"""The module that implements a choice's `kind`."""

import importlib
from types import ModuleType

from vitlab.config import UserError


def implementation(package: str, kind: str, function: str = "") -> ModuleType:
    """The module `<package>.<kind>`, or your own module for a kind with a dot; it must have `function`.

    Raises UserError.
    """
    name = kind if "." in kind else f"{package}.{kind}"
    missing = UserError(f"kind={kind}: there is no module {name}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise missing from None
    if function and not hasattr(module, function):
        raise UserError(f"kind={kind}: {name} has no function '{function}'")
    return module
