"""`vitlab status`: how a study goes. Imports no torch."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from vitlab.commands.arguments import CommandParser
from vitlab.console import Console
from vitlab.studies.status import COUNTED, RunState, StudyStatus, make_table, read_status

DESCRIPTION = """Say what of a study waits, trains, has finished and has failed.

Reads a study's files alone, on any host that sees them. A run whose process has not been heard of for 50 s is
probably lost: start the study again, and it is taken over."""
MOST = 20  # failed runs that are listed


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
        **{state: status.counts[state] for state in COUNTED},
        "seconds_left": status.seconds_left,
        "cells": [describe(run) for run in status.runs],
    }


def describe(run: RunState) -> dict[str, object]:
    """What is known of a run; what is not is left out."""
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
    """The counts, the runs that train, those that failed; the others are only counted."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(escape(status.describe()))
    if stopped := [run for run in status.of_state("waiting") if run.progress]:
        named = [f"{run.run} at step {run.progress.step:,}" for run in stopped[:MOST]]
        more = f" and {len(stopped) - MOST:,} more" if len(stopped) > MOST else ""
        console.print(escape(f"stopped, to be continued: {', '.join(named)}{more}"))
    damaged = [run for run in status.of_state("waiting") if run.error]
    for run in damaged[:MOST]:
        console.print(f"[yellow]{escape(run.run)}[/yellow]  {escape(run.error)}")
    if len(damaged) > MOST:
        console.print(f"and {len(damaged) - MOST:,} more results that are damaged, which --json lists")
    if running := status.of_state("running"):
        console.print()
        console.print(make_table(status, console, running, where=True))
    if failed := status.of_state("failed"):
        console.print("\nfailed")
        for run in failed[:MOST]:
            console.print(f"[red]{escape(run.run)}[/red]  {escape(run.error)}")
        more = f"and {len(failed) - MOST:,} more, which --json lists; " if len(failed) > MOST else ""
        console.print(escape(f"{more}what they said: {folder}/RUN/log.txt"))
