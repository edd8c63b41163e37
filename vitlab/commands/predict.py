"""`vitlab predict`: what a finished run says of new pictures or texts."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import UserError, printable, raise_all
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.files import read_json, read_utf8
from vitlab.training.files import RunFiles

if TYPE_CHECKING:
    from vitlab.training.predict import Prediction, Predictor

DESCRIPTION = """Say what pictures or texts are, with probabilities that the run's validation data have calibrated.
  vitlab predict runs/quick/vit_nano-n32000-s0 photo.jpg
  vitlab predict runs/advice-photos folder --csv > predictions.csv   # by the model that vitlab advise named
  vitlab predict runs/docstrings "Return the number of rows." --json
  vitlab predict runs/bert "Return the [MASK] of the list."   # the five likeliest tokens, of a task=masked_lm
  vitlab predict runs/facts "What does the red box hold? [SEP] The red box holds ten pens."   # of span_extraction
  vitlab predict runs/docstrings lines.txt          # a text in each line; - reads them from standard input"""
SHOWN = 3  # classes of a line
LONGEST = 60  # characters of an input in a terminal


def main(words: Sequence[str]) -> int:
    parser = CommandParser("predict", DESCRIPTION)
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or of vitlab advise")
    parser.add_argument("inputs", nargs="+", metavar="FILE|FOLDER|TEXT", help="pictures, folders of them, or texts")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    form.add_argument("--csv", action="store_true", help="print a table with a column for each class")
    args = parser.parse_intermixed_args(words)
    advised = read_json(Path(args.run) / "advice.json", lambda document: document["predictor"])
    if advised and "run" in advised:
        args.run, advised = str(Path(args.run) / advised["run"]), None
    files = RunFiles(args.run)
    if advised is None:
        files.finished_result()
    reads_text = advised is None and (files.config().get("data") or {}).get("modality") == "text"
    inputs = list(list_texts(args.inputs) if reads_text else list_pictures(args.inputs))
    with status_line("loading torch", quiet=args.json or args.csv):
        from vitlab.training.predict import Predictor

        if advised is not None:
            from vitlab.studies.advice import AdvisedClassifier

    predictor = Predictor(args.run) if advised is None else AdvisedClassifier(Path(args.run), advised)
    if args.csv and predictor.fills:
        raise UserError(f"--csv: {args.run} writes tokens or answers and has no classes; give --json")
    with progress_bar(Console(stderr=True)) as progress:
        found = predictor.predict(inputs, progress)
    if predictor.not_calibrated:
        print(f"vitlab: not calibrated: {printable(predictor.not_calibrated)}", file=sys.stderr)
    for one in found:
        if one.error:
            print(f"vitlab: {printable(one.input)}: {printable(one.error)}", file=sys.stderr)
    write = write_json if args.json else write_csv if args.csv else write_lines
    write(args.run, predictor, found)
    return 2 if all(one.error for one in found) else int(any(one.error for one in found))


def list_pictures(names: Sequence[str]) -> Iterator[str]:
    """The files, and all pictures below the folders. Raises UserError for what is neither."""
    from vitlab.data.cache import walk_files
    from vitlab.data.images.imagefolder import EXTENSIONS, KINDS

    raise_all(
        f"{name}: {'neither a file nor a folder' if Path(name).exists() else 'no such file or folder'}; give pictures"
        for name in names
        if not (Path(name).is_file() or Path(name).is_dir())  # a FIFO would wait for its writer
    )
    for name in names:
        below = sorted(entry.path for entry in walk_files(name, EXTENSIONS)) if Path(name).is_dir() else [name]
        if not below:
            raise UserError(f"{name}: holds no pictures ({KINDS})")
        yield from below


def list_texts(names: Sequence[str]) -> Iterator[str]:
    """The texts: as given, the lines of a .txt file, or of standard input for -."""
    for name in names:
        if name == "-":
            yield from sys.stdin.read().splitlines()
        elif name.endswith(".txt") and Path(name).is_file():
            yield from read_utf8(Path(name), "TEXT").splitlines()
        else:
            yield name


def write_lines(run: str, predictor: "Predictor", found: Sequence["Prediction"]) -> None:
    """`photo.jpg  cat 97.1%  dog 2.5%  bird 0.4%`"""
    shown = [shorten(one.input) for one in found]
    width = max(map(len, shown))
    for name, one in zip(shown, found, strict=True):
        if one.error:
            continue
        ranked = "  ".join(
            f"{printable(label)} {share:.1%}" for label, share in one.ranked[: SHOWN if predictor.classes else None]
        )
        says = ranked if one.number is None else f"{one.number:.6g}"
        print(f"{name:{width}}  {says}")


def shorten(text: str) -> str:
    text = printable(text)
    return f"{text[: LONGEST - 3]}..." if len(text) > LONGEST and sys.stdout.isatty() else text


def write_csv(run: str, predictor: "Predictor", found: Sequence["Prediction"]) -> None:
    from vitlab.studies.store import format_line

    classes = predictor.classes
    rows = [["input", "prediction", *([] if predictor.is_number else ["probability", *classes])]]
    for one in found:
        if one.number is not None:
            rows.append([one.input, f"{one.number:.6g}"])
        elif not one.error:
            best, share = one.ranked[0]
            rows.append([one.input, best, *(f"{p:.6f}" for p in (share, *one.probabilities.values()))])
    print("".join(map(format_line, rows)), end="")


def write_json(run: str, predictor: "Predictor", found: Sequence["Prediction"]) -> None:
    head = {"run": run, "classes": list(predictor.classes), "temperature": predictor.temperature}
    head["calibrated"] = not (predictor.not_calibrated or predictor.is_number or predictor.several or predictor.fills)
    print(json.dumps({**head, "items": [describe(one) for one in found]}, indent=1))


def describe(one: "Prediction") -> dict:
    if one.error:
        return {"input": one.input, "error": one.error}
    if one.number is not None:
        return {"input": one.input, "prediction": one.number}
    best, share = one.ranked[0]
    return {"input": one.input, "prediction": best, "probability": share, "probabilities": one.probabilities}
