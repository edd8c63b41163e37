"""Arguments of the commands: what `--help` says of them, a parser whose errors are one line, kinds of values."""

import argparse
import contextlib
import errno
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vitlab.config.errors import UserError, choices_text

if TYPE_CHECKING:
    from omegaconf import DictConfig

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

MOST_SAMPLES = 1000  # that `vitlab generate` draws at a time
SHAPES = {"image": ("image_size", "num_classes", "channels"), "text": ("length", "vocabulary")}  # that a model is of


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


def generation(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of `vitlab generate`. Raises UserError for those of drawing beside those of a search."""
    p = parser("generate", GENERATE)
    p.add_argument("run", metavar="RUN", help="the run's folder, or one of Hugging Face's with a GPT-2")
    p.add_argument("--prompt", default="", metavar="TEXT", help="what the text begins with (default: nothing)")
    p.add_argument("--tokens", type=positive, default=100, metavar="N", help="at most so many (default: 100)")
    p.add_argument("--samples", type=positive, default=1, metavar="N", help="texts to draw (default: 1)")
    p.add_argument("--temperature", type=number(0, 1e6), metavar="T", help="0: the likeliest (default: 1)")
    p.add_argument("--top-k", type=positive, metavar="K", help="draw from the K likeliest tokens")
    p.add_argument("--top-p", type=number(0, 1), metavar="P", help="draw from the fewest tokens of this probability")
    p.add_argument("--beams", type=positive, metavar="N", help="search with N beams in place of drawing")
    p.add_argument("--length-penalty", type=number(0, 100), metavar="A", help="of beams (default: 0)")
    p.add_argument("--seed", type=natural, default=0, metavar="N", help="of the drawing (default: 0)")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = p.parse_args(words)
    if args.samples > MOST_SAMPLES:
        raise UserError(f"--samples {args.samples}: draws them at a time; give at most {MOST_SAMPLES}")
    drawing = {"--samples": args.samples > 1, "--temperature": args.temperature is not None}
    drawing |= {"--top-k": args.top_k is not None, "--top-p": args.top_p is not None}
    if args.beams is not None and any(drawing.values()):
        given = ", ".join(option for option, there in drawing.items() if there)
        raise UserError(f"--beams {args.beams}: searches for one text and draws none; give it without {given}")
    if args.beams is None and args.length_penalty is not None:
        raise UserError(f"--length-penalty {args.length_penalty:g}: is for a search; give --beams N with it")
    args.temperature = 1.0 if args.temperature is None else args.temperature
    args.length_penalty = args.length_penalty or 0.0
    return args


def unread(config: "DictConfig", overrides: Sequence[str]) -> Iterator[str]:
    """What `vitlab describe` is given of a model's shape and would not read, one line each."""
    wanted = () if config.data is not None else SHAPES[config.model.modality]
    for word in overrides:
        key = word.partition("=")[0].strip()
        if key not in sum(SHAPES.values(), ()) or key in wanted:
            continue
        if config.data is not None:
            yield f"{word}: comes with data={config.data.name}; give {key} or data, not both"
        else:
            yield f"{word}: model={config.model.name} has none; choices: {', '.join(wanted)}"


@contextlib.contextmanager
def full_disk_said() -> Iterator[None]:
    """Raises UserError for the error of a full disk: what was there before is still there."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{where}{error.strerror}; make room, then give the command again") from None
