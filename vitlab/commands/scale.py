"""`vitlab scale`: a study from its grid to its report."""

import argparse
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from vitlab.commands.arguments import CommandParser, positive_integer, positive_number, status_line
from vitlab.config import UserError
from vitlab.config.errors import first_line
from vitlab.config.schema import StudyConfig
from vitlab.console import UNLIMITED, Console
from vitlab.data.opening import progress_bar
from vitlab.files import write_text
from vitlab.formatting import plural
from vitlab.studies.claims import hold
from vitlab.studies.grid import compose_models, compose_study
from vitlab.studies.launch import find_start, is_on_this_machine, start_server
from vitlab.studies.rounds import Target
from vitlab.studies.status import is_finished
from vitlab.studies.store import StudyFiles, collect
from vitlab.training.files import source_of, source_problems

if TYPE_CHECKING:
    from vitlab.reports.words import SizeTable
    from vitlab.studies.results import Results

DESCRIPTION = """Train models on nested subsets of a data set and compare them.

STUDY is a name under configs/study/ (default: arrow; with data=... quick) or the path of a YAML file. key=value changes
one of its fields:
  vitlab scale
  vitlab scale quick data=digits sizes=[100,400] seeds=[0,1] budget.steps=60 --out runs/digits
  vitlab scale data=imagefolder data.root=photos
Run the same command again to continue where it stopped."""


def main(words: Sequence[str]) -> int:
    parser = CommandParser("scale", DESCRIPTION)
    parser.add_argument("words", nargs="*", metavar="STUDY | key=value")
    parser.add_out("the study's folder (default: runs/STUDY)")
    parser.add_argument(
        "--jobs",
        type=parse_jobs,
        metavar="N",
        help="runs at a time; auto (default): what the cores have room for, one a GPU, on "
        "a cluster what it has room for",
    )
    parser.add_argument("--executor", metavar="NAME", help="where runs train: local (default), ray, slurm or your own")
    parser.add_argument("--detach", action="store_true", help="with SLURM: submit the jobs, and do not wait for them")
    parser.add_argument(
        "--until",
        type=positive_number,
        metavar="POINTS",
        help="add seeds where the 95%% interval of a mean reaches further than this to either side; sets margin=POINTS",
    )
    parser.add_argument("--max-runs", type=positive_integer, metavar="N", help="of the study, with --until")
    parser.add_argument("--dry-run", action="store_true", help="only print each run, its parameters, FLOPs and time")
    args = parser.parse_intermixed_args(words)
    # the shell cuts models=[a, b] into two words; the second is not a study
    studies = [word for word in args.words if "=" not in word and not word.endswith(("]", ","))]
    if len(studies) > 1:
        raise UserError(f"'{studies[1]}' is not key=value, and the study is '{studies[0]}' already")
    overrides = [word for word in args.words if word not in studies]
    overrides += [f"executor={args.executor}"] if args.executor else []
    overrides += [f"margin={args.until}"] if args.until else []
    # arrow's models are made for its rows of digits, quick's for any pictures
    default = "quick" if any(word.startswith("data=") for word in overrides) else "arrow"
    config = compose_study((studies or [default])[0], overrides)
    folder = args.out or Path("runs") / config.name
    if args.max_runs and not args.until:
        raise UserError(f"--max-runs {args.max_runs}: is for --until POINTS; give both")
    target = Target(config.margin, args.max_runs) if args.until else None
    find_start(config.executor.kind)  # raises UserError
    if args.detach and config.executor.kind in ("local", "ray"):
        raise UserError(
            f"--detach: runs on executor={config.executor.kind} end with this command; leave it out, or give "
            "--executor slurm"
        )
    files = StudyFiles(folder)
    if not (args.dry_run or target) and is_finished(files, config, console := Console(stderr=True)):
        say(files.last_start().headline, console)
        from vitlab.studies.results import load_results

        show(load_results(folder))
        return 0
    files.refuse(config)
    if not files.config_path.exists():  # a study that continues may no longer need them
        sources = dict.fromkeys(source_of(run.init) for run in compose_models(config).values())
        if problems := [line for source in sources for line in source_problems(source)]:
            raise UserError(problems)
    return scale(config, folder, jobs=args.jobs, dry_run=args.dry_run, detach=args.detach, target=target)


def parse_jobs(text: str) -> int | None:
    try:
        return None if text == "auto" else positive_integer(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor auto") from None


def scale(
    config: StudyConfig,
    folder: Path,
    *,
    jobs: int | None,
    dry_run: bool,
    detach: bool = False,
    target: Target | None = None,
) -> int:
    """Train or complete every run of the grid, then write the results and the report; the exit code.

    With a target runs of more seeds follow in rounds. `detach` only starts the workers, `dry_run` only prints what the
    runs cost. Raises UserError before anything is written.
    """
    began, console, files = time.perf_counter(), Console(stderr=True), StudyFiles(folder)
    from vitlab.commands import study_runs

    if is_on_this_machine(config.executor) and not dry_run:
        start_server(study_runs.list_worker_modules(compose_models(config).values()))  # it imports beside this process
    if dry_run:
        say(f"{config.name}: timing the first steps of each model here; nothing is kept", console)
    with status_line("loading torch, lightning and timm"):
        from vitlab.reports.pages import live_report
        from vitlab.studies.plan import plan_study, show_plan, time_variants
    if continued := files.config_path.exists():
        config = replace(config, settled=files.config().get("settled") or {})
    plan = plan_study(config, jobs=jobs, console=console)
    if warning := plan.warn_of_unseen():
        say(f"vitlab: {warning}", console)
    if target and continued:  # what earlier rounds asked for comes before the next one
        study_runs.add_earlier_cells(files, plan)
    if dry_run:
        startup = time.perf_counter() - began
        elsewhere = config.executor.gpus and not is_on_this_machine(config.executor)
        with progress_bar(console) as progress:
            times = {} if elsewhere else time_variants(plan, progress)
        show_plan(plan, times, startup)
        if target:
            print(target.describe())
        return 0
    with hold(folder, wait=True):  # another start of this study may prepare its own
        if not continued and files.config_path.exists():
            files.refuse(config)
        missing = study_runs.find_missing(files, plan, console)
        study_runs.prepare_folder(files, plan)
    if detach and (number := min(plan.jobs, plan.trials * len(missing.to_train) + len(missing.to_complete))):
        study_runs.start_workers(files, plan, number)
        print(f"Started {plural(number, 'worker')}; 'vitlab status {folder}' says how the runs go")
        return 0
    with live_report(folder) as live:
        say(plan.headline(len(missing.to_train)), console)
        if missing.to_complete:
            say(f"Adding {', '.join(missing.additions)} to {plural(len(missing.to_complete), 'finished run')}", console)
        failed = study_runs.train_all(files, plan, live)
        if target:
            failed |= study_runs.run_rounds(files, plan, target, {*failed}, live, console)
        with hold(folder, wait=True):  # of two starts that end at once the later one writes all results
            collect(files)
            return max(finish(files, failed), 1 if failed else 0)


def finish(files: StudyFiles, failed: Mapping[str, str]) -> int:
    """Write the report and print the result; 1 where that fails, as the results are there all the same."""
    from vitlab.reports.pages import LOG
    from vitlab.reports.pages.study import write_report
    from vitlab.studies.results import load_results

    log = files.folder / LOG
    try:
        results = load_results(files.folder)
        write_report(results)
        show(results, {run: f"{error} (see {files.folder / run / 'log.txt'})" for run, error in failed.items()})
    except (OSError, UserError):
        raise
    except Exception as error:
        write_text(log, traceback.format_exc())
        print(
            f"vitlab: the report failed: {first_line(error)} (see {log}); all results are in {files.results_path}, and "
            f"'vitlab report {files.folder}' writes the report again",
            file=sys.stderr,
        )
        return 1
    log.unlink(missing_ok=True)
    return 0


def show(results: "Results", failed: Mapping[str, str] | None = None) -> None:
    """Print what a study has found, why runs of this start have failed, and where the files are."""
    from vitlab.reports.provenance import advise_tuning
    from vitlab.reports.wandb import WAITING, list_uploads
    from vitlab.reports.words import headline, make_size_table

    console, files = Console(), results.files
    if results.rows:
        print_table(make_size_table(results))
    for text in filter(None, [*headline(results), *results.fits.describe_next_runs(), advise_tuning(results)]):
        console.print(escape(text), highlight=False)
    for run, error in (failed or {}).items():
        console.print(f"[red]failed[/red]   {escape(f'{run}: {error}')}", soft_wrap=True)
    say(f"report   {files.report_path}", console)
    say(f"results  {files.results_path}", console)
    if any(state == WAITING for _, state, _ in list_uploads(results)):
        say(f"W&B      vitlab sync {files.folder}", console)
    urls = {run.wandb["url"].partition("/runs/")[0] for run in results.run_files.values() if run.wandb.get("url")}
    for url in sorted(urls):
        say(f"W&B      {url}", console)


def print_table(sizes: "SizeTable") -> None:
    """On a terminal too narrow for a column a model, each model has a line."""
    console, table = Console(), make_wide_table(sizes)
    if (
        Measurement.get(Console(width=UNLIMITED), console.options.update(width=UNLIMITED), table).maximum
        > console.width
    ):
        table = make_long_table(sizes)
    console.print()
    console.print(table)
    console.print(escape(sizes.note), highlight=False, style="dim")
    console.print()


def make_wide_table(sizes: "SizeTable") -> Table:
    """A row for each size, a column for each model."""
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(sizes.header):
        heading = escape(name) if index == 0 else escape(name).replace(" ", "\n")  # an axis a line
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True)
    for line in sizes.body:
        table.add_row(*map(escape, line))
    return table


def make_long_table(sizes: "SizeTable") -> Table:
    """A row for each size and model, for a narrow terminal."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for size, *cells in sizes.body:
        table.add_row(f"[bold]{escape(sizes.header[0])} {escape(size)}")
        for name, cell in zip(sizes.header[1:], cells, strict=True):
            table.add_row(f"  {escape(name)}", escape(cell))
    return table


def say(text: str, console: Console) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)
