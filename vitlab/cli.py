"""The command line: `vitlab COMMAND ...`. What trains is imported only by the commands that train."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vitlab.arguments import (
    DESCRIBE,
    EVAL,
    EXPORT,
    SCALE,
    TRAIN,
    full_disk_said,
    generation,
    out_folder,
    parser,
    positive,
    unread,
)
from vitlab.config.errors import UserError, choices_text, printable


def scale(words: Sequence[str]) -> int:
    p = parser("scale", SCALE)
    p.add_argument("words", nargs="*", metavar="STUDY | key=value")
    p.add_argument("--out", metavar="DIR", help="the study's folder (default: runs/STUDY)")
    p.add_argument("--jobs", type=positive, metavar="N", help="runs at a time (default: one per core, one on a GPU)")
    p.add_argument("--executor", choices=["local"], default="local", help="where runs train (default: local)")
    p.add_argument("--dry-run", action="store_true", help="only print each run, its parameters, FLOPs and time")
    args = p.parse_intermixed_args(words)
    studies = [word for word in args.words if "=" not in word]
    if len(studies) > 1:
        raise UserError(f"'{studies[1]}' is not key=value, and the study is '{studies[0]}' already")
    from vitlab.studies.grid import compose_study, models_of
    from vitlab.studies.store import StudyFiles
    from vitlab.training.files import source_of, source_problems

    config = compose_study((studies or ["quick"])[0], [word for word in args.words if "=" in word])
    folder = out_folder(args.out, config.name)
    StudyFiles(folder).refuse(config)
    if not StudyFiles(folder).config_path.exists():  # a study that goes on may do without
        sources = dict.fromkeys(source_of(run.init) for run in models_of(config).values())
        if problems := [line for source in sources for line in source_problems(source)]:
            raise UserError(problems)
    from vitlab.commands import scale as command

    return command.scale(config, folder, jobs=args.jobs, dry_run=args.dry_run)


def train(words: Sequence[str]) -> int:
    p = parser("train", TRAIN)
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--out", metavar="DIR", help="the run's folder (default: runs/MODEL-DATA-nSIZE-sSEED)")
    args = p.parse_intermixed_args(words)
    from vitlab.config import TrainConfig, compose
    from vitlab.studies.grid import run_name
    from vitlab.training.files import RunFiles, source_of, source_problems

    config = compose(TrainConfig, args.overrides)
    name = run_name(f"{config.model.name}-{config.data.name}", config.train_size, config.seed)
    folder = out_folder(args.out, name)
    RunFiles(folder).refuse(config)
    if not RunFiles(folder).checkpoint_path.exists() and (problems := list(source_problems(source_of(config.init)))):
        raise UserError(problems)
    from vitlab.commands import train as command

    return command.train(config, folder)


def describe(words: Sequence[str]) -> int:
    p = parser("describe", DESCRIBE)
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = p.parse_intermixed_args(words)
    from vitlab.config import DescribeConfig, compose

    config = compose(DescribeConfig, args.overrides)
    if problems := list(unread(config, args.overrides)):
        raise UserError(problems)
    from vitlab.commands import describe as command

    return command.describe(config, as_json=args.json)


def evaluate(words: Sequence[str]) -> int:
    p = parser("eval", EVAL)
    p.add_argument("run", metavar="RUN|timm:NAME", help="the run's folder, or a model of timm")
    p.add_argument("overrides", nargs="*", metavar="key=value")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.add_argument("--out", metavar="DIR", help="where the numbers and pictures go (default: none are written)")
    args = p.parse_intermixed_args(words)
    from vitlab.commands.source import source_config
    from vitlab.training.files import refuse_unwritable

    config, changed = source_config(args.run, args.overrides, ("data", "train_size", "probes"))
    folder = out_folder(args.out, "") if args.out is not None else None
    if folder:
        refuse_unwritable(folder)
    from vitlab.commands import evaluate as command

    return command.evaluate(args.run, config, changed, as_json=args.json, folder=folder)


def analyze(words: Sequence[str]) -> int:
    p = parser("analyze", "Analyse what a run's model learned, or any model of timm.")
    p.add_argument("run", metavar="RUN|timm:NAME", help="the run's folder, or a model of timm")
    p.add_argument(
        "words",
        nargs="*",
        metavar="ANALYSIS | key=value",
        help="default: every analysis that applies; ANALYSIS.key=value changes its options",
    )
    p.add_argument("--text", action="append", nargs=1, default=[], metavar="TEXT", help="what a text model is shown")
    p.add_argument(
        "--pair", action="append", nargs=2, dest="text", metavar=("A", "B"), help="two sentences of one text"
    )
    p.add_argument("--out", metavar="DIR", help="where the numbers and pictures go (default: RUN/analysis/trained)")
    args = p.parse_intermixed_args(words)
    from vitlab.commands.source import analysis_options, source_config
    from vitlab.config import names
    from vitlab.training.files import refuse_unwritable

    known = names("analysis")
    chosen, given = [w for w in args.words if "=" not in w], [w for w in args.words if "=" in w]
    overrides = [w for w in given if w.partition("=")[0].partition(".")[0] not in known]
    problems = [f"{name}: unknown analysis; {choices_text(name, known)}" for name in chosen if name not in known]
    if overrides and not args.out and not args.run.startswith("timm:"):
        problems.append(f"{overrides[0]}: give --out DIR too; the run's own folder is for its own data")
    options = {}
    try:
        options = analysis_options([w for w in given if w not in overrides])
    except UserError as error:
        problems += error.problems
    try:
        config, changed = source_config(args.run, overrides, ("data",))
        if args.out:
            refuse_unwritable(Path(args.out))
    except UserError as error:
        problems += error.problems
    idle = [name for name in options if chosen and name not in chosen]
    problems += [f"{name}: has options, but is not asked for; name it too, or leave them out" for name in idle]
    if problems:
        raise UserError(problems)
    from vitlab.commands import analyze as command

    folder = Path(args.out) if args.out else None
    return command.analyze(args.run, chosen, config, changed, folder, args.text, options)


def export(words: Sequence[str]) -> int:
    p = parser("export", EXPORT)
    p.add_argument("run", metavar="RUN", help="the run's folder")
    p.add_argument("file", metavar="FILE", help="to write: .safetensors (weights) or .onnx (the whole model)")
    p.add_argument("--names", choices=["timm", "own"], default="timm", help="of the weights (default: timm)")
    args = p.parse_args(words)
    path = Path(args.file)
    from vitlab.training.files import RunFiles, refuse_unwritable

    RunFiles(args.run).finished_result()
    of_text = RunFiles(args.run).tokenizer_path.exists()
    if path.suffix not in (".safetensors", ".onnx") and not (of_text and not path.suffix and not path.is_file()):
        folder = ", or a folder for Hugging Face's transformers" if of_text else ""
        raise UserError(f"{path}: give a file that ends in .safetensors or .onnx{folder}")
    if path.suffix and path.is_dir():
        raise UserError(f"{path}: is a folder; give a file that ends in .safetensors or .onnx")
    if not path.suffix and path.is_dir() and any(path.iterdir()):
        raise UserError(f"FILE '{args.file}': is a folder with files in it; give another one")
    refuse_unwritable(path.parent, "FILE")
    from vitlab.commands import export as command

    return command.export(args.run, path, names=args.names)


def generate(words: Sequence[str]) -> int:
    args = generation(words)
    folder = Path(args.run)
    if (folder / "config.yaml").exists() or not (folder / "config.json").exists():
        from vitlab.training.files import RunFiles

        RunFiles(folder).finished_result()
    from vitlab.commands import generate as command

    options = {key: value for key, value in vars(args).items() if key not in ("run", "prompt", "json")}
    return command.write(args.run, args.prompt, **options, as_json=args.json)


def report(words: Sequence[str]) -> int:
    p = parser(
        "report", "Write a study's report.html, compare.html, attention/, figures/ and tables/ again from its files."
    )
    p.add_argument("study", metavar="STUDY_DIR")
    p.add_argument("--wandb", action="store_true", help="a W&B workspace and report too; saved there once logged in")
    args = p.parse_args(words)
    from vitlab.studies.store import StudyFiles

    StudyFiles(args.study).config()
    from vitlab.commands import report as command

    return command.report(args.study, wandb=args.wandb)


def sync(words: Sequence[str]) -> int:
    p = parser("sync", "Upload what a study's finished runs logged offline to W&B, each run once.")
    p.add_argument("study", metavar="STUDY_DIR")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = p.parse_args(words)
    from vitlab.studies.store import StudyFiles

    StudyFiles(args.study).config()
    from vitlab.commands import sync as command

    return command.sync(args.study, as_json=args.json)


def listing(words: Sequence[str]) -> int:
    from vitlab.commands import listing as command

    p = parser("list", "List the choices of a group.")
    p.add_argument("what", choices=list(command.GROUPS))
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = p.parse_args(words)
    return command.listing(args.what, as_json=args.json)


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "scale": (scale, "train models on nested subsets of a data set and compare them"),
    "train": (train, "train one model"),
    "eval": (evaluate, "evaluate a finished run, probe its features"),
    "analyze": (analyze, "analyse what a model learned"),
    "generate": (generate, "text from a language model"),
    "export": (export, "write a run's model as safetensors or ONNX"),
    "report": (report, "write a study's report again"),
    "sync": (sync, "upload a study's offline W&B runs"),
    "describe": (describe, "count a model: parameters, tokens, FLOPs, memory"),
    "list": (listing, "list models, data, tasks, recipes, analyses, probes, studies, mixers"),
}


def usage() -> str:
    lines = [f"  {name:9} {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "How do transformers compare with the architectures they replaced, as the data grows?",
            "",
            "usage: vitlab COMMAND ...",
            "",
            *lines,
            "",
            "Start with: vitlab scale            `vitlab COMMAND --help` says more.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0 done, 2 wrong input, 1 anything else, 130 on Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
    try:
        with full_disk_said():
            code = run(words)
        sys.stdout.flush()
        return code
    except UserError as error:
        for line in error.problems:
            print(f"vitlab: {printable(line)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("vitlab: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `vitlab list models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] == "--version":
        from importlib.metadata import version

        print(version("vitlab"))
        return 0
    if words[0] not in COMMANDS:
        raise UserError(f"unknown command '{words[0]}'; {choices_text(words[0], COMMANDS)}")
    return COMMANDS[words[0]][0](words[1:])


def interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
