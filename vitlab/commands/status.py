"""`vitlab status`: how a study goes. Imports no torch."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from vitlab.commands.arguments import CommandParser
from vitlab.console import Console
from vitlab.formatting import duration, plural
from vitlab.studies.status import RunStatus, StudyStatus, read_status

DESCRIPTION = """Say what of a study waits, trains, has finished and has failed.

Reads a study's files alone, on any host that sees them. A run whose process has not been heard of for 50 s is
probably lost: start the study again, and it is taken over."""
MOST = 20  # failed runs that are listed
STATES = ("finished", "failed", "running", "waiting")


def main(words: Sequence[str]) -> int:
    parser = CommandParser("status", DESCRIPTION)
    about = "a study's folder, or one that holds several (default: runs)"
    parser.add_argument("folders", metavar="STUDY_DIR", type=Path, nargs="*", default=[Path("runs")], help=about)
    parser.add_json()
    args = parser.parse_args(words)
    statuses = {study: read_status(study) for folder in args.folders for study in list_studies(folder)}
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
    """A study's folder, that of the study of a run, or all studies of a folder."""
    if not (folder / "study.yaml").exists():
        if (folder.parent / "study.yaml").exists() and (folder / "config.yaml").exists():
            return [folder.parent]
        return sorted(path.parent for path in folder.glob("*/study.yaml")) or [folder]
    return [folder]


def to_json(status: StudyStatus) -> dict[str, object]:
    return {
        "runs": len(status.runs),
        **{state: status.counts[state] for state in STATES},
        "seconds_left": status.seconds_left,
        "cells": [describe(run) for run in status.runs],
    }


def describe(run: RunStatus) -> dict[str, object]:
    """What is known of a run; what is not is left out."""
    cell, progress = run.cell, run.cell.progress
    details = {
        "step": progress and progress.step,
        "steps": progress and progress.steps,
        "seconds_left": progress.seconds_left if progress and cell.state == "running" else None,
        "heard_seconds_ago": run.heard,
        "where": cell.where or None,
        "job": run.job or None,
        "error": cell.error or None,
    }
    return {"run": cell.run, "state": cell.state, **{key: value for key, value in details.items() if value is not None}}


def show(status: StudyStatus, folder: Path) -> None:
    """The counts, the runs that train, those that failed; the others are only counted."""
    console = Console(soft_wrap=True, highlight=False)
    counts = [f"{status.counts[state]:,} {state}" for state in STATES if status.counts[state]]
    left = status.seconds_left
    ending = f"; about {duration(left)} left" if left is not None else ""
    console.print(escape(f"{plural(len(status.runs), 'run')}: {', '.join(counts)}{ending}"))
    if stopped := [run for run in status.of_state("waiting") if run.cell.progress]:
        named = [f"{run.cell.run} at step {run.cell.progress.step:,}" for run in stopped[:MOST]]
        more = f" and {len(stopped) - MOST:,} more" if len(stopped) > MOST else ""
        console.print(escape(f"stopped, to be continued: {', '.join(named)}{more}"))
    damaged = [run for run in status.of_state("waiting") if run.cell.error]
    for run in damaged[:MOST]:
        console.print(f"[yellow]{escape(run.cell.run)}[/yellow]  {escape(run.cell.error)}")
    if len(damaged) > MOST:
        console.print(f"and {len(damaged) - MOST:,} more results that are damaged, which --json lists")
    queued = {run.job for run in status.of_state("waiting") if run.job}
    if queued:
        console.print(escape(f"submitted to SLURM, not begun or to be continued: {list_jobs(queued)}"))
    if running := status.of_state("running"):
        table = Table(box=None, pad_edge=False)
        for name in ("running", "step", "left", "heartbeat", "where"):
            table.add_column(name, justify="right" if name in ("step", "left") else "left", no_wrap=True)
        for run in running:
            table.add_row(*map(escape, format_running(run)))
        console.print()
        console.print(table)
    if failed := status.of_state("failed"):
        console.print("\nfailed")
        for run in failed[:MOST]:
            console.print(f"[red]{escape(run.cell.run)}[/red]  {escape(run.cell.error)}")
        more = f"and {len(failed) - MOST:,} more, which --json lists; " if len(failed) > MOST else ""
        console.print(escape(f"{more}what they said: {folder}/RUN/log.txt"))


def format_running(run: RunStatus) -> tuple[str, ...]:
    progress = run.cell.progress
    return (
        run.cell.run,
        f"{progress.step:,} of {progress.steps:,}" if progress else "starts",
        duration(progress.seconds_left) if progress else "",
        f"{duration(run.heard)} ago" if run.heard is not None else "",
        run.cell.where,
    )


def list_jobs(jobs: set[str]) -> str:
    """`job 12 (8 tasks), job 15 (1 task)`: an array is one job."""
    tasks = Counter(job.partition("_")[0] for job in jobs)
    return ", ".join(f"job {number} ({plural(tasks[number], 'task')})" for number in sorted(tasks, key=int))
