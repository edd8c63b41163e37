"""What the commands share: a parser with one-line errors, types of values, `RUN|timm:NAME key=value`, a status line.

Imports no torch.
"""

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vitlab.config import (
    TrainConfig,
    UserError,
    change,
    choices_text,
    collecting,
    compose,
    names,
    parse_override,
    raise_all,
)
from vitlab.config.groups import GROUPS
from vitlab.config.schema.models import is_folder
from vitlab.terminal import erase_line
from vitlab.training.files import RunFiles


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
        raise UserError(message.removeprefix("argument ") + near)


def typed(parse: Callable[[str], Any], about: str, accepts: Callable[[Any], bool]) -> Callable[[str], Any]:
    """A type of arguments: what `parse` makes of a text, where that is accepted; else the text is not `about`."""

    def convert(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if accepts(value := parse(text)):
                return value
        raise argparse.ArgumentTypeError(f"'{text}' is not {about}")

    return convert


def number_between(least: float, most: float) -> Callable[[str], float]:
    return typed(float, f"a number from {least:.3g} to {most:g}", lambda value: least <= value <= most)


def digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


positive_integer = typed(digits, "a positive integer", lambda value: value >= 1)
positive_number = typed(float, "a number above 0", lambda value: 0 < value < float("inf"))
seed_number = typed(digits, "an integer from 0 to 2^63 - 1", lambda value: 0 <= value < 2**63)
parse_jobs = typed(
    lambda text: None if text == "auto" else digits(text),
    "a positive integer, nor auto",
    lambda value: value is None or value >= 1,
)


def non_empty_path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def utf8_text(text: str) -> str:
    """A type of arguments: valid Unicode. Bytes that are not UTF-8 reach Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("is not UTF-8 text") from None
    return text


@contextlib.contextmanager
def status_line(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a line on the terminal while something slow is done, such as importing torch, and erase it afterwards."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    print(f"vitlab: {text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        erase_line()


def source_config(source: str, overrides: Sequence[str], free: Sequence[str]) -> tuple[TrainConfig, set[str]]:
    """The configuration of a finished run, `timm:NAME` or Hugging Face's folder with overrides, and the keys these set.

    Of a run only the keys in `free` can be overridden. Other data keep what its model was trained with: the
    normalisation of images, the tokenizer of text. Raises UserError with all problems.
    """
    is_foreign = is_folder(source) and not RunFiles(source).config_path.is_file()
    if source.startswith("timm:") or is_foreign:
        return foreign_config(source, overrides, (*free, *(["task"] if is_foreign else ["model"])), is_foreign)
    files = RunFiles(source)
    files.finished_result()
    run = {**files.config(), "analyses": []}  # which may be files that are gone
    keys = [parse_override(text)[0] for text in overrides]
    fixed = [key for key in keys if key.partition(".")[0] not in free]
    raise_all(f"{key}: cannot be changed for a finished run; choices: {', '.join(free)}" for key in fixed)
    tokens = [key for key in keys if key in ("data.tokenizer", "data.vocabulary", "data.lowercase")]
    raise_all(f"{key}: cannot be changed, the model only knows its own run's tokenizer" for key in tokens)
    config = compose(TrainConfig, overrides, base={**run, "train_size": "all"} if "data" in keys else run)
    if config.data.modality == "text":
        kept = {"data.tokenizer": str(files.tokenizer_path)}
    else:
        kept = {f"data.{key}": run["data"][key] for key in ("mean", "std") if f"data.{key}" not in keys}
    return change(config, kept), {*keys}


def foreign_config(
    source: str, overrides: Sequence[str], free: Sequence[str], of_folder: bool
) -> tuple[TrainConfig, set[str]]:
    problems = []
    with collecting(problems):
        changed = {parse_override(text)[0] for text in overrides}
        if "data" not in changed:
            needs = "texts or images like those it was trained on" if of_folder else "images"
            problems.append(f"{source}: needs {needs}, give data=NAME; choices: {', '.join(names('data'))}")
        unread = sorted(key for key in changed if key.partition(".")[0] not in free)
        problems += [f"{key}: has no effect here; choices: {', '.join(free)}" for key in unread]
        if "model" in changed:
            problems.append(f"model: the model is {source}; change its options by model.options.KEY=VALUE")
        base = {"model": source if of_folder else {"name": source, "pretrained": True}}
        config = compose(TrainConfig, overrides, base=base)
        if of_folder and config.data.modality == "text":
            config = change(config, {"data.tokenizer": source})
    raise_all(problems)
    return config, changed
