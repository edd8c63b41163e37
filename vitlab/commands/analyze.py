"""`vitlab analyze`: analyses of a finished run's model, or of any model of timm."""

import sys
from collections.abc import Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape

from vitlab.commands.arguments import CommandParser, source_config, status_line, utf8_text
from vitlab.config import UserError, choices_text, collecting, load, names, parse_override, raise_all
from vitlab.config.groups import is_file_choice
from vitlab.config.schema import TrainConfig
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.training.files import RunFiles, refuse_unwritable, write_analysis


def main(words: Sequence[str]) -> int:
    parser = CommandParser("analyze", "Analyse what the model of a run, or any model of timm, has learned.")
    add = parser.add_argument
    add("run", metavar="RUN|FOLDER|timm:NAME", help="a run's folder, Hugging Face's folder, or a model of timm")
    about = "default: every analysis that applies; FILE.yaml is your own; ANALYSIS.key=value changes an option"
    add("words", nargs="*", metavar="ANALYSIS | FILE.yaml | key=value", help=about)
    texts = {"action": "append", "dest": "text", "type": utf8_text}
    add("--text", nargs=1, default=[], metavar="TEXT", help="input of a text model", **texts)
    add("--pair", nargs=2, metavar=("A", "B"), help="two sentences as one input", **texts)
    parser.add_out("where to write the numbers and pictures (default: RUN/analysis/trained)")
    args = parser.parse_intermixed_args(words)
    chosen, given = [w for w in args.words if "=" not in w], [w for w in args.words if "=" in w]
    files = {Path(word).stem: word for word in chosen if is_file_choice(word)}
    chosen = [Path(word).stem if is_file_choice(word) else word for word in chosen]
    choices = {**{name: name for name in names("analysis")}, **files}
    overrides = [w for w in given if w.partition("=")[0].partition(".")[0] not in choices]
    problems = [f"{name}: unknown analysis; {choices_text(name, choices)}" for name in chosen if name not in choices]
    problems += [f"{name}: two analyses have this name" for name in files if chosen.count(name) > 1]
    if overrides and not args.out and RunFiles(args.run).config_path.is_file():
        problems.append(f"{overrides[0]}: also give --out DIR; the run's own folder is for its own data")
    with collecting(problems):
        wanted = {name: choices[name] for name in chosen or names("analysis") if name in choices}
        analyses = load_analyses(wanted, [w for w in given if w not in overrides])
    with collecting(problems):
        config, changed = source_config(args.run, overrides, ("data",))
        if args.out:
            refuse_unwritable(args.out)
    raise_all(problems)
    return analyze(args.run, analyses, config, changed, args.out, args.text, refuse=bool(chosen))


def load_analyses(files: Mapping[str, str], overrides: Sequence[str]) -> dict[str, TrainConfig]:
    """The analyses of `files` (name -> name or path) with the options that `ANALYSIS.key=value` changes.

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
            options = analyses[name] = load("analysis", {"name": file, **changes.get(name, {})})
            if vars(options).get("pictures", 1) < 1:
                problems.append(f"{name}.pictures={options.pictures}: must be at least 1")
    unused = [name for name in changes if name not in files]
    problems += [f"{name}: has options but was not chosen; name it too, or leave its options out" for name in unused]
    raise_all(problems)
    return analyses


def analyze(
    source: str,
    analyses: Mapping[str, TrainConfig],
    config: TrainConfig,
    changed: Set[str],
    folder: Path | None,
    texts: Sequence[Sequence[str]] = (),
    *,
    refuse: bool = True,
) -> int:
    """Write the numbers and pictures of analyses, print their paths; the exit code. Raises UserError.

    `changed` are the keys that the user gave; `texts` of one or two sentences each are shown on the page of a text
    model's attention. Analyses that do not apply to the model are refused, or left out without `refuse`.
    """
    with status_line("loading torch, lightning and timm"):
        from vitlab import tasks
        from vitlab.analysis import examine, refusal
        from vitlab.analysis.texts import encode_text
        from vitlab.reports.figures import draw_findings, save_figure
        from vitlab.reports.pages.attention import write_views
        from vitlab.training.load import load_subject

    subject = load_subject(source, config, changed)
    folder = folder or subject.folder
    task = tasks.build(config.task, recipe=config.recipe, data=subject.data, data_config=config.data)
    of_text = config.data.modality == "text"
    if texts and not of_text:
        raise UserError(f"--text '{texts[0][0]}': {source} is an image model")
    shown = [encode_text(subject.model, subject.data.tokenizer, parts) for parts in texts]
    heads: list[dict[str, Any]] = []
    refused = {name: why for name, options in analyses.items() if (why := refusal(options, subject.model))}
    if refused and refuse:
        raise UserError(refused.values())
    applicable = {name: options for name, options in analyses.items() if name not in refused}
    if not applicable and not of_text:
        raise UserError(f"no analysis applies to {type(subject.model).__name__}")
    console = Console(stderr=True)
    for number, (name, options) in enumerate(applicable.items(), start=1):
        try:
            with progress_bar(console) as progress:
                report = partial(progress, f"{escape(options.title)}, {number} of {len(applicable)}")
                report(0, None)  # some analyses report nothing else
                labelled = not subject.mismatch
                findings = examine(subject.model, task, options, subject.step, labelled=labelled, progress=report)
                paths = write_analysis(folder, findings.to_dict(), findings.arrays)
                for figure in draw_findings(findings, options, subject.name):
                    paths += save_figure(figure, folder)
        except UserError as error:
            if refuse:
                raise
            print(f"{name}: {error}", file=sys.stderr)
            continue
        heads = findings.rows if name == "head_patterns" else heads
        for path in paths:
            print(path)
    if of_text:
        paths = write_views(subject.model, task, subject.data.tokenizer, shown, heads, subject.name, folder)
        if not paths:
            raise UserError(f"{source}: {type(subject.model.text).__name__} has no attention and no positions to draw")
        print(*paths, sep="\n")
    return 0
