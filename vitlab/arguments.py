"""Arguments of the commands: what `--help` says of them, a parser whose errors are one line, kinds of values."""

import argparse
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from vitlab.config.errors import UserError, choices_text

SCALE = """Train models on nested subsets of a data set and compare them.

STUDY is a name under configs/study/ (default: quick) or the path of a YAML file; key=value changes one of its fields:
  vitlab scale
  vitlab scale quick data=digits sizes=[100,400] seeds=[0,1] budget.steps=60 --out runs/digits
  vitlab scale data=imagefolder data.root=photos
Given again, the command goes on where it stopped."""
TRAIN = """Train one model. key=value chooses a group (model, data, task, recipe) or changes a field:
  vitlab train model=vit_nano data=digits budget.epochs=20
  vitlab train model=resnet18 data=cifar10 recipe.lr=0.05 train_size=5000
  vitlab train model=vit_b16 init=timm:vit_base_patch16_224 data=imagefolder data.root=photos data.image_size=384
The choices: vitlab list models|data|tasks|recipes, and in the README."""
EVAL = """Evaluate a finished run on held-out images, its own or another data set's, and probe its features:
  vitlab eval runs/quick/vit_nano-n32000-s0 --out evaluation
  vitlab eval runs/quick/vit_nano-n32000-s0 probes=[fewshot,linear,knn] train_size=5000
  vitlab eval timm:vit_small_patch16_224 data=cifar10 probes=[knn]"""
DESCRIBE = """Count a model: parameters by part and by layer, tokens, FLOPs, memory.
  vitlab describe model=vit_b16
  vitlab describe model=timm:resnet50 image_size=[192,256] --json"""
GENERATE = """Continue a text with a run's language model:
  vitlab generate runs/gpt --prompt "Return the" --temperature 0.8 --top-p 0.9
  vitlab generate runs/gpt --prompt "Return the" --beams 4 --tokens 40"""
EXPORT = """Write a finished run's model for other programs.
  vitlab export runs/quick/vit_nano-n32000-s0 vit.safetensors    # weights in timm's names, or --names own
  vitlab export runs/quick/vit_nano-n32000-s0 vit.onnx           # the whole model, for any batch size"""


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
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 to 2^63 - 1")
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
