"""`vitlab eval` and `analyze`: a finished run's model, or one of timm or Hugging Face, measured and looked into."""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import (
    TrainConfig,
    UserError,
    change,
    collecting,
    compose,
    load,
    names,
    parse_override,
    printable,
    raise_all,
)
from vitlab.config.checks import find_misfit
from vitlab.config.errors import key_of
from vitlab.config.schema.models import is_folder, timm_model
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.data.split import resolve_size, size_problems, training_items
from vitlab.files import write_json, write_text
from vitlab.formatting import round_numbers, weights_name
from vitlab.hardware import count_cores
from vitlab.studies.store import format_line
from vitlab.training.files import RunFiles, mark_output, refuse_output, write_analysis

if TYPE_CHECKING:
    from torch import Tensor

    from vitlab.tasks.base import Task
    from vitlab.training.load import Subject


def source_config(source: str, overrides: Sequence[str], free: Sequence[str]) -> tuple[TrainConfig, set[str]]:
    """Compose the configuration of a run, `timm:NAME[=FILE]` or a Hugging Face folder; return also the keys given.

    For a run only the keys in `free` can be overridden. Other data keep what its model was trained with: the
    normalization of images, the tokenizer of text. Raises UserError with all problems.
    """
    is_foreign = is_folder(source) and not RunFiles(source).config_path.is_file()
    if source.startswith("timm:") or is_foreign:
        return foreign_config(source, overrides, (*free, *(["task"] if is_foreign else ["model"])), is_foreign)
    files, problems, found, run = RunFiles(source), [], [], {}
    given = parse_all(overrides, problems)
    keys = [key for key in given if key in free or key.partition(".")[0] in free]
    fixed = [key for key in given if key not in keys]
    problems += [f"{key}: cannot be changed for a finished run; choices: {', '.join(free)}" for key in fixed]
    tokens = [key for key in keys if key in ("data.tokenizer", "data.vocabulary", "data.lowercase")]
    problems += [f"{key}: cannot be changed, the model only knows its own run's tokenizer" for key in tokens]
    with collecting(problems):
        files.finished_result()
        run = {**files.config(), "analyses": []}  # which may be files that are gone
    with collecting(found):
        base = {**run, "train_size": "all"} if "data" in keys else run
        config = compose(TrainConfig, [(key, given[key]) for key in keys], base)
    # without a run the overrides are checked by themselves
    raise_all([*problems, *(line for line in found if run or key_of(line) in given)])
    is_image = config.data.modality == "image"
    kept = {f"data.{key}": run["data"][key] for key in ("mean", "std") if is_image and f"data.{key}" not in keys}
    if "tokenizer" in vars(config.data) and (files.tokenizer_path.is_file() or not is_image):  # captions have one too
        kept["data.tokenizer"] = str(files.tokenizer_path)
    return change(config, kept), {*keys}


def foreign_config(
    source: str, overrides: Sequence[str], free: Sequence[str], of_folder: bool
) -> tuple[TrainConfig, set[str]]:
    problems = []
    given = parse_all(overrides, problems)
    changed = {*given}
    if "data" not in changed:
        needs = "texts or images like those it was trained on" if of_folder else "images"
        problems.append(f"{source}: needs {needs}, give data=NAME; choices: {', '.join(names('data'))}")
    unread = sorted(key for key in changed if key not in free and key.partition(".")[0] not in free)
    problems += [f"{key}: has no effect here; choices: {', '.join(free)}" for key in unread]
    if "model" in changed:
        problems.append(f"model: the model is {source}; change its options by model.options.KEY=VALUE")
    with collecting(problems):
        base = {"model": source if of_folder else timm_model(source)}
        config = compose(TrainConfig, [(key, given[key]) for key in given if key not in (*unread, "model")], base)
        if of_folder and config.data.modality == "text":
            config = change(config, {"data.tokenizer": source})
    raise_all(problems)
    return config, changed


def parse_all(words: Sequence[str], problems: list[str]) -> dict[str, Any]:
    """Parse overrides to values by key; add the problems of wrong ones to `problems`."""
    given = {}
    for word in words:
        with collecting(problems):
            given |= [parse_override(word)]
    return given


# ---- eval


EVAL = """Evaluate a finished run on held-out images, its own or another data set's, and probe its features:
  vitlab eval runs/quick/vit_nano-n32000-s0 --out evaluation
  vitlab eval runs/quick/vit_nano-n32000-s0 probes=[fewshot,linear,knn] train_size=5000
  vitlab eval timm:vit_small_patch16_224 data=cifar10 probes=[knn]"""
PAIRS = 5  # of classes that are confused most, shown


def evaluate(words: Sequence[str]) -> int:
    parser = CommandParser("eval", EVAL)
    parser.add_argument("run", metavar="RUN|timm:NAME[=FILE]", help="the run's folder, or a model of timm")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_json()
    parser.add_out("where to write the numbers and pictures (default: nowhere)")
    args = parser.parse_intermixed_args(words)
    config, changed = source_config(args.run, args.overrides, ("data", "train_size", "probes", "task.test_items"))
    if args.out:
        refuse_output(args.out, "eval", args.run)
    with status_line("loading torch, lightning and timm", quiet=args.json):
        from vitlab.analysis import probes
        from vitlab.tasks.base import by_length
        from vitlab.tasks.base import evaluate as measure
        from vitlab.training.load import load_subject

    console = Console(stderr=True)
    subject = load_subject(args.run, config, changed)
    data, task = subject.data, subject.task
    sizes = [config.train_size] if config.probes else []
    problems = size_problems(sizes, task.train, task.strata, data.name, "train_size")
    if subject.mismatch and not config.probes:
        choices = ", ".join(name for name in names("probe") if name != "finetune")
        instead = f"; ask for probes=[NAME], choices: {choices}" if task.item == "image" else ""
        problems.append(f"{subject.mismatch}{instead}")
    trained = [probe for probe in config.probes if load("probe", probe.partition("@")[0]).kind == "finetune"]
    problems += [f"probes={probe}: trains; give it to vitlab train or vitlab scale" for probe in trained]
    raise_all(problems)
    model, workers = subject.model, 0 if data.cached else count_cores()
    results: dict[str, Any] = {}
    tables: dict[str, Tensor] = {}
    size = resolve_size(config.train_size, task.train.total)
    scale = task.scale
    task.train_on(training_items(task.train, min(size, task.train.total), config.seed, config.subset))
    if scale is not None:  # numbers stay standardised by the run's own training targets
        task.scale = scale
    with progress_bar(console) as progress:
        if not subject.mismatch:
            options = {"detailed": True, "indices": by_length(task.test), "progress": progress}
            metrics = measure(model, task, task.test, subject.autocast, workers, **options).compute()
            results = {name: float(value) for name, value in metrics.items() if not value.ndim}
            for name, value in results.items():
                if not math.isfinite(value):
                    why = "is data.std that of its training?" if task.item == "image" else "are its weights finite?"
                    raise UserError(f"the model's {name} on these {task.item}s is {value}: {why}")
            tables = {name: value.cpu() for name, value in metrics.items() if value.ndim}
            if "confusion_matrix" in tables:
                results["most_confused"] = rank_confused_pairs(tables["confusion_matrix"], task.classes)
        if config.probes:
            results |= probes.measure(model, task, config.probes, task.training_indices, workers, progress)
    results = round_numbers(results)
    head = {"run": args.run, "data": data.name, f"{task.item}s": len(task.test)}
    head |= {"train_size": size} if config.probes else {}
    if args.json:
        print(json.dumps({**head, **results}, indent=1))
    else:
        show(head, results, subject, task)
    if args.out:
        mark_output(args.out, "eval", args.run)
        for path in write(args.out, {**head, **results}, tables, subject, task.classes):
            print(path, file=console.file if args.json else None)
    return 0


def rank_confused_pairs(confusion: "Tensor", classes: Sequence[str]) -> list[dict[str, Any]]:
    """Rank the pairs of (true, predicted) classes by mistakes; `share` is of the true class's images."""
    true, predicted = confusion.nonzero(as_tuple=True)  # few of the C x C pairs where there are many classes
    wrong = true != predicted
    true, predicted = true[wrong], predicted[wrong]
    images, totals = confusion[true, predicted], confusion.sum(dim=1)
    return [
        {
            "true": classes[true[place]],
            "predicted": classes[predicted[place]],
            "images": int(images[place]),
            "share": float(images[place] / totals[true[place]]),
        }
        for place in images.argsort(descending=True, stable=True)[:PAIRS]
    ]


def show(head: dict[str, Any], results: dict[str, Any], subject: "Subject", task: "Task") -> None:
    print(f"{head['run']} on {len(task.test):,} held-out {task.item}s of {head['data']}:")
    if subject.mismatch:
        print(f"  no accuracy and no loss: {printable(subject.mismatch)}")
    elif subject.name.startswith("timm:"):
        print(f"  (assuming that its classes are those of {subject.data.name}, in the same order)")
    for name, value in results.items():
        if name != "most_confused":
            print(f"  {name:17} {value:.4f}" if value is not None else f"  {name:17} too few training {task.item}s")
    if "train_size" in head:
        print(f"  (probes: {head['train_size']:,} training {task.train.unit}s)")
    pairs = results.get("most_confused", [])
    if pairs:
        print("Most confused classes:")
    for pair in pairs:
        true, predicted = printable(pair["true"]), printable(pair["predicted"])
        print(f"  {true} taken for {predicted}: {pair['images']:,} {task.item}s, {pair['share']:.1%} of {true}")


def write(
    folder: Path, results: dict[str, Any], tables: "dict[str, Tensor]", subject: "Subject", classes: Sequence[str]
) -> list[Path]:
    """Write the files of an evaluation; return their paths."""
    from vitlab.reports.figures import images, save_figure

    paths, title = [folder / "eval.json"], f"{subject.name} on {subject.data.name}"
    write_json(paths[0], results)
    if "confusion_matrix" in tables:
        counts = tables["confusion_matrix"].numpy()
        pairs = ((classes[t], classes[p], counts[t, p]) for t, p in zip(*counts.nonzero(), strict=True))
        paths.append(folder / "confusion_matrix.csv")
        write_text(paths[-1], "".join(map(format_line, [("true", "predicted", "count"), *pairs])))
        paths += save_figure(images.plot_confusion_matrix(counts, classes, title), folder)
    if "reliability" in tables:
        figure = images.plot_reliability(tables["reliability"].tolist(), results["calibration_error"], title)
        paths += save_figure(figure, folder)
    return paths


# ---- analyze


def analyze(words: Sequence[str]) -> int:
    parser = CommandParser("analyze", "Analyse what the model of a run, or any model of timm, has learned.")
    add = parser.add_argument
    add("run", metavar="RUN|FOLDER|timm:NAME[=FILE]", help="a run's folder, Hugging Face's folder, or a model of timm")
    about = "default: every analysis that applies; FILE.yaml is your own; ANALYSIS.key=value changes an option"
    add("words", nargs="*", metavar="ANALYSIS | FILE.yaml | key=value", help=about)
    texts = {"action": "append", "dest": "text"}
    add("--text", nargs=1, default=[], metavar="TEXT", help="input of a text model", **texts)
    add("--pair", nargs=2, metavar=("A", "B"), help="two sentences as one input", **texts)
    parser.add_out("where to write the numbers and pictures (default: RUN/analysis/trained)")
    args = parser.parse_intermixed_args(words)
    named = {Path(word).stem: word for word in args.words if "=" not in word}
    given, problems = [word for word in args.words if "=" in word], []
    overrides = [word for word in given if re.split("[.=]", word)[0] not in {*named, *names("analysis")}]
    if overrides and not args.out and RunFiles(args.run).config_path.is_file():
        problems.append(f"{overrides[0]}: also give --out DIR; the run's own folder is for its own data")
    analyses: dict[str, Any] = {}
    with collecting(problems):
        wanted = named or {name: name for name in names("analysis")}
        analyses = load_analyses(wanted, [word for word in given if word not in overrides])
    with collecting(problems):
        config, changed = source_config(args.run, overrides, ("data",))
        if args.out:
            refuse_output(args.out, "analyze", args.run)
        raise_all(
            line for name, options in analyses.items() if name in named for line in find_misfit(options, config.task)
        )
    raise_all(problems)
    with status_line("loading torch, lightning and timm"):
        from vitlab.analysis import examine, refusal
        from vitlab.analysis.alignment import encode_text
        from vitlab.reports.figures import draw_findings, save_figure
        from vitlab.reports.pages.attention import write_views
        from vitlab.training.load import load_subject

    subject = load_subject(args.run, config, changed)
    folder, task = args.out or subject.folder, subject.task
    of_text = config.data.modality == "text"
    if args.text and not of_text:
        raise UserError(f"--text '{args.text[0][0]}': {args.run} is an image model")
    shown = [encode_text(subject.model, subject.data.tokenizer, parts) for parts in args.text]
    heads: list[dict[str, Any]] = []
    refused = {name: why for name, options in analyses.items() if (why := refusal(options, subject.model, task))}
    if refused and named:
        raise UserError(refused.values())
    applicable = {name: options for name, options in analyses.items() if name not in refused}
    if not applicable and not of_text:
        raise UserError(f"no analysis applies to {type(subject.model).__name__}")
    console = Console(stderr=True)
    if args.out:
        mark_output(args.out, "analyze", args.run)
    for number, (name, options) in enumerate(applicable.items(), start=1):
        try:
            with progress_bar(console) as progress:
                report = partial(progress, f"{escape(options.title)}, {number} of {len(applicable)}")
                report(0, None)  # some analyses report nothing else
                labelled = not subject.mismatch
                findings = examine(subject.model, task, options, subject.step, labelled=labelled, progress=report)
                paths = write_analysis(folder, findings.to_dict(), findings.arrays)
                for figure in draw_findings(findings, options, weights_name(subject.name)):
                    paths += save_figure(figure, folder)
        except UserError as error:
            if named:  # the others are made all the same
                problems += error.problems
            else:
                print(f"{name}: {error}", file=sys.stderr)
            continue
        heads = findings.rows if name == "head_patterns" else heads
        print(f"{options.title}: {paths[0]}", *(path.name for path in paths[1:]), sep=", ")
    if of_text:
        paths = write_views(subject.model, task, subject.data.tokenizer, shown, heads, subject.name, folder)
        if not paths:
            raise UserError(
                f"{args.run}: {type(subject.model.text).__name__} has no attention and no positions to draw"
            )
        print(*paths, sep="\n")
    print(f"all numbers and pictures: {folder}")
    raise_all(problems)
    return 0


def load_analyses(files: Mapping[str, str], overrides: Sequence[str]) -> dict[str, TrainConfig]:
    """Load the analyses of `files` (name -> name or path) with the options that `ANALYSIS.key=value` changes.

    Raises UserError.
    """
    changes: dict[str, dict[str, Any]] = {}
    for text in overrides:
        path, value = parse_override(text)
        name, _, key = path.partition(".")
        if not key or key in ("name", "kind"):
            raise UserError(f"{path}: give {name}.KEY=VALUE to change one of its options, such as {name}.examples=8")
        changes.setdefault(name, {})[key] = value
    analyses, problems = {}, []
    for name, file in files.items():
        with collecting(problems):
            analyses[name] = load("analysis", {"name": file, **changes.get(name, {})})
    unused = [name for name in changes if name not in files]
    problems += [f"{name}: has options but was not chosen; name it too, or leave its options out" for name in unused]
    raise_all(problems)
    return analyses
