"""`vitlab status`, `work`, `report` and `sync`: a study's progress, a worker of it, its report, its offline W&B runs.

Imports no torch.
"""

import argparse
import fnmatch
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from vitlab.commands.arguments import CommandParser, non_empty_path, number_between, positive_integer, status_line
from vitlab.config import UserError, choices_text, collecting, raise_all
from vitlab.console import Console
from vitlab.formatting import cut_lines, cut_names, plural
from vitlab.studies.status import COUNTED, RunState, StatusReader, StudyStatus, make_table
from vitlab.studies.store import StudyFiles
from vitlab.training.files import mark_output, refuse_output, refuse_unwritable
from vitlab.training.launch import Stopping

if TYPE_CHECKING:
    from vitlab.studies.results import Results

# ---- status


STATUS = """Say what of a study waits, trains, has finished and has failed.

Reads a study's files alone, on any host that sees them. A run whose process has not been heard of for 60 s is
probably lost: start the study again, and it is taken over."""
MOST = 20  # failed runs that are listed


def status(words: Sequence[str]) -> int:
    parser = CommandParser("status", STATUS)
    about = "a study's folder, or one that holds several (default: runs)"
    of_studies = {"metavar": "STUDY_DIR", "type": non_empty_path, "nargs": "*", "default": [Path("runs")]}
    parser.add_argument("folders", **of_studies, help=about)
    parser.add_json()
    args = parser.parse_args(words)
    statuses, problems = {}, []
    for study in (study for folder in args.folders for study in list_studies(folder)):
        with collecting(problems):
            statuses[study] = StatusReader(StudyFiles(study)).read()
    raise_all(problems)
    if args.json:
        documents = {str(study): to_json(status) for study, status in statuses.items()}
        alone = len(args.folders) == 1 and {*statuses} & {args.folders[0], args.folders[0].parent}
        print(json.dumps(next(iter(documents.values())) if alone else documents, indent=1))
        return 0
    for study, status in statuses.items():
        if study not in args.folders or len(statuses) > 1:
            print(study)
        show(status, study)
    return 0


def list_studies(folder: Path) -> list[Path]:
    """List a study's folder, the folder of a run's study, or all studies in a folder."""
    if not (folder / "study.yaml").exists():
        if (folder.parent / "study.yaml").exists() and (folder / "config.yaml").exists():
            return [folder.parent]
        return sorted(path.parent for path in folder.glob("*/study.yaml")) or [folder]
    return [folder]


def to_json(status: StudyStatus) -> dict[str, object]:
    return {
        **{state: len(status.of_state(state)) for state in COUNTED},
        "seconds_left": status.seconds_left,
        "runs": [describe(run) for run in status.runs],
    }


def describe(run: RunState) -> dict[str, object]:
    """Describe the known facts of a run; leave out unknown ones."""
    progress = run.progress
    details = {
        "step": progress and progress.step,
        "steps": progress and progress.steps,
        "seconds_left": progress.seconds_left if progress and run.state == "running" else None,
        "heard_seconds_ago": run.claim and run.claim.age,
        "where": run.claim and run.claim.holder,
        "error": run.error or None,
    }
    return {"run": run.run, "state": run.state, **{key: value for key, value in details.items() if value is not None}}


def show(status: StudyStatus, folder: Path) -> None:
    """Print the counts, the runs that train and those that failed; only count the rest."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(escape(status.describe()))
    if stopped := [run for run in status.of_state("waiting") if run.progress]:
        named = cut_names([f"{run.run} at step {run.progress.step:,}" for run in stopped], MOST)
        console.print(escape(f"stopped, to be continued: {named}"))
    if running := status.of_state("running"):
        console.print()
        console.print(make_table(status, console, running, where=True))
    damaged, failed = [run for run in status.of_state("waiting") if run.error], status.of_state("failed")
    for title, color, runs in (("damaged, to be trained again", "yellow", damaged), ("failed", "red", failed)):
        if runs:
            lines = [f"[{color}]{escape(run.run)}[/{color}]  {escape(run.error)}" for run in runs]
            console.print(f"\n{title}", *cut_lines(lines, MOST, ", which --json lists", ""), sep="\n")
    if failed:
        console.print(escape(f"what they said: {folder}/RUN/log.txt"))


# ---- work


WORK = """Train free runs of a study until none is left.

'vitlab scale' starts such workers by itself. Start more of them by hand on any machine that sees the folder, or as jobs
of any scheduler. Ctrl-C or SIGTERM writes a checkpoint; any worker continues the run."""


def worker(words: Sequence[str]) -> int:
    if words[:1] == ["--rank"]:  # a device of a run that a worker launched
        from vitlab.reports.wandb import RunReporter
        from vitlab.studies.worker import run_rank

        return run_rank(words[1], RunReporter())
    parser = CommandParser("work", WORK)
    parser.add_argument("study", metavar="STUDY_DIR", type=non_empty_path)
    about = "of each run (default: all of this machine)"
    parser.add_argument("--cores", type=positive_integer, metavar="N", help=about)
    args = parser.parse_args(words)
    StudyFiles(args.study).config()
    with Stopping() as stopping:
        with status_line("loading torch, lightning and timm"):
            from vitlab.reports.wandb import RunReporter
            from vitlab.studies.worker import work
        work(args.study, args.cores, stopping.asked, RunReporter, partial(print, file=sys.stderr, flush=True))
    if stopping.requested:
        raise KeyboardInterrupt
    print(f"no run is free; vitlab status {args.study} says how it goes, vitlab report {args.study} writes the report")
    return 0


# ---- sync


BATCH = 20  # runs of one `wandb sync`, which uploads five at a time
NOT_OURS = ("WANDB_MODE", "WANDB_SERVICE")  # of training; an upload is online
PATIENCE = {"WANDB__GRAPHQL_RETRY_MAX": "3", "WANDB__FILE_STREAM_RETRY_MAX": "5", "WANDB__FILE_TRANSFER_RETRY_MAX": "5"}


def sync(words: Sequence[str]) -> int:
    """Upload the offline runs of a study's folder; return 0, or 1 where some fail. Raises UserError without a login.

    Prints a line for each run on stdout, or with --json one document of all; W&B's messages go to stderr.
    """
    parser = CommandParser("sync", "Upload what the finished runs of a study, or of a folder, logged for W&B offline.")
    parser.add_argument("study", metavar="FOLDER", type=non_empty_path)
    parser.add_json()
    args = parser.parse_args(words)
    from vitlab.studies.results import load_runs

    found = load_runs(args.study)
    from vitlab.reports.wandb import WAITING, is_uploaded, list_uploads

    uploads, code = list_uploads(found), 0
    waiting = [file.resolve() for _, state, file in uploads if state == WAITING]
    environment = PATIENCE | {key: value for key, value in os.environ.items() if key not in NOT_OURS}
    with tempfile.TemporaryDirectory() as scratch:  # for W&B's logs
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            command = [sys.executable, "-m", "wandb", "sync", *map(str, batch)]
            done = subprocess.run(command, env=environment | {"WANDB_DIR": scratch}, stdin=subprocess.DEVNULL)
            if not all(map(is_uploaded, batch)):
                code = 1
            if not any(map(is_uploaded, batch)):  # no login or no server; one broken file does not hold the others up
                if done.returncode:
                    raise UserError("not logged in to W&B: run `wandb login`, then this command again")
                break
    states = {name: "uploaded" if state == WAITING and is_uploaded(file) else state for name, state, file in uploads}
    if args.json:
        print(json.dumps([{"run": name, "state": state} for name, state in states.items()], indent=1))
    else:
        print(*(f"{name}  {state}" for name, state in states.items()), sep="\n")
        print(f"{plural([*states.values()].count('uploaded'), 'run')} uploaded")
    if left := [name for name, state in states.items() if state == WAITING]:
        print(
            f"vitlab: {plural(len(left), 'run')} left to upload: {', '.join(left)}; run the command again",
            file=sys.stderr,
        )
    return code


# ---- report


REPORT = """Judge the runs of any program as a study, or write a study's report, figures and tables again.

Several studies, runs of `vitlab train` and runs of other programs become one study, whose report goes to --out:

  vitlab report runs/quick runs/slow
  vitlab report results.csv
  vitlab report sweep/ --model args.arch --size n_train --metric eval_top1
A source is a study, a run, a folder of runs, or a file or folder of Hugging Face's Trainer, timm, Lightning,
TensorBoard, W&B, MLflow, trackio or scikit-learn, or a table. What is model, size, seed and metric have exact names
(docs/others.md) or are given; what is neither is asked."""
KEYS = ("model", "size", "seed", "metric")


def report(words: Sequence[str]) -> int:
    parser = CommandParser("report", REPORT)
    parser.add_argument("studies", nargs="+", metavar="SOURCE")
    about = "the runs that the comparison begins with; * stands for any letters"
    parser.add_argument("--runs", metavar="A,B,...", help=about)
    about = "a W&B workspace and report too; saved to W&B if you are logged in"
    parser.add_argument("--wandb", action="store_true", help=about)
    parser.add_json()
    others = parser.add_argument_group("several sources, or runs of other programs")
    for key in KEYS:
        others.add_argument(f"--{key}", metavar="KEY", help=f"the {key}{', or none' if key != 'metric' else ''}")
    about = "names of runs or folders, as {model}-n{size}-s{seed}"
    others.add_argument("--name", metavar="PATTERN", help=about)
    about = "the metric falls, or rises, as runs get better (default: by its name)"
    others.add_argument("--lower-is-better", action=argparse.BooleanOptionalAction, help=about)
    about = "what guessing gets right, from 0 to 1"
    others.add_argument("--chance", type=number_between(0, 1), metavar="X", help=about)
    others.add_argument("--ignore", metavar="KEY,...", help="settings that runs are averaged over")
    others.add_argument("--where", metavar="KEY=VALUE,...", help="only the runs that have these settings")
    others.add_argument("--reader", metavar="MODULE", help="your own, as PACKAGE.MODULE: docs/others.md")
    others.add_argument("--out", type=non_empty_path, metavar="DIR", help="default: runs/SOURCE-report")
    args = parser.parse_args(words)
    from vitlab.reports.words import headline
    from vitlab.studies.others import load_others
    from vitlab.studies.results import load_results

    options = {
        key: vars(args)[key] for key in (*KEYS, "name", "lower_is_better", "chance", "ignore", "where", "reader", "out")
    }
    if not args.reader and len(args.studies) == 1 and os.path.exists(Path(args.studies[0], "study.yaml")):
        given = [key.replace("_", "-") for key in options if options[key] is not None]
        raise_all(f"--{key}: is for several sources, or runs of other programs" for key in given)
        return rewrite(load_results(args.studies[0]), wandb=args.wandb, runs=args.runs, as_json=args.json)
    out = args.out or Path("runs") / f"{Path(os.path.realpath(args.studies[0])).stem[:200]}-report"
    refuse_output(out, "report", *args.studies)
    results = load_others(args.studies, **options | {"out": out})
    command = shlex.join(["vitlab", "report", *(word for word in words if word != "--json")])
    results.config["commands"] = [("write this page again", command)]
    said = ", ".join(f"{key} = {text}" for key, text in results.config["read_as"].items())
    print(said, *results.config["notes"], *filter(None, headline(results)[::2]), sep="\n", file=sys.stderr)
    mark_output(out, "report", *args.studies)
    return rewrite(results, wandb=args.wandb, runs=args.runs, as_json=args.json)


def find_runs(words: str | None, names: Sequence[str]) -> list[str]:
    """Find the runs that `--runs` names, also by patterns. Raises UserError for a word that names none."""
    found, problems = {}, []
    for word in filter(None, (words or "").split(",")):
        some = [word] if word in names else fnmatch.filter(names, word)
        problems += [] if some else [f"--runs {word}: no finished run has this name; {choices_text(word, names)}"]
        found |= dict.fromkeys(some)
    raise_all(problems)
    return list(found)


def rewrite(results: "Results", *, wandb: bool, runs: str | None, as_json: bool) -> int:
    """Write report.html, its pages, figures/ and tables/ of a study's folder; return the exit code. Raises UserError.

    With `wandb` also write the workspace and report: as JSON, and in W&B if the user is logged in. With `as_json` print
    the study's findings on stdout: sentences, cells, gaps, laws and crossovers.
    """
    compared = find_runs(runs, list(results.run_files))
    with status_line("loading altair"):
        from vitlab.reports.pages.study import write_report
        from vitlab.reports.words import TABLES, headline

    folder = results.files.folder
    refuse_unwritable(folder, "FOLDER")
    results.files.write_rows(results.all_rows)
    page = write_report(results, compared=compared)
    names = [*(TABLES if results.rows else ()), *(["compare.html"] if compared else [])]
    stream = sys.stderr if as_json else sys.stdout
    print(page, *(folder / name for name in names), sep="\n", file=stream)
    if as_json:
        tables = results.tables.items()
        found = {name: json.loads(table.to_json(orient="records")) for name, table in tables}  # NaN is null
        header, *pairs = results.fits.list_crossovers()
        found["crossovers"] = [dict(zip(header, pair, strict=True)) for pair in pairs]
        print(json.dumps({"metric": results.metric.key, "found": headline(results), **found}))
    if not wandb:
        return 0
    if find_spec("wandb_workspaces") is None:
        raise UserError("--wandb needs the package wandb-workspaces: pip install wandb-workspaces")
    from vitlab.reports.dashboards import write_dashboards
    from vitlab.reports.wandb import default_mode

    online = default_mode() == "online"
    places, failure = write_dashboards(results, online=online)
    print(*places, sep="\n", file=stream)
    if failure:
        print(f"vitlab: W&B did not save the dashboards: {failure}; run the command again", file=sys.stderr)
    elif not online:
        print("Log in (`wandb login`) and run the command again to save them in W&B.", file=sys.stderr)
    return 1 if failure else 0
