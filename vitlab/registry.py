"""The module that implements a choice's `kind`."""

import importlib
from types import ModuleType

from vitlab.config import UserError


def implementation(package: str, kind: str, function: str = "") -> ModuleType:
    """`<package>.<kind>`, or for a kind with a dot that module, a user's own; it has this function.

    Raises UserError.
    """
    name = kind if "." in kind else f"{package}.{kind}"
    lacking = UserError(f"kind={kind}: there is no module {name}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise lacking
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise lacking from None
    if function and not hasattr(module, function):
        raise UserError(f"kind={kind}: {name} has no function '{function}'")
    return module
