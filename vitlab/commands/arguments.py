"""Helpers that the commands share: a parser with one-line errors, types of values, a status line.

Imports no torch.
"""

import argparse
import atexit
import contextlib
import gc
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from vitlab.config import UserError, choices_text
from vitlab.config.groups import GROUPS
from vitlab.console import unwrap


class CommandParser(argparse.ArgumentParser):
    """Raises UserError, with the nearest option, where argparse prints the usage and exits."""

    def __init__(self, command: str, description: str):
        super().__init__(
            prog=f"vitlab {command}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="print one JSON document on stdout")

    def add_out(self, about: str) -> None:
        self.add_argument("--out", type=non_empty_path, metavar="DIR", help=about)

    def error(self, message: str) -> NoReturn:
        options = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0] if "unrecognized" in message else None
        near = f"; {choices_text(unknown, options)}" if unknown and unknown.startswith("-") else ""
        if unknown and (key := unknown.lstrip("-").partition("=")[0]) in GROUPS:
            near = f"; did you mean {key}=NAME?"
        if match := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            message = message[: match.start()] + f"unknown '{match[1]}'; "
            message += choices_text(match[1], re.findall(r"[\w.-]+", match[2]))
        if "are required" in message:
            known = [choice for action in self._actions if action.required for choice in action.choices or ()]
            if self.prog.endswith((" report", " sync", " work")):
                known = [str(path.parent) for path in sorted(Path("runs").glob("*/study.yaml"))]
            near = f"; {choices_text('', known, limit=24)}" if known else ""
        raise UserError(message.removeprefix("argument ") + near)


def typed(parse: Callable[[str], Any], about: str, accepts: Callable[[Any], bool]) -> Callable[[str], Any]:
    """Make a type of arguments: `parse` converts a text, `accepts` checks the value, `about` names a valid text."""

    def convert(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if accepts(value := parse(text)):
                return value
        raise argparse.ArgumentTypeError(f"'{text}' is not {about}")

    return convert


def number_between(least: float, most: float, kind: type = float) -> Callable[[str], Any]:
    what = "a number" if kind is float else "an integer"
    return typed(kind, f"{what} from {least:.3g} to {most:g}", lambda value: least <= value <= most)


def non_empty_path(text: str) -> Path:
    """Parse a path. An empty path, as of a variable that is not set, would be the current folder: refuse it."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


positive_integer = typed(int, "a positive integer", lambda value: value >= 1)
positive_number = typed(float, "a number above 0", lambda value: 0 < value < float("inf"))
parse_jobs = typed(
    lambda text: None if text == "auto" else int(text),
    "auto or a positive integer",
    lambda value: value is None or value >= 1,
)


@contextlib.contextmanager
def status_line(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a line on the terminal while something slow is done, such as importing torch, and erase it afterwards."""
    shown = not quiet and sys.stderr.isatty()
    if shown:
        print(f"vitlab: {text} ...", end="", file=sys.stderr, flush=True)
    gc.disable()  # what is imported stays: to look for garbage in it takes a seventh of the time to the first step
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # else libraries report it as leaked
        if shown:
            print("\r\x1b[2K", end="", file=unwrap(sys.stderr), flush=True)  # erases the line
