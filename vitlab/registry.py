"""The module that implements a choice's `kind`."""

import importlib
from types import ModuleType

from vitlab.config import UserError


def implementation(package: str, kind: str) -> ModuleType:
    """`vitlab.<package>.<kind>`, or for a kind with a dot that module, a user's own. Raises UserError."""
    name = kind if "." in kind else f"{package}.{kind}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UserError(f"kind={kind}: there is no module {name}") from None
