"""Arguments of the commands: a parser whose errors are one line, and the kinds of value that options take."""

import argparse
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from vitlab.config.errors import UserError, choices_text


class Parser(argparse.ArgumentParser):
    """Problems in one line, with the nearest option."""

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0] if "unrecognized" in message else None
        near = f"; {choices_text(unknown, known)}" if unknown and unknown.startswith("-") else ""
        if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            message = message[: found.start()] + f"unknown '{found[1]}'; "
            message += choices_text(found[1], re.findall(r"[\w.-]+", found[2]))
        print(f"{self.prog}: {message}{near}", file=sys.stderr)
        raise SystemExit(2)


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 up")
    return int(text)


def natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 2**63 - 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 up")
    return int(text)


def number(least: float, most: float) -> Callable[[str], float]:
    """A parser of numbers from least to most."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} to {most:g}")
        return value

    return parse


def parser(command: str, about: str) -> Parser:
    return Parser(
        prog=f"vitlab {command}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def out_folder(given: str | None, name: str) -> Path:
    if given == "":
        raise UserError("--out: the folder is empty; give a path, or no --out at all for runs/NAME")
    return Path(given or f"runs/{name}")
