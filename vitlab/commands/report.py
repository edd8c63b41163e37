"""`vitlab report`: a study's report, written again from its files."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vitlab.commands.arguments import CommandParser, status_line
from vitlab.config import UserError

if TYPE_CHECKING:
    from vitlab.studies.results import Results

DESCRIPTION = "Write a study's report.html, compare.html, attention/, figures/ and tables/ again from its files."


def main(words: Sequence[str]) -> int:
    parser = CommandParser("report", DESCRIPTION)
    parser.add_argument("study", metavar="STUDY_DIR")
    parser.add_argument(
        "--wandb", action="store_true", help="a W&B workspace and report too; saved to W&B if you are logged in"
    )
    args = parser.parse_args(words)
    from vitlab.studies.results import load_results

    return report(load_results(args.study), wandb=args.wandb)


def report(results: "Results", *, wandb: bool) -> int:
    """Write report.html, its pages, figures/ and tables/ of a study's folder; the exit code. Raises UserError.

    With `wandb` its workspace and report, too: as JSON, and in W&B where the user is logged in.
    """
    with status_line("loading altair"):
        from vitlab.reports.pages.study import write_report
        from vitlab.reports.words import find_tables

    folder = results.files.folder
    try:
        results.files.write_rows(results.rows)
        page = write_report(results)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror}; fix that, then run the command again") from None
    print(page, *find_tables(folder), sep="\n")
    return dashboards(results) if wandb else 0


def dashboards(results: "Results") -> int:
    """The study's W&B workspace and report; 1 when W&B did not save them."""
    try:
        from vitlab.reports.dashboards import write_dashboards
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "wandb_workspaces":
            raise
        raise UserError("--wandb needs the package wandb-workspaces: pip install wandb-workspaces") from None
    from vitlab.reports.wandb import default_mode

    online = default_mode() == "online"
    places, failure = write_dashboards(results, online=online)
    print(*places, sep="\n")
    if failure:
        print(f"vitlab: W&B did not save the dashboards: {failure}; run the command again", file=sys.stderr)
    elif not online:
        print("Log in (`wandb login`) and run the command again to save them in W&B.", file=sys.stderr)
    return 1 if failure else 0
