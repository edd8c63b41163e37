"""Find the module that implements a choice's `kind`."""

import importlib.util
import pkgutil
from types import ModuleType

from vitlab.config.errors import UserError


def implementation(package: str, kind: str, function: str = "", key: str = "kind") -> ModuleType:
    """Import the module `<package>.<kind>`, or the user's own module if `kind` has a dot; `key` is named in errors.

    Raises UserError for a module that does not exist or lacks the `function`.
    """
    name = kind if "." in kind else f"{package}.{kind}"
    fix = f"give a module of {package}, or your own as PACKAGE.MODULE"
    if "." in kind:
        fix = f"install it, or start with PYTHONPATH=FOLDER, the one that holds {kind.partition('.')[0]}"
    no_module = UserError(f"{key}={kind}: no module named {name}; {fix}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise no_module
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise no_module from None
    if function and not getattr(module, function, None):
        raise UserError(f"{key}={kind}: {name} has no function '{function}'")
    return module


def list_modules(package: str) -> list[str]:
    """List the names of the modules in a package's folder without importing them."""
    spec = importlib.util.find_spec(package)
    return sorted(module.name for module in pkgutil.iter_modules(spec.submodule_search_locations))
